"""Jobs to submit and to cancel."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from hptune_jobqueue.plan import JobPlan, KindCapacity, LiveJob
from hptune_jobqueue.plan import plan as plan_sizes

GPU = KindCapacity("gpu", {"any": 4}, "gpu")
CPU = KindCapacity("cpu", {"any": 2}, "cpu")


def plan(
    wanted: int, alive: Sequence[LiveJob], kinds: Sequence[KindCapacity[str]], *, max_jobs: int
) -> JobPlan:
    """Call `plan` with trials of one size."""
    return plan_sizes({"any": wanted}, alive, kinds, max_jobs=max_jobs)


def test_as_many_jobs_as_the_trials_need_and_no_more_than_allowed() -> None:
    assert plan(9, [], [GPU], max_jobs=10).submit == {"gpu": 3}
    assert plan(9, [], [GPU], max_jobs=2).submit == {"gpu": 2}
    assert plan(9, [LiveJob("1", "gpu")], [GPU], max_jobs=10).submit == {"gpu": 2}
    assert plan(0, [], [GPU], max_jobs=10).submit == {}


def test_a_lost_job_is_replaced_and_one_about_to_end_too() -> None:
    ending = LiveJob("1", "gpu", is_busy=True, seconds_left=-10)
    lasting = LiveJob("1", "gpu", is_busy=True, seconds_left=10)
    assert plan(4, [], [GPU], max_jobs=1).submit == {"gpu": 1}
    assert plan(4, [ending], [GPU], max_jobs=1).submit == {"gpu": 1}
    assert plan(4, [lasting], [GPU], max_jobs=1).submit == {}


def test_kinds_take_turns_so_that_a_full_partition_holds_nothing_up() -> None:
    assert plan(12, [], [GPU, CPU], max_jobs=9).submit == {"gpu": 2, "cpu": 2}
    waiting = [LiveJob("1", "gpu", is_pending=True)]
    assert plan(6, waiting, [GPU, CPU], max_jobs=9).submit == {"cpu": 1}
    few = KindCapacity("gpu", {"any": 4}, "gpu", max_jobs=1)
    assert plan(12, [], [few, CPU], max_jobs=9).submit == {"gpu": 1, "cpu": 4}
    assert plan(12, [], [few], max_jobs=9).submit == {"gpu": 1}


def test_what_waits_is_cancelled_first_then_what_is_idle_and_never_what_is_busy() -> None:
    busy, idle = LiveJob("1", "gpu", is_busy=True), LiveJob("2", "gpu")
    waiting = LiveJob("3", "gpu", is_pending=True)
    jobs = [busy, idle, waiting]
    assert plan(8, jobs, [GPU], max_jobs=9).cancel == ("3",)
    assert plan(3, jobs, [GPU], max_jobs=9).cancel == ("3", "2")
    assert plan(0, jobs, [GPU], max_jobs=9).cancel == ("3", "2")
    assert plan(9, jobs, [GPU], max_jobs=9).cancel == ()
    too_many = [busy, LiveJob("4", "gpu", is_busy=True)]
    assert plan(8, too_many, [GPU], max_jobs=1).drain == "4"


def test_a_job_that_ends_counts_as_one_and_holds_no_trial() -> None:
    ending = [LiveJob("1", "gpu", is_ending=True)]
    few = KindCapacity("gpu", {"any": 4}, "gpu", max_jobs=1)
    assert plan(4, ending, [GPU], max_jobs=9).submit == {"gpu": 1}
    assert plan(4, ending, [GPU], max_jobs=1).submit == {}
    assert plan(4, ending, [few], max_jobs=9).submit == {}
    of_other_kind = [LiveJob("1", "gone", is_ending=True)]
    assert plan(4, of_other_kind, [few], max_jobs=9).submit == {"gpu": 1}


kinds = st.sampled_from([[GPU], [CPU, GPU], [KindCapacity("gpu", {"any": 4}, "gpu", 2), CPU]])
alive = st.lists(
    st.builds(
        LiveJob,
        id=st.uuids().map(str),
        kind=st.sampled_from(["gpu", "cpu", "other"]),
        is_pending=st.booleans(),
        is_busy=st.booleans(),
        is_drained=st.booleans(),
        seconds_left=st.one_of(st.none(), st.floats(-100, 100)),
    ),
    max_size=8,
)


@given(st.integers(0, 40), alive, kinds, st.integers(1, 10))
def test_it_never_goes_beyond_a_limit_and_settles_at_once(
    wanted: int, jobs: list[LiveJob], some: list[KindCapacity[str]], max_jobs: int
) -> None:
    planned = plan(wanted, jobs, some, max_jobs=max_jobs)
    lasting = [job for job in jobs if job.seconds_left is None or job.seconds_left > 0]
    new = sum(planned.submit.values())
    assert new == 0 or len(lasting) + new <= max_jobs
    assert not (planned.submit and planned.cancel)
    assert not {job.id for job in jobs if job.is_busy} & set(planned.cancel)
    if planned.drain:
        assert planned.drain in {job.id for job in lasting if job.is_busy}
        assert not any(job.is_drained for job in lasting)
    after = [job for job in jobs if job.id not in planned.cancel]
    after += [
        LiveJob(f"new-{kind}-{i}", kind, is_pending=True)
        for kind, count in planned.submit.items()
        for i in range(count)
    ]
    again = plan(wanted, after, some, max_jobs=max_jobs)
    if planned.cancel:
        # Those that no trial is for may have taken the places of others.
        assert sum(again.submit.values()) <= len(planned.cancel)
    else:
        assert again.submit == {}


SMALL = KindCapacity("small", {"small": 4}, shape="a")
BIG = KindCapacity("big", {"small": 8, "big": 2}, shape="b")


def test_only_kinds_that_hold_what_waits_are_submitted() -> None:
    assert plan_sizes({"big": 1}, [], [SMALL, BIG], max_jobs=9).submit == {"big": 1}
    assert plan_sizes({"huge": 1}, [], [SMALL, BIG], max_jobs=9) == JobPlan({})
    both = plan_sizes({"big": 1, "small": 5}, [], [SMALL, BIG], max_jobs=9)
    # Half of the big one is left for four of them.
    assert both.submit == {"big": 1, "small": 1}


def test_a_job_that_holds_the_large_ones_is_filled_by_the_small_ones() -> None:
    big = LiveJob("1", "big", is_busy=True)
    assert plan_sizes({"big": 1, "small": 4}, [big], [SMALL, BIG], max_jobs=9) == JobPlan({})
    assert plan_sizes({"big": 2, "small": 4}, [big], [SMALL, BIG], max_jobs=9).submit == {
        "small": 1
    }


def test_idle_jobs_give_way_to_a_kind_that_a_trial_needs() -> None:
    small = [LiveJob("1", "small", is_busy=True), LiveJob("2", "small")]
    first = plan_sizes({"big": 1, "small": 4}, small, [SMALL, BIG], max_jobs=2)
    assert first == JobPlan({}, ("2",))
    # Even where those that come later could use it.
    assert plan_sizes({"big": 1, "small": 99}, small, [SMALL, BIG], max_jobs=2) == first
    # What runs stays.
    assert plan_sizes({"big": 1, "small": 99}, small[:1], [SMALL, BIG], max_jobs=1).cancel == ()
    assert plan_sizes({"big": 1, "small": 4}, small[:1], [SMALL, BIG], max_jobs=2).submit == {
        "big": 1
    }


def busy(name: str, kind: str = "small", *, left: float | None = None) -> LiveJob:
    return LiveJob(name, kind, is_busy=True, seconds_left=left)


def test_one_busy_job_is_drained_for_a_trial_that_fits_none() -> None:
    wanted = {"big": 1, "small": 99}
    jobs = [busy("1"), busy("2", left=900.0), busy("3", left=1800.0)]
    assert plan_sizes(wanted, jobs, [SMALL, BIG], max_jobs=3) == JobPlan({}, (), "2")
    # There is room for another job.
    assert plan_sizes(wanted, jobs, [SMALL, BIG], max_jobs=4) == JobPlan({"big": 1})
    # One job holds it, or will: it has its turn there.
    large = LiveJob("4", "big", is_pending=True)
    assert plan_sizes(wanted, [*jobs, large], [SMALL, BIG], max_jobs=4).drain == ""
    # No job could.
    assert plan_sizes({"huge": 1, "small": 99}, jobs, [SMALL, BIG], max_jobs=3) == JobPlan({})


def test_a_drained_job_is_cancelled_when_it_is_empty_and_its_place_is_taken() -> None:
    wanted = {"big": 2, "small": 99}
    drained = LiveJob("2", "small", is_busy=True, is_drained=True)
    assert plan_sizes(wanted, [busy("1"), drained], [SMALL, BIG], max_jobs=2) == JobPlan({})
    empty = LiveJob("2", "small", is_drained=True)
    assert plan_sizes(wanted, [busy("1"), empty], [SMALL, BIG], max_jobs=2).cancel == ("2",)
    assert plan_sizes(wanted, [busy("1")], [SMALL, BIG], max_jobs=2) == JobPlan({"big": 1})
    # No trial waits for its place any more; but it takes no trials, so it is useless.
    less = {"small": 99}
    assert plan_sizes(less, [busy("1"), empty], [SMALL, BIG], max_jobs=2).cancel == ("2",)


def test_what_larger_trials_were_reckoned_to_is_not_drained() -> None:
    jobs = [busy("1", "big"), busy("2")]
    huge = KindCapacity("huge", {"huge": 1}, "huge")
    wanted = {"big": 2, "huge": 1, "small": 99}
    assert plan_sizes(wanted, jobs, [SMALL, BIG, huge], max_jobs=2).drain == "2"
    assert plan_sizes(wanted, jobs[:1], [SMALL, BIG, huge], max_jobs=1).drain == ""


def test_only_a_job_whose_end_lets_another_one_begin_gives_way() -> None:
    few = KindCapacity("big", {"small": 8, "big": 2}, "b", 1)
    other = KindCapacity("b.small", {"small": 1}, "b", 1)
    jobs = [busy("1", "b.small"), busy("2")]
    # The shape is full, whatever becomes of the other shape's jobs.
    for most in (2, 9):
        planned = plan_sizes({"big": 1}, jobs, [SMALL, few, other], max_jobs=most)
        assert (planned.cancel, planned.drain) == ((), "1")
    idle = [busy("1", "b.small"), LiveJob("2", "small")]
    planned = plan_sizes({"big": 1, "small": 9}, idle, [SMALL, few, other], max_jobs=2)
    assert (planned.cancel, planned.drain) == ((), "1")


def test_a_requeued_job_beyond_the_limit_of_its_shape_is_cancelled() -> None:
    """Another one has taken its place while Slurm delayed it."""
    few = KindCapacity("gpu", {"any": 4}, "gpu", max_jobs=1)
    jobs = [LiveJob("1", "gpu", is_pending=True), LiveJob("2", "gpu", is_busy=True)]
    assert plan(12, jobs, [few], max_jobs=9) == JobPlan({}, ("1",))
    assert plan(12, jobs, [few, CPU], max_jobs=3) == JobPlan({"cpu": 1})
    both = [LiveJob("1", "gpu", is_busy=True), jobs[1]]
    assert plan(12, both, [few], max_jobs=9) == JobPlan({})
    assert plan(12, jobs, [KindCapacity("gpu", {"any": 4}, "gpu", 0)], max_jobs=9) == JobPlan({})


def test_kinds_of_one_shape_share_its_limit() -> None:
    other = KindCapacity("small.2", {"big": 1}, "a", 1)
    there = [LiveJob("1", "small", is_busy=True)]
    assert plan_sizes({"big": 1}, there, [SMALL, other], max_jobs=9).submit == {}
    assert plan_sizes({"big": 1}, [], [SMALL, other], max_jobs=9).submit == {"small.2": 1}
