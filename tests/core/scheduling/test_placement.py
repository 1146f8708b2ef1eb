"""Placement of trials on cores and devices, none of which is held twice."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine_checks import check_held
from hptune.core.resources import Amount, Capacity, Placement, Resources
from hptune.core.scheduling.cluster import ClusterState
from hptune.core.scheduling.queue import MOST_PASSING, TrialQueue

ONE = Resources()
WANTED = st.builds(
    Resources,
    cpus=st.sampled_from([0.25, 1 / 3, 0.5, 1, 2, 3]),
    gpus=st.sampled_from([None, 0, 0.3, 0.5, 1, 2]),
    memory_bytes=st.sampled_from([0, 3]),
    gpu_memory_bytes=st.sampled_from([0, 0, 4, 20]),
    takes_cores_of_gpus=st.booleans(),
)
CAPACITIES = st.builds(
    Capacity,
    cpus=st.integers(0, 6).map(lambda cores: tuple(range(cores))),
    gpus=st.integers(0, 3).map(lambda gpus: tuple("ABC"[:gpus])),
    memory_bytes=st.sampled_from([0, 2, 7]),
    gpu_memory_bytes=st.sampled_from([0, 16]),
    near=st.sampled_from([(), ((0, 2, 4), (1, 3, 5))]),
    gpus_near=st.sampled_from([(), (("B", "A"), ("C",)), ((), ("A",))]),
)


def places(*capacities: Capacity, spread: tuple[Amount, ...] = ()) -> ClusterState:
    made = ClusterState(spread=spread)
    for number, capacity in enumerate(capacities):
        made.add(f"w{number}", f"n{number}", capacity)
    return made


def take(made: ClusterState, wanted: Resources = ONE) -> Placement:
    placement = made.take(wanted)
    assert placement is not None
    return placement


def test_the_worker_that_joined_first_is_filled_first() -> None:
    made = places(Capacity((0, 1)), Capacity((0,)), Capacity((0,)))
    taken = [take(made) for _ in range(4)]
    assert [placement.worker for placement in taken] == ["w0", "w0", "w1", "w2"]
    for placement in (taken[3], taken[2], taken[1]):  # the last one first
        made.give_back(placement)
    assert [take(made).worker for _ in range(3)] == ["w0", "w1", "w2"]


def test_cores_and_devices_are_held_once() -> None:
    made, wanted = places(Capacity((4, 5, 6, 7), ("A", "B"))), Resources(cpus=2, gpus=1)
    assert take(made, wanted) == Placement("w0", (4, 5), ("A",))
    assert take(made, wanted) == Placement("w0", (6, 7), ("B",))
    assert made.take(wanted) is None


def test_cores_that_are_not_asked_for_are_divided_by_the_gpus() -> None:
    made = places(Capacity(tuple(range(16)), ("A", "B"), gpu_memory_bytes=10))
    small = take(made, Resources(cpus=1, gpus=0))
    first, second = take(made), take(made)
    assert [len(small.cpus), len(first.cpus), len(second.cpus)] == [1, 7, 8]
    assert made.cpus_held == 16
    for placement in (small, first, second):
        made.give_back(placement)
    shared = take(made, Resources(gpus=0.25))
    assert len(shared.cpus) == 2
    assert len(take(made, Resources(cpus=1, gpus=1)).cpus) == 1, "as asked for"


@pytest.mark.parametrize("sharing", range(1, 9))
def test_trials_that_share_a_gpu_equally_get_as_many_cores(sharing: int) -> None:
    made = places(Capacity(tuple(range(4 * sharing)), ("A",)))
    wanted = Resources(gpus=1 / sharing)
    assert [len(take(made, wanted).cpus) for _ in range(sharing)] == [4] * sharing


def test_ranks_have_equal_parts_of_the_cores_of_their_gpus() -> None:
    made = places(Capacity(tuple(range(7)), ("A", "B", "C")))
    assert [len(rank.cpus) for rank in take(made, Resources(processes=2)).ranks] == [2, 2]


def test_an_attempt_that_shares_its_gpu_later_leaves_cores_to_others() -> None:
    made = places(Capacity(tuple(range(8)), ("A",), gpu_memory_bytes=100))
    alone = take(made)
    assert len(alone.cpus) == 8
    after = made.resize(alone, Resources(gpu_memory_bytes=25))
    assert (len(after.cpus), after.gpu_share) == (2, 0.25)
    others = [take(made, Resources(gpu_memory_bytes=25)) for _ in range(3)]
    assert [len(each.cpus) for each in others] == [2, 2, 2]
    assert not {*others[0].cpus} & {*others[1].cpus, *after.cpus}


def test_an_attempt_holds_no_more_cores_than_it_asks_for_once_others_need_them() -> None:
    made = places(Capacity(tuple(range(8)), ("A",), gpu_memory_bytes=100))
    alone = take(made)
    after = made.resize(alone, Resources(cpus=1, gpu_memory_bytes=25))
    assert (len(after.cpus), after.gpu_share) == (1, 0.25)
    assert made.free_slots(Resources(cpus=1, gpus=0), at_most=9) == 7


def test_by_default_a_trial_takes_a_gpu_if_the_worker_has_one() -> None:
    made = places(Capacity((0, 1, 2), ("A",)), Capacity((0,)))
    assert take(made).gpus == ("A",)
    assert take(made) == Placement("w1", (0,))
    assert made.take(ONE) is None


def test_a_part_of_a_gpu_is_never_of_two() -> None:
    made, most = places(Capacity((0, 1, 2, 3), ("A", "B"))), Resources(gpus=0.6)
    assert [take(made, most).gpus for _ in range(2)] == [("A",), ("B",)]
    assert made.take(most) is None
    assert take(made, Resources(gpus=0.4)).gpus == ("A",)


def test_parts_share_a_device_so_that_whole_ones_stay_whole() -> None:
    made = places(Capacity((0, 1, 2), ("A", "B")))
    half = take(made, Resources(gpus=0.5))
    assert (half.gpus, half.gpu_share) == (("A",), 0.5)
    assert take(made, Resources(gpus=1)).gpus == ("B",)
    assert take(made, Resources(gpus=0.5)).gpus == ("A",)


def test_where_parts_are_spread_no_device_idles_beside_a_shared_one() -> None:
    made = ClusterState(spread=(Amount.CPUS, Amount.GPUS))
    for number in range(2):
        capacity = Capacity((0, 1, 2, 3), ("A", "B"), gpu_memory_bytes=100)
        made.add(f"w{number}", "n", capacity)
    wanted = Resources(cpus=0.25, gpu_memory_bytes=20)
    taken = [take(made, wanted) for _ in range(8)]
    devices = [("w0", "A"), ("w0", "B"), ("w1", "A"), ("w1", "B")]
    assert [(each.worker, *each.gpus) for each in taken] == [*devices, *devices]
    assert [each.cpus for each in taken] == [(0,), (1,), (0,), (1,), (2,), (3,), (2,), (3,)]
    made.give_back(taken[2])
    made.give_back(taken[6])
    assert (take(made, wanted).worker, take(made, wanted).worker) == ("w1", "w1")


def test_a_worker_without_a_gpu_is_spread_over_by_its_cores() -> None:
    made = ClusterState(spread=(Amount.CPUS, Amount.GPUS))
    for number in range(2):
        made.add(f"w{number}", "n", Capacity((0, 1)))
    taken = [take(made, Resources(cpus=0.5, gpu_memory_bytes=20)) for _ in range(8)]
    places_of = [("w0", (0,)), ("w0", (1,)), ("w1", (0,)), ("w1", (1,))]
    assert [(each.worker, each.cpus) for each in taken] == [*places_of, *places_of]


def test_gpu_memory_is_given_as_a_part_of_a_gpu() -> None:
    made = places(Capacity((0, 1, 2, 3), ("A",), gpu_memory_bytes=100))
    wanted = Resources(gpu_memory_bytes=40)
    first = take(made, wanted)
    assert (first.gpus, first.gpu_share, first.gpu_memory_bytes) == (("A",), 0.4, 40)
    assert made.free_slots(wanted, at_most=9) == 1
    unknown = places(Capacity((0, 1), ("A",)))
    assert take(unknown, wanted).gpu_share == 1.0


def test_the_cores_of_a_trial_are_near_each_other_if_possible() -> None:
    made = places(Capacity((0, 1, 2, 3), near=((0, 2), (1, 3))))
    assert take(made, Resources(cpus=2)).cpus == (0, 2)
    made = places(Capacity((0, 1, 2, 3), near=((0, 2), (1, 3))))
    assert take(made).cpus == (0,)
    assert take(made, Resources(cpus=2)).cpus == (1, 3)
    assert take(made).cpus == (2,)


LUMI = Capacity(
    # The first core of each eight is the system's.
    tuple(core for core in range(64) if core % 8),
    tuple("01234567"),
    near=tuple(tuple(c for c in range(16 * n, 16 * n + 16) if c % 8) for n in range(4)),
    gpus_near=(("4", "5"), ("2", "3"), ("6", "7"), ("0", "1")),
)
"""A node whose GPUs are in another order than the NUMA nodes that they are near."""

FIRST_CORES = {"0": 49, "1": 57, "2": 17, "3": 25, "4": 1, "5": 9, "6": 33, "7": 41}


def test_a_trial_gets_the_cores_near_its_gpu() -> None:
    made = places(LUMI)
    taken = [take(made, Resources(cpus=7, gpus=1)) for _ in range(8)]
    assert {each.gpus[0]: each.cpus[0] for each in taken} == FIRST_CORES
    assert all(each.cpus[-1] == each.cpus[0] + 6 for each in taken)
    made.give_back(taken[2])
    assert take(made, Resources(cpus=7, gpus=1)) == taken[2]


def test_each_process_of_a_trial_gets_the_cores_near_its_gpu() -> None:
    (rank, *others) = take(places(LUMI), Resources(processes=8, cpus=56, gpus=8)).ranks
    assert {each.gpus[0]: each.cpus[0] for each in (rank, *others)} == FIRST_CORES


def test_where_too_few_cores_are_near_others_are_taken() -> None:
    made = places(LUMI)
    cores = take(made, Resources(cpus=20, gpus=1)).cpus
    assert set(LUMI.near[3]) < set(cores)
    assert take(made, Resources(cpus=7, gpus=1)).gpus == ("1",)
    assert take(made, Resources(cpus=7, gpus=0)).cpus[0] == 17


@pytest.mark.parametrize(
    ("wanted", "free_slots"),
    [
        (Resources(), 8),
        (Resources(cpus=3), 2),
        (Resources(cpus=0.5), 16),
        (Resources(gpus=1), 2),
        (Resources(gpus=0.5), 4),
        (Resources(gpus=0, memory_bytes=3), 3),
        (Resources(memory_bytes=11), 0),
        (Resources(cpus=9), 0),
        (Resources(gpus=3), 0),
    ],
)
def test_the_scarcest_thing_decides(wanted: Resources, free_slots: int) -> None:
    gpus = ("A", "B") if wanted.gpus else ()
    made = places(Capacity(tuple(range(8)), gpus, memory_bytes=10))
    assert made.free_slots(wanted, at_most=100) == free_slots
    assert made.could_hold(wanted) == (free_slots > 0)


def test_unknown_memory_is_not_counted() -> None:
    assert places(Capacity((0, 1))).free_slots(Resources(memory_bytes=5), at_most=9) == 2


def test_there_is_no_room_if_attempts_use_more_memory_than_there_is() -> None:
    made = ClusterState(kept_back=0.05)
    made.add("w", "n", Capacity((0, 1), (), memory_bytes=100))
    after = made.resize(take(made), Resources(memory_bytes=120))
    assert made.reserve(ONE)
    assert made.take(ONE, may_use_reserved=True) is None
    assert made.free_slots(ONE) == 0
    made.give_back(after)
    assert made.take(ONE, may_use_reserved=True) is not None


def test_what_was_held_on_a_lost_worker_is_gone() -> None:
    made = places(Capacity((0, 1)))
    placement = take(made)
    made.remove("w0")
    made.give_back(placement)
    assert (made.cpus, made.cpus_held, made.take(ONE)) == (0, 0, None)
    check_held(made, [])


def test_parts_held_on_lost_workers_leave_nothing_behind() -> None:
    made = places()
    for number in range(30):
        made.add(f"w{number}", "n", Capacity((0,)))
        for _ in range(7):
            take(made, Resources(1 / 7, 0))
        made.remove(f"w{number}")
    assert made.cpus_held == pytest.approx(0.0, abs=1e-9)


def test_a_name_that_comes_back_is_another_worker() -> None:
    made = places(Capacity((0,)), Capacity((0,)))
    made.remove("w0")
    made.add("w0", "elsewhere", Capacity((0,)))
    assert made.free_slots(ONE, at_most=9) == 2
    assert [take(made).worker for _ in range(2)] == ["w1", "w0"]
    assert made.node("w0") == "elsewhere"


def test_counting_stops_at_the_limit() -> None:
    assert places(Capacity((0, 1, 2))).free_slots(ONE, at_most=2) == 2


def test_thousands_of_workers_may_come_and_go() -> None:
    made = places(Capacity((0, 1)))
    held = [take(made)]
    for number in range(1, 2_000):
        made.add(f"w{number}", "n", Capacity((0, 1)))
        if number > 3:
            made.remove(f"w{number - 3}")
            held = [each for each in held if each.worker in made]
    check_held(made, held)
    assert made.free_slots(ONE, at_most=99) == 2 * len([*made]) - 1


def test_a_worker_that_ends_too_early_is_passed_over() -> None:
    made = ClusterState()
    made.add("short", "n", Capacity((0,)), ends_at=100.0)
    made.add("long", "n", Capacity((0,)), ends_at=500.0)
    made.add("endless", "n", Capacity((0,)))
    assert [made.take(ONE, until=until) for until in (200.0, 50.0, 900.0)] == [
        Placement("long", (0,)),
        Placement("short", (0,)),
        Placement("endless", (0,)),
    ]


# --- whose turn it is -----------------------------------------------------------------------

BIG, SMALL = Resources(cpus=4), Resources(cpus=1)


def waiting(sizes: list[Resources], seconds: tuple[float, float] = (0.0, 0.0)) -> TrialQueue:
    made = TrialQueue(lambda number: sizes[number], lambda _: seconds)
    made.add((True, number) for number in range(len(sizes)))
    return made


def test_a_large_trial_is_passed_by_some_and_has_its_turn() -> None:
    made, queue = (
        places(Capacity((0, 1, 2, 3)), Capacity((0,))),
        waiting([SMALL, BIG, *[SMALL] * 9]),
    )
    first = queue.place(made, 0.0)
    assert first is not None
    assert (first[0], first[1].worker) == (0, "w0")
    passing = [queue.place(made, 0.0) for _ in range(MOST_PASSING)]
    assert [placed and placed[0] for placed in passing] == [2, 3, 4, 5]
    reserved = made.reserved
    assert reserved == ()
    assert queue.place(made, 0.0) is None
    assert (queue.blocked, made.reserved) == (BIG, ("w0",))
    *others, last = [placed[1] for placed in passing if placed]
    assert last.worker == "w1"
    made.give_back(last)
    again = queue.place(made, 0.0)
    assert again is not None
    assert (again[0], again[1].worker) == (6, "w1"), "the others still have the other worker"
    for placement in (first[1], *others[:-1]):
        made.give_back(placement)
        assert queue.place(made, 0.0) is None, "w0 is kept for the large one"
    made.give_back(others[-1])
    turn = queue.place(made, 0.0)
    assert turn is not None
    assert (turn[0], turn[1].worker) == (1, "w0")
    assert made.reserved == ()


def test_a_trial_that_no_worker_could_hold_delays_no_other() -> None:
    made, queue = places(Capacity((0, 1))), waiting([BIG, SMALL, SMALL])
    placed = [queue.place(made, 0.0) for _ in range(3)]
    assert [each and each[0] for each in placed] == [1, 2, None]
    assert (queue.blocked, made.reserved) == (None, ())


def test_a_worker_is_not_reserved_any_more_for_a_trial_that_was_stopped() -> None:
    """Also if another trial must wait now."""
    made = places(Capacity((0, 1, 2, 3)))
    queue = waiting([SMALL, BIG, *[SMALL] * 9, Resources(gpus=1)])
    queue.remove(11)
    held = list[Placement]()

    def place_all() -> None:
        while (placed := queue.place(made, 0.0)) is not None:
            held.append(placed[1])

    place_all()
    made.give_back(held.pop(0))
    place_all()
    assert (queue.blocked, made.reserved) == (BIG, ("w0",))
    made.add("w1", "n1", Capacity((0,), ("A",)))
    made.take(Resources(gpus=1))
    queue.add([(False, 11)])
    queue.remove(1)
    while held:
        made.give_back(held.pop())
    place_all()
    assert (queue.blocked, len(held)) == (Resources(gpus=1), 4)


def test_a_worker_that_ends_too_soon_is_not_reserved_any_more() -> None:
    made = ClusterState()
    made.add("short", "n1", Capacity(cpus=tuple(range(5))), ends_at=100.0)
    made.add("long", "n2", Capacity(cpus=tuple(range(4))))
    assert made.reserve(BIG, until=50.0)
    assert made.reserved == ("short",)
    assert made.reserve(BIG, until=500.0)
    assert made.reserved == ("long",)


def test_a_reserved_worker_that_leaves_is_reserved_no_more() -> None:
    large, number = Resources(cpus=6), 2 + MOST_PASSING
    made, queue = places(Capacity(tuple(range(6)))), waiting([SMALL, large, *[SMALL] * number])
    while queue.place(made, 0.0) is not None:
        pass
    reserved = made.reserved
    assert reserved == ("w0",)
    made.remove("w0")
    made.add("w1", "n", Capacity((0,)))
    placed = queue.place(made, 0.0)
    assert placed is not None
    assert (placed[0], made.reserved) == (number, ())


def test_a_trial_goes_where_it_can_end_or_else_take_a_step() -> None:
    made = ClusterState()
    made.add("short", "n", Capacity((0,)), ends_at=150.0)
    made.add("long", "n", Capacity((0,)), ends_at=500.0)
    queue = waiting([SMALL] * 3, seconds=(20.0, 300.0))
    placed = [queue.place(made, 100.0) for _ in range(2)]
    assert [each and each[1].worker for each in placed] == ["long", "short"]
    made.give_back(Placement("short", (0,)))
    assert queue.place(made, 140.0) is None, "it would not reach its next checkpoint"


# --- any order ------------------------------------------------------------------------------


@settings(deadline=None)
@given(st.data(), st.lists(CAPACITIES, min_size=1, max_size=6))
def test_nothing_is_held_twice_or_lost(data: st.DataObject, capacities: list[Capacity]) -> None:
    made = places(*capacities, spread=data.draw(st.sampled_from([(), tuple(Amount)])))
    there = {f"w{number}" for number in range(len(capacities))}
    held: list[Placement] = []
    for _ in range(data.draw(st.integers(0, 25))):
        wanted = data.draw(WANTED)
        free_slots = made.free_slots(wanted, at_most=100)
        what = ["take", "take", "give back", "resize", "remove", "reserve"]
        match data.draw(st.sampled_from(what)):
            case "take":
                reserved = made.reserved
                placement = made.take(wanted)
                assert (placement is None) == (free_slots == 0)
                if placement is not None:
                    assert (
                        made.free_slots(wanted, at_most=100) == free_slots - 1 or free_slots == 100
                    )
                    assert made.could_hold(wanted)
                    assert placement.worker not in reserved
                    held.append(placement)
            case "give back" if held:
                made.give_back(held.pop(data.draw(st.integers(0, len(held) - 1))))
            case "resize" if held:
                before = held.pop(data.draw(st.integers(0, len(held) - 1)))
                held.append(made.resize(before, replace(wanted, memory_bytes=0)))
                assert {*held[-1].cpus} <= {*before.cpus}
                assert held[-1].cpus
            case "reserve":
                assert made.reserve(wanted) == made.could_hold(wanted)
            case "remove" if len(there) > 1:
                gone = data.draw(st.sampled_from(sorted(there)))
                there.discard(gone)
                made.remove(gone)
                held = [placement for placement in held if placement.worker != gone]
        check_held(made, held)


def test_a_node_to_avoid_gets_nothing() -> None:
    made = places(Capacity((0, 1, 2, 3)), Capacity((0, 1)), Capacity((0,)))
    node = made.node("w0")
    assert made.free_slots(ONE, at_most=9, avoid=node) == 3
    assert made.could_hold(Resources(cpus=4))
    assert not made.could_hold(Resources(cpus=4), avoid=node)
    taken = made.take(ONE, avoid=node)
    assert taken is not None
    assert taken.worker == "w1"
    two = Resources(cpus=2)
    assert made.reserve(two)
    assert made.reserved == ("w0",)
    assert made.reserve(two, avoid=node)
    assert made.reserved == ("w1",)
    assert made.take(two, may_use_reserved=True, avoid=node) is None
    assert not made.reserve(Resources(cpus=4), avoid=node)


def test_what_is_reserved_for_a_trial_is_not_on_the_node_where_it_was_lost() -> None:
    made = places(Capacity(tuple(range(20))), Capacity((0, 1, 2, 3)))
    other = made.take(SMALL, avoid="n0")
    queue = TrialQueue(
        lambda number: SMALL if number else BIG, lost_on=lambda number: "" if number else "n0"
    )
    queue.add([(False, 0), *((True, number) for number in range(1, 9))])
    while queue.place(made, 0.0, others_come=True) is not None:
        pass
    assert (queue.blocked, made.reserved) == (BIG, ("w1",))
    assert other is not None
    made.give_back(other)
    placed = queue.place(made, 0.0, others_come=True)
    assert placed is not None
    assert (placed[0], placed[1].worker) == (0, "w1")
