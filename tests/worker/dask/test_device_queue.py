"""Attempts of several studies take turns on the same cores and GPUs."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.core.resources import Placement
from tuner.worker.dask.device_queue import DeviceQueue, Turn


class Queue:
    """A line, and who was called up in which order."""

    def __init__(self) -> None:
        self.line = DeviceQueue()
        self.called: list[str] = []

    def enter(
        self,
        study: str,
        *cpus: int,
        gpus: tuple[str, ...] = (),
        gpu_share: float = 1.0,
        name: str = "",
    ) -> Turn:
        placement = Placement("w", cpus, gpus, gpu_share=gpu_share)
        return self.line.enter(study, placement, lambda: self.called.append(name or study))


def test_who_meets_nobody_goes_at_once() -> None:
    queue = Queue()
    queue.enter("a", 0)
    queue.enter("b", 1)
    assert queue.called == ["a", "b"]


@pytest.mark.parametrize("gpus", [(), ("0",)])
def test_studies_take_turns_on_what_both_want(gpus: tuple[str, ...]) -> None:
    queue = Queue()
    cores = ((0,), (0,)) if not gpus else ((0,), (1,))
    first = queue.enter("a", *cores[0], gpus=gpus, name="a1")
    queue.enter("b", *cores[1], gpus=gpus, name="b1")
    assert queue.called == ["a1"]
    queue.line.leave(first)
    second = queue.enter("a", *cores[0], gpus=gpus, name="a2")
    assert (queue.called, second.has_come) == (["a1", "b1"], False)


def test_attempts_of_one_study_never_wait_for_each_other() -> None:
    queue = Queue()
    queue.enter("a", 0, gpus=("0",), name="half of the GPU")
    queue.enter("a", 1, gpus=("0",), name="the other half")
    assert queue.called == ["half of the GPU", "the other half"]


def test_a_study_packs_onto_what_it_was_given_whole_while_another_waits() -> None:
    queue = Queue()
    first = queue.enter("a", 0, gpus=("0",), name="a1")
    queue.enter("b", 1, gpus=("0",), name="b1")
    packed = [
        queue.enter("a", core, gpus=("0",), gpu_share=0.25, name=f"a{core}") for core in (2, 3)
    ]
    assert queue.called == ["a1", "a2", "a3"]
    queue.line.leave(first)
    assert queue.called == ["a1", "a2", "a3"], "b1 wants all of it"
    queue.enter("a", 4, gpus=("0",), gpu_share=0.25, name="a4")
    queue.line.leave(packed[0])
    queue.line.leave(packed[1])
    assert queue.called == ["a1", "a2", "a3", "b1"], "others have their turn after the first"


def test_parts_of_a_gpu_add_up_to_one_whosever_they_are() -> None:
    queue = Queue()
    third = 1 / 3
    running = [
        queue.enter(study, core, gpus=("0",), gpu_share=third, name=study)
        for core, study in enumerate("abc")
    ]
    assert queue.called == ["a", "b", "c"]
    queue.enter("d", 3, gpus=("0",), gpu_share=0.5, name="half")
    queue.enter("a", 4, gpus=("0",), gpu_share=third, name="later")
    queue.line.leave(running[0])
    assert queue.called == ["a", "b", "c"], "more than the GPU is given"
    queue.line.leave(running[1])
    assert queue.called == ["a", "b", "c", "half"]
    queue.line.leave(running[2])
    assert queue.called == ["a", "b", "c", "half", "later"]


def test_a_whole_gpu_is_shared_with_no_part() -> None:
    queue = Queue()
    part = queue.enter("a", 0, gpus=("0",), gpu_share=0.25)
    whole = queue.enter("b", 1, gpus=("0", "1"))
    assert not whole.has_come
    queue.line.leave(part)
    assert whole.has_come


def test_who_wants_several_is_not_overtaken_for_ever() -> None:
    queue = Queue()
    running = [queue.enter("a", cpu, name=f"a{cpu}") for cpu in (0, 1)]
    large = queue.enter("b", 0, 1, name="large")
    queue.line.leave(running[0])
    small = queue.enter("a", 0, name="later")
    assert not small.has_come, "it overtook the one that waits for both cores"
    queue.line.leave(running[1])
    assert large.has_come
    queue.line.leave(large)
    assert queue.called == ["a0", "a1", "large", "later"]


def test_only_who_waits_can_withdraw() -> None:
    queue = Queue()
    running = queue.enter("a", 0)
    waiting = queue.enter("b", 0)
    behind = queue.enter("c", 0)
    assert not queue.line.withdraw(running)
    assert queue.line.withdraw(waiting)
    assert not queue.line.withdraw(waiting)
    queue.line.leave(running)
    assert (queue.called, behind.has_come) == (["a", "c"], True)


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
    turns = [
        queue.enter(
            study,
            *cpus,
            gpus=tuple(gpus),
            gpu_share=share if len(gpus) == 1 else 1.0,
            name=str(number),
        )
        for number, (study, cpus, gpus, share) in enumerate(wishes)
    ]
    while turns:
        holding = [turn for turn in turns if turn.has_come]
        assert holding, "nobody can go on"
        for place, one in enumerate(holding):
            for other in holding[:place]:
                if one.study != other.study:
                    assert not {*one.placement.cpus} & {*other.placement.cpus}
        for gpu in "xy":
            on_it = [turn for turn in holding if gpu in turn.placement.gpus]
            if len({turn.study for turn in on_it}) > 1:
                assert sum(turn.placement.gpu_share for turn in on_it) <= 1.0 + 1e-9
        over = leaving.choice(holding)  # type: ignore[attr-defined] # hypothesis's Random
        turns.remove(over)
        queue.line.leave(over)
    assert sorted(map(int, queue.called)) == list(range(len(wishes)))
