"""A receiver of events that blocks, as a file system or a connection may."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from attempt_orders import ATTEMPT, order_of
from hptune.core.attempt import Halt
from hptune.core.messages import AttemptEnded, Event, Reported
from hptune.worker.orders import AttemptOrder
from hptune.worker.runner import AttemptRunner
from real_runs import wait_for

MODEL = """
import pathlib, time

def objective(hp, trial):
    for step in range(1, 4):
        trial.report(step, value=1.0)
    while not trial.should_stop():
        time.sleep(0.01)
    pathlib.Path({notified!r}).touch()
    return 1.0
"""


class Receiver:
    """A listener that blocks at the first report until it is released."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.is_blocked = threading.Event()
        self.may_continue = threading.Event()

    def __call__(self, event: Event) -> None:
        """Note the event."""
        self.events.append(event)
        if isinstance(event, Reported) and not self.is_blocked.is_set():
            self.is_blocked.set()
            self.may_continue.wait(60)


def order(folder: Path, notified: Path) -> AttemptOrder:
    file = folder / "model.py"
    file.write_text(MODEL.format(notified=str(notified)))
    return order_of(file)


@pytest.mark.parametrize("closes", [False, True])
def test_an_order_to_stop_does_not_wait_for_the_receiver(tmp_path: Path, closes: bool) -> None:
    notified, receiver = tmp_path / "notified", Receiver()
    given = order(tmp_path, notified)
    runner = AttemptRunner(given.brief.source, receiver)
    try:
        runner.start(given)
        assert receiver.is_blocked.wait(60)
        stopping = threading.Thread(target=runner.stop, args=(ATTEMPT, Halt.RELEASE), daemon=True)
        stopping.start()
        stopping.join(60)
        assert not stopping.is_alive()
        wait_for(notified.exists, "the attempt to be notified")
        if closes:
            closing = threading.Thread(target=runner.close)
            closing.start()
        receiver.may_continue.set()
        if closes:
            closing.join(60)
            assert not closing.is_alive()
            return
        wait_for(lambda: any(isinstance(each, AttemptEnded) for each in receiver.events), "its end")
    finally:
        receiver.may_continue.set()
        runner.close()
    steps = [each.report.step for each in receiver.events if isinstance(each, Reported)]
    assert steps == [1, 2, 3]
    assert isinstance(receiver.events[-1], AttemptEnded)
