"""Attempts of several studies that share the same cores and GPUs."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hptune.core.resources import Placement
from hptune.worker.device_queue import DeviceQueue, QueueEntry


class Queue:
    """A device queue, and the names of the attempts in the order in which they run."""

    def __init__(self) -> None:
        self.devices = DeviceQueue()
        self.granted: list[str] = []

    def enter(
        self,
        study: str,
        *cpus: int,
        gpus: tuple[str, ...] = (),
        gpu_share: float = 1.0,
        name: str = "",
    ) -> QueueEntry:
        placement = Placement("w", cpus, gpus, gpu_share=gpu_share)
        return self.devices.enter(study, placement, lambda: self.granted.append(name or study))


def test_who_meets_nobody_goes_at_once() -> None:
    queue = Queue()
    queue.enter("a", 0)
    queue.enter("b", 1)
    assert queue.granted == ["a", "b"]


@pytest.mark.parametrize("gpus", [(), ("0",)])
def test_studies_take_turns_on_what_both_want(gpus: tuple[str, ...]) -> None:
    queue = Queue()
    cores = ((0,), (0,)) if not gpus else ((0,), (1,))
    first = queue.enter("a", *cores[0], gpus=gpus, name="a1")
    queue.enter("b", *cores[1], gpus=gpus, name="b1")
    assert queue.granted == ["a1"]
    queue.devices.release(first)
    second = queue.enter("a", *cores[0], gpus=gpus, name="a2")
    assert (queue.granted, second.is_granted) == (["a1", "b1"], False)


def test_attempts_of_one_study_never_wait_for_each_other() -> None:
    queue = Queue()
    queue.enter("a", 0, gpus=("0",), name="half of the GPU")
    queue.enter("a", 1, gpus=("0",), name="the other half")
    assert queue.granted == ["half of the GPU", "the other half"]


def test_a_study_packs_onto_what_it_was_given_whole_while_another_waits() -> None:
    queue = Queue()
    first = queue.enter("a", 0, gpus=("0",), name="a1")
    queue.enter("b", 1, gpus=("0",), name="b1")
    packed = [
        queue.enter("a", core, gpus=("0",), gpu_share=0.25, name=f"a{core}") for core in (2, 3)
    ]
    assert queue.granted == ["a1", "a2", "a3"]
    queue.devices.release(first)
    assert queue.granted == ["a1", "a2", "a3"], "b1 wants all of it"
    queue.enter("a", 4, gpus=("0",), gpu_share=0.25, name="a4")
    queue.devices.release(packed[0])
    queue.devices.release(packed[1])
    assert queue.granted == ["a1", "a2", "a3", "b1"], "others have their turn after the first"


def test_parts_of_a_gpu_add_up_to_one_whosever_they_are() -> None:
    queue = Queue()
    third = 1 / 3
    running = [
        queue.enter(study, core, gpus=("0",), gpu_share=third, name=study)
        for core, study in enumerate("abc")
    ]
    assert queue.granted == ["a", "b", "c"]
    queue.enter("d", 3, gpus=("0",), gpu_share=0.5, name="half")
    queue.enter("a", 4, gpus=("0",), gpu_share=third, name="later")
    queue.devices.release(running[0])
    assert queue.granted == ["a", "b", "c"], "more than the GPU is given"
    queue.devices.release(running[1])
    assert queue.granted == ["a", "b", "c", "half"]
    queue.devices.release(running[2])
    assert queue.granted == ["a", "b", "c", "half", "later"]


def test_a_whole_gpu_is_shared_with_no_part() -> None:
    queue = Queue()
    part = queue.enter("a", 0, gpus=("0",), gpu_share=0.25)
    whole = queue.enter("b", 1, gpus=("0", "1"))
    assert not whole.is_granted
    queue.devices.release(part)
    assert whole.is_granted


def test_who_wants_several_is_not_overtaken_for_ever() -> None:
    queue = Queue()
    running = [queue.enter("a", cpu, name=f"a{cpu}") for cpu in (0, 1)]
    large = queue.enter("b", 0, 1, name="large")
    queue.devices.release(running[0])
    small = queue.enter("a", 0, name="later")
    assert not small.is_granted, "it overtook the one that waits for both cores"
    queue.devices.release(running[1])
    assert large.is_granted
    queue.devices.release(large)
    assert queue.granted == ["a0", "a1", "large", "later"]


def test_who_waits_may_leave() -> None:
    queue = Queue()
    running = queue.enter("a", 0)
    waiting = queue.enter("b", 0)
    behind = queue.enter("c", 0)
    queue.devices.release(waiting)
    queue.devices.release(running)
    assert (queue.granted, behind.is_granted) == (["a", "c"], True)


WISHES = st.tuples(
    st.sampled_from("abc"),
    st.frozensets(st.integers(0, 3), min_size=1),
    st.frozensets(st.sampled_from("xy")),
    st.sampled_from((0.25, 1 / 3, 0.5)),
)


@given(wishes=st.lists(WISHES, max_size=30), leaving=st.randoms())
def test_nothing_is_given_twice_and_everyone_comes_to_their_turn(
    wishes: list[tuple[str, frozenset[int], frozenset[str], float]], leaving: object
) -> None:
    queue = Queue()
    entries = [
        queue.enter(
            study,
            *cpus,
            gpus=tuple(gpus),
            gpu_share=share if len(gpus) == 1 else 1.0,
            name=str(number),
        )
        for number, (study, cpus, gpus, share) in enumerate(wishes)
    ]
    while entries:
        holding = [turn for turn in entries if turn.is_granted]
        assert holding, "no attempt can continue"
        for place, one in enumerate(holding):
            for other in holding[:place]:
                if one.study != other.study:
                    assert not {*one.placement.cpus} & {*other.placement.cpus}
        for gpu in "xy":
            on_it = [entry for entry in holding if gpu in entry.placement.gpus]
            if len({entry.study for entry in on_it}) > 1:
                assert sum(entry.placement.gpu_share for entry in on_it) <= 1.0 + 1e-9
        over = leaving.choice(holding)  # type: ignore[attr-defined] # hypothesis's Random
        entries.remove(over)
        queue.devices.release(over)
    assert sorted(map(int, queue.granted)) == list(range(len(wishes)))
