"""The wait for the study's answer to a report at a rung, so that a poor trial stops there.

The answer takes a write of the ledger and two ways over a network. Code that asks for it right
after its report would train one more step meanwhile. So it waits, but never long: a step may take
less time than the answer, and the master may be away.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from threading import Condition

MOST_SECONDS = 1.0
"""Longest wait; a master that takes longer is away, or its file system hangs."""

SHARE_OF_STEP = 0.5
"""Longest wait, as a share of the time since the report before, without the wait that followed it.
Two of three trials stop at a rung, and each saves a step or more by the wait, so it pays even if
every answer takes this long."""


class RungAnswer:
    """The study's answer to the latest report at a rung.

    The training's thread calls `reported` and `wait`; another thread delivers the answers. After an
    answer that did not come in time, `wait` returns at once until an answer has come.

    Args:
        rungs: The steps at which an answer comes.
        last_step: The last step that earlier attempts of the trial have reported.
        clock: Returns the seconds of a monotonic clock.

    Attributes:
        was_due: Whether a rung was reached.
        continued: The last step at a rung after which the trial may continue; 0 for none.
    """

    def __init__(
        self,
        rungs: Sequence[int],
        *,
        last_step: int = 0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._rungs = rungs
        self._last_step = last_step
        self._clock = clock
        self._reported_at = clock()
        self._due: int | None = None
        self._most_seconds = 0.0
        self._is_in_time = True
        self._is_stopped = False
        self._news = Condition()
        self.was_due = False
        self.continued = 0

    def reported(self, step: int) -> None:
        """Note a report by which the trial can be judged, before it is sent."""
        now = self._clock()
        if any(self._last_step < rung <= step for rung in self._rungs):
            self._due, self.was_due = step, True
            self._most_seconds = min(MOST_SECONDS, SHARE_OF_STEP * (now - self._reported_at))
        self._last_step = max(self._last_step, step)
        self._reported_at = now

    def wait(self) -> None:
        """Wait once for the answer that is due, if one is."""
        due, self._due = self._due, None
        if due is None or not self._is_in_time:
            return
        began = self._clock()
        with self._news:
            self._is_in_time = self._news.wait_for(
                lambda: self._is_stopped or self.continued >= due, self._most_seconds
            )
        self._reported_at += self._clock() - began  # else each wait would make the next one longer

    def stop(self) -> None:
        """Note that the trial is to stop."""
        with self._news:
            self._is_stopped = True
            self._news.notify_all()

    def continue_after(self, step: int) -> None:
        """Note that the trial may continue after its report at this step."""
        with self._news:
            self.continued = max(self.continued, step)
            self._is_in_time = True
            self._news.notify_all()
