"""Nodes on which attempts are lost: what their study remembers, also for its next master."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from hptune.core.attempt import Attempt, Cause, Ending, Outcome
from hptune.core.engine.engine import Engine
from hptune.core.messages import FinishReason, NodeExcluded
from hptune.core.node_failures import MAX_NODE_FAILURES
from hptune.core.trial import TrialState
from hptune.storage.ledger import Ledger
from hptune.worker.orders import AttemptOrder
from masters import (
    MasterKilled,
    Recorder,
    SimulatedStudy,
    attempts_of,
    new_ledger,
    old_ledger,
)
from simulated import SimulatedExecutor
from simulated_parts import SimulatedWorker

WORKERS = [
    SimulatedWorker(name="bad", cores=2, node="node-bad"),
    SimulatedWorker(name="good", joins_seconds=0.5),
]
NODE = "node-bad"


class LosesAttempts(SimulatedExecutor):
    """The worker "bad" loses what it runs, though it stays."""

    def start(self, order: AttemptOrder) -> None:
        super().start(order)
        if order.placement.worker == "bad":
            run = self._runs[order.attempt]
            self._after(0.25, self._fail, run)

    def _fail(self, run: object) -> None:
        run = next((each for each in self._runs.values() if each is run), None)
        if run is not None:
            self._end(run, Ending(Cause.WORKER_LOST, reason="its disk failed"))


def study(*workers: SimulatedWorker, trials: int = 12) -> SimulatedStudy:
    made = SimulatedStudy(trials=trials, workers=workers or WORKERS)
    made.executor = LosesAttempts
    return made


def excluded(ledger: Ledger) -> list[NodeExcluded]:
    return [each for each in ledger.events() if isinstance(each, NodeExcluded)]


def tried_on_bad(engine: Engine, ledger: Ledger) -> list[Attempt]:
    return [each for each in attempts_of(engine, [*ledger.events()]) if each.node == NODE]


@contextmanager
def killed_after_an_exclusion(path: Path) -> Iterator[tuple[Ledger, Engine, int]]:
    """Return the ledger of a study whose master was killed, and how much was tried on the node."""
    with new_ledger(path) as ledger, pytest.raises(MasterKilled):
        study().run(Recorder(ledger, die_after=14), Engine())
    with old_ledger(path) as (ledger, engine):
        (event,) = excluded(ledger)
        assert engine.snapshot.unfit_nodes.keys() == {event.node}
        yield ledger, engine, len(tried_on_bad(engine, ledger))


def test_a_node_that_loses_attempts_is_excluded_and_no_trial_fails(tmp_path: Path) -> None:
    with new_ledger(tmp_path / "study") as ledger:
        engine = Engine()
        assert study().run(Recorder(ledger), engine).finish_reason is FinishReason.DONE
        lost = [each for each in tried_on_bad(engine, ledger) if each.outcome is Outcome.LOST]
        assert len(excluded(ledger)) == 1
        assert MAX_NODE_FAILURES <= len(lost) <= 2 * MAX_NODE_FAILURES, "two at a time"
        assert {each.state for each in engine.trials} == {TrialState.COMPLETE}


def test_the_next_master_tries_nothing_there(tmp_path: Path) -> None:
    with killed_after_an_exclusion(tmp_path / "study") as (ledger, engine, before):
        finish = study().run(Recorder(ledger), engine)
        assert finish.finish_reason is FinishReason.DONE
        assert len(tried_on_bad(engine, ledger)) == before
        assert len(excluded(ledger)) == 1


def test_a_node_is_used_again_once_a_worker_is_started_there(tmp_path: Path) -> None:
    repaired = SimulatedWorker(name="new", node=NODE, joins_seconds=0.5)
    with killed_after_an_exclusion(tmp_path / "study") as (ledger, engine, before):
        study(*WORKERS, repaired).run(Recorder(ledger), engine)
        on = Counter(each.placement.worker[:3] for each in tried_on_bad(engine, ledger))
        assert on["bad"] == before
        assert on["new"] > 0
        assert engine.snapshot.unfit_nodes == {}
