"""Waiting for enough workers before the first trial begins."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from ..core.clock import Clock
from ..core.messages import Event, WorkerJoined, WorkerLeaving, WorkerLeft


class WorkersAwaited:
    """Keeps back the news of workers until there are enough of them; all else passes.

    So nothing is placed before, while the study hears requests to stop as ever.

    Args:
        least: How many workers are enough, as things stand; it may become fewer.
        clock: Stamps the news when they are passed on.
    """

    def __init__(self, least: Callable[[], int], clock: Clock) -> None:
        self._least = least
        self._clock = clock
        self._waiting: dict[str, WorkerJoined] = {}
        self._is_over = False

    def __call__(self, events: Sequence[Event]) -> list[Event]:
        """The events that the study may hear of now."""
        if self._is_over:
            return list(events)
        passed: list[Event] = []
        for event in events:
            if isinstance(event, WorkerJoined):
                self._waiting[event.worker] = event
            elif isinstance(event, WorkerLeft | WorkerLeaving):
                self._waiting.pop(event.worker, None)
            else:
                passed.append(event)
        if len(self._waiting) >= self._least():
            self._is_over = True
            now = self._clock.now()
            passed += [replace(joined, at=now) for joined in self._waiting.values()]
        return passed
