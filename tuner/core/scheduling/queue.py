"""The trials that wait for a place, and whose turn it is when they are of unequal size."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable

from ..resources import Placement, Resources
from .cluster import ClusterState


class TrialQueue:
    """Places trials in their order: those that have run before first, then by number.

    One that does not fit at present is passed over by smaller ones, but it has its turn: as long
    as it waits, a worker that could hold it takes nobody else (see `ClusterState.reserve`). This is
    the backfilling of cluster schedulers, for attempts whose durations nobody knows.

    Args:
        wanted: What a trial asks for.
        seconds: How long a trial needs until its next checkpoint, and to its end; 0 if unknown.
        pays_for: Whether the budget pays for a step of a trial that asks for so much; one that it
            does not pay for is passed over.
    """

    def __init__(
        self,
        wanted: Callable[[int], Resources],
        seconds: Callable[[int], tuple[float, float]] = lambda _: (0.0, 0.0),
        pays_for: Callable[[Resources], bool] = lambda _: True,
    ) -> None:
        self._wanted = wanted
        self._seconds = seconds
        self._pays_for = pays_for
        self._queues: dict[Resources, list[tuple[bool, int]]] = {}
        self._blocked: Resources | None = None

    def __len__(self) -> int:
        return sum(map(len, self._queues.values()))

    @property
    def blocked(self) -> Resources | None:
        """What the first trial asks for that could be placed, but for others that run."""
        return self._blocked

    @property
    def sizes(self) -> Iterable[Resources]:
        """What trials are waiting for."""
        return self._queues

    @property
    def numbers(self) -> Iterable[int]:
        """The trials that are waiting, in no order."""
        return (number for queue in self._queues.values() for _, number in queue)

    def add(self, entries: Iterable[tuple[bool, int]]) -> None:
        """More trials wait: whether each is new, and its number."""
        for is_new, number in entries:
            heapq.heappush(self._queues.setdefault(self._wanted(number), []), (is_new, number))

    def sort_anew(self) -> None:
        """What trials ask for has changed."""
        queues, self._queues = self._queues, {}
        for queue in queues.values():
            self.add(queue)

    def place(self, places: ClusterState, at: float) -> tuple[int, Placement] | None:
        """The next trial that has a place now, and its place; None if none has."""
        self._blocked = None
        for wanted, queue in sorted(self._queues.items(), key=lambda each: each[1][0]):
            if not self._pays_for(wanted):
                continue
            number = queue[0][1]
            soon, whole = self._seconds(number)
            is_next = self._blocked is None
            placement = None
            for until in dict.fromkeys((at + whole, at + soon)):
                # Rather where it can come to its end; else where it gets any further.
                placement = placement or places.take(wanted, until=until, may_use_reserved=is_next)
            if placement is not None:
                heapq.heappop(queue)
                if not queue:
                    del self._queues[wanted]
                return number, placement
            if is_next and places.could_hold(wanted, at + soon):
                self._blocked = wanted
                if len(self._queues) > 1:
                    places.reserve(wanted, at + soon)
        if self._blocked is None:
            places.release()
        return None

    def validate(self, numbers: Iterable[int], places: ClusterState, at: float) -> None:
        """Check that exactly these trials wait, and that none of them need.

        Raises:
            AssertionError: They do not.
        """
        numbers = list(numbers)
        mine = sorted(number for queue in self._queues.values() for _, number in queue)
        if mine != sorted(numbers):
            raise AssertionError(f"{mine} wait in the queue, and {sorted(numbers)} by the books")
        for wanted, queue in self._queues.items():
            if stale := [number for _, number in queue if self._wanted(number) != wanted]:
                raise AssertionError(f"trials {stale} wait as if they wanted {wanted}")
            soon, _ = self._seconds(queue[0][1])
            if self._pays_for(wanted) and places.rooms(wanted, until=at + soon):
                raise AssertionError(f"a trial of {wanted} waits, and there is room")
