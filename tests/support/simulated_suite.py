"""The executors' conformance suite for the simulation, which has no processes."""

from __future__ import annotations

import math
from collections.abc import Mapping

from hptune.core.attempt import Cause, Ending
from hptune.executors.base import Executor
from hptune.testing.executors import ExecutorSuite
from simulated import SimulatedExecutor
from simulated_parts import Curve, SimulatedEnd


class SimulatedSuite(ExecutorSuite):
    def lose_worker(self, executor: Executor, worker: str) -> None:
        assert isinstance(executor, SimulatedExecutor)
        executor.lose_worker(worker)

    def check_gone(self, pid: int) -> None:
        """Simulated attempts have made-up process ids."""


def curve(params: Mapping[str, object], seed: int) -> Curve:
    """What `OBJECTIVE` of `hptune.testing` does."""
    behaviour, x = params["behaviour"], params["x"]
    first = [{"score": 0.25}]
    if behaviour in ("wait", "ignore"):
        return first * 10_000
    ends = {
        "raise": Ending(Cause.EXCEPTION, reason="ValueError: it is broken", detail="ValueError"),
        "exit": Ending(Cause.EXITED, reason="its process exited with status 3"),
        "leave": Ending(Cause.EXITED, reason="sys.exit(4)"),
        "be killed": Ending(Cause.KILLED, reason="its process was killed by SIGKILL"),
        "return NaN": Ending(Cause.RETURNED, {"score": math.nan}),
        "return another metric": Ending(Cause.RETURNED, {"loss": 1.0}),
    }
    if behaviour in ends:
        raise SimulatedEnd(ends[str(behaviour)], first)
    if behaviour == "report NaN":
        return [*first, {"score": math.nan}]
    assert isinstance(x, float)
    result = Ending(Cause.RETURNED, {"score": x, "seed": float(seed)})
    raise SimulatedEnd(result, [*first, {"score": 0.5}])
