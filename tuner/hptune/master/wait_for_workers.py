"""Wait for enough workers before the first trial begins."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from ..core.clock import Clock
from ..core.messages import Event, WorkerJoined, WorkerLeaving, WorkerLeft


class WorkerGate:
    """Filter that holds back `WorkerJoined` events until there are enough workers.

    No trial is placed before that. All other events pass, so that requests to stop are observed.

    Args:
        required: Returns how many workers are enough now; the number may decrease.
        clock: Stamps the events when they are passed on.
    """

    def __init__(self, required: Callable[[], int], clock: Clock) -> None:
        self._required = required
        self._clock = clock
        self._waiting: dict[str, WorkerJoined] = {}
        self._is_open = False

    def __call__(self, events: Sequence[Event]) -> list[Event]:
        """Return the events that the study may observe now."""
        if self._is_open:
            return list(events)
        passed: list[Event] = []
        for event in events:
            if isinstance(event, WorkerJoined):
                self._waiting[event.worker] = event
            elif isinstance(event, WorkerLeft | WorkerLeaving):
                self._waiting.pop(event.worker, None)
            else:
                passed.append(event)
        if len(self._waiting) >= self._required():
            self._is_open = True
            now = self._clock.now()
            passed += [replace(joined, at=now) for joined in self._waiting.values()]
        return passed
