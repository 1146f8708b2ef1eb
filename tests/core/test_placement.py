"""Who gets which cores and devices, and that the books of it balance."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tuner.core.placement import Places
from tuner.core.resources import Capacity, Placement, Resources

WANTED = st.builds(
    Resources,
    cpus=st.integers(1, 3),
    gpus=st.sampled_from([None, 0, 1, 2]),
    memory_bytes=st.sampled_from([0, 3]),
)
CAPACITIES = st.builds(
    Capacity,
    cpus=st.integers(0, 6).map(lambda cores: tuple(range(cores))),
    gpus=st.integers(0, 3).map(lambda gpus: tuple("ABC"[:gpus])),
    memory_bytes=st.sampled_from([0, 2, 7]),
)


def places(wanted: Resources, *capacities: Capacity) -> Places:
    made = Places(wanted)
    for number, capacity in enumerate(capacities):
        made.add(f"w{number}", f"n{number}", capacity)
    return made


def take(made: Places) -> Placement:
    placement = made.take()
    assert placement is not None
    return placement


def test_the_worker_that_joined_first_is_filled_first() -> None:
    made = places(Resources(), Capacity((0, 1)), Capacity((0,)), Capacity((0,)))
    taken = [take(made) for _ in range(4)]
    assert [placement.worker for placement in taken] == ["w0", "w0", "w1", "w2"]
    for placement in (taken[3], taken[2], taken[1]):  # the last one first
        made.give_back(placement)
    assert [take(made).worker for _ in range(3)] == ["w0", "w1", "w2"]


def test_cores_and_devices_are_given_out_once() -> None:
    made = places(Resources(cpus=2, gpus=1), Capacity((4, 5, 6, 7), ("A", "B")))
    assert take(made) == Placement("w0", (4, 5), ("A",))
    assert take(made) == Placement("w0", (6, 7), ("B",))
    assert made.take() is None


def test_unless_told_otherwise_a_trial_takes_a_gpu_where_there_is_one() -> None:
    made = places(Resources(), Capacity((0, 1, 2), ("A",)), Capacity((0,)))
    assert take(made).gpus == ("A",)
    assert take(made) == Placement("w1", (0,))
    assert made.take() is None


@pytest.mark.parametrize(
    ("wanted", "rooms"),
    [
        (Resources(), 8),
        (Resources(cpus=3), 2),
        (Resources(gpus=1), 2),
        (Resources(gpus=0, memory_bytes=3), 3),
        (Resources(memory_bytes=11), 0),
        (Resources(cpus=9), 0),
        (Resources(gpus=3), 0),
    ],
)
def test_the_scarcest_thing_decides(wanted: Resources, rooms: int) -> None:
    gpus = ("A", "B") if wanted.gpus else ()
    made = places(wanted, Capacity(tuple(range(8)), gpus, memory_bytes=10))
    assert made.rooms(at_most=100) == rooms
    assert made.could_ever_hold_one() == (rooms > 0)


def test_unknown_memory_is_not_counted() -> None:
    made = places(Resources(memory_bytes=5), Capacity((0, 1)))
    assert made.rooms(at_most=9) == 2


def test_what_was_held_on_a_lost_worker_is_gone() -> None:
    made = places(Resources(), Capacity((0, 1)))
    placement = take(made)
    made.remove("w0")
    made.give_back(placement)
    assert (made.cpus, made.cpus_held, made.take()) == (0, 0, None)
    made.validate([])


def test_a_name_that_comes_back_is_another_worker() -> None:
    made = places(Resources(), Capacity((0,)), Capacity((0,)))
    made.remove("w0")
    made.add("w0", "elsewhere", Capacity((0,)))
    assert made.rooms(at_most=9) == 2
    assert [take(made).worker for _ in range(2)] == ["w1", "w0"]
    assert made.node("w0") == "elsewhere"


def test_counting_stops_where_it_is_told_to() -> None:
    assert places(Resources(), Capacity((0, 1, 2))).rooms(at_most=2) == 2


@settings(deadline=None)
@given(st.data(), WANTED, st.lists(CAPACITIES, min_size=1, max_size=6))
def test_the_books_balance_whatever_comes(
    data: st.DataObject, wanted: Resources, capacities: list[Capacity]
) -> None:
    made = places(wanted, *capacities)
    there = {f"w{number}" for number in range(len(capacities))}
    held: list[Placement] = []
    for _ in range(data.draw(st.integers(0, 25))):
        rooms = made.rooms(at_most=100)
        match data.draw(st.sampled_from(["take", "give back", "remove"])):
            case "take":
                placement = made.take()
                assert (placement is None) == (rooms == 0)
                if placement is not None:
                    assert made.rooms(at_most=100) == rooms - 1
                    held.append(placement)
            case "give back" if held:
                made.give_back(held.pop(data.draw(st.integers(0, len(held) - 1))))
            case "remove" if len(there) > 1:
                gone = data.draw(st.sampled_from(sorted(there)))
                there.discard(gone)
                made.remove(gone)
                held = [placement for placement in held if placement.worker != gone]
        made.validate(held)
