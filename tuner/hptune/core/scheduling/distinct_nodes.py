"""The choice of workers on different nodes, for an attempt whose processes need several."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from ..resources import Resources
from .worker import WorkerState

Free = tuple[int, ...]
"""How much is free on a worker; more is better."""


def choose(
    able: Iterable[WorkerState], wanted: Resources, free: Callable[[WorkerState], Free]
) -> list[WorkerState]:
    """Return as many workers as an attempt needs nodes, each on another node; empty if too few.

    They are of one gang if one has enough nodes, else any, those with the most free first.

    Args:
        able: The workers to choose from.
        wanted: What the attempt asks for.
        free: Returns how much is free on a worker.
    """
    for alike in _alike(able, wanted):
        gangs = dict[str, list[WorkerState]]()
        for each in alike:
            if each.gang:
                gangs.setdefault(each.gang, []).append(each)
        found = [_best(gang, wanted.nodes, free) for gang in gangs.values()]
        found = [each for each in found if each] or [_best(alike, wanted.nodes, free)]
        chosen = max(found, key=lambda each: [free(worker) for worker in each])
        if chosen:
            return chosen
    return []


def free_slots(able: Iterable[WorkerState], wanted: Resources) -> int:
    """Return how many attempts that need several nodes fit at most.

    Gangs are preferred by `choose`, so that a few of these attempts may have to wait.
    """
    share = wanted.of_one_node
    found = 0
    for alike in _alike(able, wanted):
        on_node = Counter[str]()
        for each in alike:
            on_node[each.node] += each.free_slots(share)
        found += _groups([*on_node.values()], wanted.nodes)
    return found


def _alike(able: Iterable[WorkerState], wanted: Resources) -> list[list[WorkerState]]:
    """Divide workers so that the processes of an attempt hold GPUs on all of them or on none.

    A program, which takes one attempt, has one process.
    """
    able = [each for each in able if not each.takes_one]
    if wanted.gpus is not None:
        return [able]
    alike: tuple[list[WorkerState], list[WorkerState]] = [], []
    for each in able:
        alike[0 if each.capacity.gpus else 1].append(each)
    return [each for each in alike if each]


def _best(
    workers: Iterable[WorkerState], count: int, free: Callable[[WorkerState], Free]
) -> list[WorkerState]:
    """Return the workers with the most free, one on each node; empty if there are too few nodes."""
    on_node = dict[str, WorkerState]()
    for worker in workers:
        known = on_node.setdefault(worker.node, worker)
        if known is not worker and free(worker) > free(known):
            on_node[worker.node] = worker
    if len(on_node) < count:
        return []
    return sorted(on_node.values(), key=free, reverse=True)[:count]


def _groups(free_slots: Sequence[int], size: int) -> int:
    """Return how many groups of slots there are, each with slots on that many different nodes.

    >>> _groups([3, 1, 1], 2), _groups([2, 2, 2], 2)
    (2, 3)
    """
    most = sum(free_slots)
    while (fitting := sum(min(most, slot) for slot in free_slots) // size) < most:
        most = fitting
    return most
