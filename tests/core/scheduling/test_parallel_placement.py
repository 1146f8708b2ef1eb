"""Placement of attempts of several processes: all ranks or none, on different nodes."""

from __future__ import annotations

import heapq
import itertools
import random
import statistics
from collections.abc import Sequence
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine_checks import check_held
from hptune.core.resources import Capacity, Placement, Resources
from hptune.core.scheduling.cluster import ClusterState
from hptune.core.scheduling.queue import MOST_PASSING, TrialQueue

ONE, PAIR = Resources(), Resources(cpus=2, nodes=2)


def places(*cores: int, gangs: Sequence[str] = (), gpus: Sequence[int] = ()) -> ClusterState:
    """Return workers with these numbers of cores, each on a node of its own."""
    made = ClusterState()
    for number, count in enumerate(cores):
        capacity = Capacity(tuple(range(count)), tuple("ABCD"[: gpus[number] if gpus else 0]))
        gang = gangs[number] if gangs else ""
        made.add(f"w{number}", f"n{number}", capacity, gang=gang)
    return made


def workers_of(placement: Placement | None) -> tuple[str, ...]:
    return () if placement is None else placement.workers


def test_ranks_of_one_worker_are_near_each_other_and_divide_its_devices() -> None:
    made = ClusterState()
    near = ((0, 2, 4, 6), (1, 3, 5, 7))
    made.add("w", "n", Capacity(tuple(range(8)), ("A", "B"), memory_bytes=9, near=near))
    wanted = Resources(cpus=4, gpus=2, memory_bytes=5, processes=2)
    placement = made.take(wanted)
    assert placement is not None
    assert placement.ranks == (
        Placement("w", (0, 2), ("A",), 2),
        Placement("w", (4, 6), ("B",), 2),
    )
    assert made.take(wanted) is None
    made.give_back(placement)
    check_held(made, [])
    assert made.take(wanted) == placement


def test_workers_with_the_most_room_are_taken_so_that_the_most_pairs_fit() -> None:
    made = places(1, 1, 2)
    assert made.free_slots(PAIR, at_most=9) == 2
    assert [workers_of(made.take(PAIR)) for _ in range(3)] == [("w2", "w0"), ("w1", "w2"), ()]


def test_a_gang_that_is_too_small_is_not_preferred() -> None:
    gangs = ["", "a", "b", "b", "b"]
    triple = Resources(nodes=3)
    assert workers_of(places(1, 1, 1, 1, 1, gangs=gangs).take(PAIR)) == ("w2", "w3")
    assert workers_of(places(1, 1, 1, 1, 1, gangs=gangs).take(triple)) == ("w2", "w3", "w4")
    assert workers_of(places(1, 1, 1, 1, gangs=gangs).take(triple)) == ("w0", "w1", "w2")


def test_either_all_ranks_have_gpus_or_none() -> None:
    made = places(2, 2, 2, gpus=[1, 0, 1])
    first = made.take(PAIR)
    assert first is not None
    assert [(rank.worker, rank.gpus) for rank in first.ranks] == [("w0", ("A",)), ("w2", ("A",))]
    assert made.take(PAIR) is None, "one node without GPUs is left"
    assert workers_of(made.take(Resources(nodes=2, gpus=0))) == ("w1", "w0")


def test_small_trials_pass_a_pair_which_has_its_turn() -> None:
    made = places(1, 1, 1)
    sizes = [ONE, ONE, ONE, PAIR, *[ONE] * 9]
    queue = TrialQueue(sizes.__getitem__)
    queue.add((True, number) for number in range(len(sizes)))
    running = [queue.place(made, 0.0) for _ in range(3)]
    assert [placed and placed[0] for placed in running] == [0, 1, 2]
    for number in range(4, 4 + MOST_PASSING):
        assert (queue.place(made, 0.0), made.reserved) == (None, ())
        first_held, *rest = running
        assert first_held is not None
        made.give_back(first_held[1])
        running = [*rest, queue.place(made, 0.0)]
        assert [placed and placed[0] for placed in running][-1] == number
    assert queue.place(made, 0.0) is None
    reserved = set(made.reserved)
    assert len(reserved) == 2, "half of a pair is never enough"
    held = {placed[1].worker: placed[1] for placed in running if placed}
    (other,) = set(held) - reserved
    made.give_back(held[other])
    placed = queue.place(made, 0.0)
    assert placed is not None
    assert (placed[0], placed[1].worker) == (4 + MOST_PASSING, other)
    first, second = made.reserved
    made.give_back(held[first])
    assert queue.place(made, 0.0) is None, "no small trial takes what is kept for the pair"
    made.give_back(held[second])
    turn = queue.place(made, 0.0)
    assert turn is not None
    assert (turn[0], set(turn[1].workers), made.reserved) == (3, reserved, ())


def test_a_pair_takes_a_free_worker_beside_one_that_is_kept_for_it() -> None:
    made = places(1, 1, 1)
    held = [made.take(ONE) for _ in range(3)]
    assert made.reserve(PAIR)
    kept, free = made.reserved[0], ({"w0", "w1", "w2"} - set(made.reserved)).pop()
    for placement in held:
        if placement is not None and placement.worker in (kept, free):
            made.give_back(placement)
    assert made.take(PAIR) is None
    assert set(workers_of(made.take(PAIR, may_use_reserved=True))) == {kept, free}


@pytest.mark.parametrize("leaves", ["drain", "remove"])
def test_the_loss_of_one_reserved_worker_frees_the_others(leaves: str) -> None:
    made = places(1, 1)
    assert made.reserve(PAIR)
    assert made.take(ONE) is None
    getattr(made, leaves)("w0")
    assert workers_of(made.take(ONE)) == ("w1",)


def test_what_a_lost_worker_held_is_gone_and_the_rest_is_given_back() -> None:
    made = places(2, 2)
    placement = made.take(Resources(processes=4, nodes=2))
    assert placement is not None
    made.remove("w1")
    assert made.cpus_held == 2
    check_held(made, [placement])
    made.give_back(placement)
    check_held(made, [])
    assert made.cpus_held == 0


# --- any order ------------------------------------------------------------------------------

WANTED = st.sampled_from(
    [
        ONE,
        Resources(cpus=2, gpus=0),
        PAIR,
        Resources(processes=2, gpus=0, memory_bytes=3),
        Resources(processes=3, nodes=3, gpus=0),
        Resources(processes=4, nodes=2, memory_bytes=8),
        Resources(processes=2, nodes=2, gpus=2),
        Resources(cpus=4, gpus=4, processes=2, nodes=2),
    ]
)
WORKERS = st.lists(
    st.tuples(
        st.builds(
            Capacity,
            cpus=st.integers(0, 5).map(lambda cores: tuple(range(cores))),
            gpus=st.integers(0, 3).map(lambda gpus: tuple("ABC"[:gpus])),
            memory_bytes=st.sampled_from([0, 4, 9]),
        ),
        st.sampled_from(["n0", "n1", "n2", "n3"]),
        st.sampled_from(["", "j1", "j2"]),
        st.sampled_from([None, 50.0]),
    ),
    min_size=1,
    max_size=7,
)


@settings(deadline=None, max_examples=80)
@given(st.data(), WORKERS)
def test_all_ranks_are_held_or_none(
    data: st.DataObject, workers: list[tuple[Capacity, str, str, float | None]]
) -> None:
    made, node_of, ends = ClusterState(), dict[str, str](), dict[str, float]()
    for number, (capacity, node, gang, ends_at) in enumerate(workers):
        made.add(f"w{number}", node, capacity, ends_at=ends_at, gang=gang)
        node_of[f"w{number}"], ends[f"w{number}"] = node, ends_at or 1e9
    held: list[Placement] = []
    for _ in range(data.draw(st.integers(0, 25))):
        wanted, until = data.draw(WANTED), data.draw(st.sampled_from([0.0, 99.0]))
        free_slots = made.free_slots(wanted, at_most=100, until=until)
        match data.draw(st.sampled_from(["take", "take", "take", "give back", "remove", "keep"])):
            case "take":
                may = data.draw(st.booleans())
                reserved = made.reserved
                placement = made.take(wanted, until=until, may_use_reserved=may)
                assert placement is not None or free_slots == 0
                if placement is None:
                    continue
                held.append(placement)
                assert len(placement.ranks) == wanted.processes
                assert len(placement.workers) == wanted.nodes
                assert len({node_of[name] for name in placement.workers}) == wanted.nodes
                each = wanted.of_one_process
                cores = [len(rank.cpus) for rank in placement.ranks]
                assert min(cores) >= each.cpus
                assert len({*cores}) == 1
                assert wanted.takes_cores_of_gpus or max(cores) == each.cpus
                assert len({len(rank.gpus) for rank in placement.ranks}) == 1
                assert all(ends[name] >= until for name in placement.workers)
                assert may or not set(placement.workers) & set(reserved)
                if not may:
                    assert made.free_slots(wanted, at_most=100, until=until) < free_slots
            case "give back" if held:
                made.give_back(held.pop(data.draw(st.integers(0, len(held) - 1))))
            case "keep":
                could = made.could_hold(wanted, until)
                assert made.reserve(wanted, until) == could
                assert len(made.reserved) == could * wanted.nodes
            case "remove" if len([*made]) > 1:
                made.remove(data.draw(st.sampled_from(sorted(w for w in node_of if w in made))))
        check_held(made, held)
    made.release()
    for placement in held:
        made.give_back(placement)
    check_held(made, [])
    assert made.cpus_held == made.gpus_held == 0


# --- utilisation ----------------------------------------------------------------------------

SIZES = (ONE, Resources(cpus=2), Resources(processes=2), PAIR, Resources(processes=4, nodes=2))


class Schedule(NamedTuple):
    """How trials were placed.

    Attributes:
        used: The share of the cores that is held while trials wait.
        starts: When each trial starts, in the order of their starts.
        seconds: When the last one ends.
    """

    used: float
    starts: dict[int, float]
    seconds: float


def schedule(nodes: int, cores: int, trials: Sequence[tuple[Resources, int]]) -> Schedule:
    """Place trials that all wait from the beginning.

    Args:
        nodes: How many nodes there are.
        cores: The cores of each.
        trials: What each trial asks for, and how long it takes.
    """
    made = places(*[cores] * nodes)
    queue = TrialQueue(lambda number: trials[number][0])
    queue.add((True, number) for number in range(len(trials)))
    at = held = 0.0
    running: list[tuple[float, int, Placement]] = []
    starts: dict[int, float] = {}
    while True:
        while (placed := queue.place(made, at)) is not None:
            number, placement = placed
            starts[number] = at
            heapq.heappush(running, (at + trials[number][1], number, placement))
        if not [*queue.numbers]:
            seconds = max(each[0] for each in running)
            return Schedule(held / ((at or 1) * nodes * cores), starts, seconds)
        assert running, "trials wait, and nothing runs"
        ends_at = running[0][0]
        held += made.cpus_held * (ends_at - at)
        at = ends_at
        while running and running[0][0] == at:
            made.give_back(heapq.heappop(running)[2])


@pytest.mark.parametrize("large", [Resources(nodes=3, cpus=6), Resources(processes=2)])
def test_a_large_trial_does_not_starve_among_small_ones(large: Resources) -> None:
    small = [(ONE, 2 + number % 5) for number in range(200)]
    used, starts, _ = schedule(3, 2, [*small[:6], (large, 4), *small])
    before = [number for number in starts if starts[number] < starts[6]]
    if large.nodes == 3:  # all nodes are reserved for it then
        assert len(before) == 6 + MOST_PASSING
    assert starts[6] <= 6 + 6, "no later than the longest of those that passed it"
    assert used > 0.95


@pytest.mark.parametrize(("nodes", "cores", "repeats"), [(3, 2, 25), (4, 4, 12)])
def test_cores_are_used_nearly_as_well_as_in_the_best_order(
    nodes: int, cores: int, repeats: int
) -> None:
    draw = random.Random(1)
    used, best = [], []
    for _ in range(3):
        trials = [(draw.choice(SIZES), draw.randint(1, 5)) for _ in range(4)]
        used.append(schedule(nodes, cores, trials * repeats).used)
        orders = itertools.permutations(trials)
        best.append(max(schedule(nodes, cores, [*order] * repeats).used for order in orders))
    assert statistics.mean(used) > 0.95 * statistics.mean(best)


@pytest.mark.parametrize(("nodes", "cores"), [(2, 2), (3, 2)])
def test_few_trials_end_nearly_as_early_as_in_the_best_order(nodes: int, cores: int) -> None:
    # The best order knows how long each trial takes, which is unknown when one is placed.
    draw = random.Random(1)
    ratios = []
    for _ in range(10):
        trials = [(draw.choice(SIZES), draw.randint(1, 10)) for _ in range(5)]
        orders = itertools.permutations(trials)
        best = min(schedule(nodes, cores, order).seconds for order in orders)
        ratios.append(best / schedule(nodes, cores, trials).seconds)
    assert statistics.mean(ratios) > 0.95


def test_a_program_holds_no_part_of_a_trial_of_several_nodes() -> None:
    made = places(2)
    made.add("program", "n9", Capacity((0, 1)), takes_one=True)
    assert (made.take(PAIR), made.free_slots(PAIR), made.could_hold(PAIR)) == (None, 0, False)
    assert made.take(ONE) is not None
    assert made.free_slots(ONE, at_most=9) == 2, "one more on the worker, one in the program"
