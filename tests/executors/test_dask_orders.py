"""Orders of a study to its Dask workers, on a client that answers as the test needs."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from attempt_orders import BRIEF
from hptune.core.attempt import AttemptId, Halt
from hptune.executors.dask_client import StudyCalls
from hptune.executors.dask_state import DaskState, Tell
from hptune.worker.dask.plugin import StudyPlugin
from hptune.worker.orders import StopOrder


def test_an_order_to_stop_that_does_not_arrive_is_sent_again() -> None:
    answers: list[Any] = [TimeoutError("no answer"), {}, {"w": None}]
    told: list[object] = []

    async def run(_function: object, _name: str, order: object, **_: object) -> Any:
        told.append(order)
        if isinstance(answer := answers.pop(0), Exception):
            raise answer
        return answer

    def deliver(event: object, order: StopOrder) -> None:
        assert event == state.tell
        calls.carry_out(Tell("w", order))

    loop = SimpleNamespace(
        add_callback=lambda function, *given: asyncio.run(function(*given)),
        call_later=lambda _seconds, function, *given: later.append(lambda: function(*given)),
    )
    later: list[Any] = []
    client = SimpleNamespace(run=run, loop=loop, scheduler_comm=None)
    plugin = StudyPlugin(name="study", source=BRIEF.source, fork_server_address=None, cores={})
    state = DaskState()
    calls = StudyCalls(client, plugin, state, deliver)
    order = StopOrder(AttemptId(3, 1), Halt.PRUNE)
    deliver(state.tell, order)
    while later:
        later.pop()()
    assert told == [order] * 3
    assert not answers
