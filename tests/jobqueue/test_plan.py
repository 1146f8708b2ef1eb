"""Which jobs are submitted and cancelled."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from jobqueue.plan import Alive, Kind, plan

GPU = Kind("gpu", 4)
CPU = Kind("cpu", 2)


def test_as_many_jobs_as_the_trials_need_and_no_more_than_allowed() -> None:
    assert plan(9, [], [GPU], max_jobs=10).submit == {"gpu": 3}
    assert plan(9, [], [GPU], max_jobs=2).submit == {"gpu": 2}
    assert plan(9, [Alive("1", "gpu")], [GPU], max_jobs=10).submit == {"gpu": 2}
    assert plan(0, [], [GPU], max_jobs=10).submit == {}


def test_a_lost_job_is_replaced_and_one_about_to_end_too() -> None:
    ending = Alive("1", "gpu", is_busy=True, seconds_left=-10)
    lasting = Alive("1", "gpu", is_busy=True, seconds_left=10)
    assert plan(4, [], [GPU], max_jobs=1).submit == {"gpu": 1}
    assert plan(4, [ending], [GPU], max_jobs=1).submit == {"gpu": 1}
    assert plan(4, [lasting], [GPU], max_jobs=1).submit == {}


def test_kinds_take_turns_so_that_a_full_partition_holds_nothing_up() -> None:
    assert plan(12, [], [GPU, CPU], max_jobs=9).submit == {"gpu": 2, "cpu": 2}
    waiting = [Alive("1", "gpu", is_pending=True)]
    assert plan(6, waiting, [GPU, CPU], max_jobs=9).submit == {"cpu": 1}
    few = Kind("gpu", 4, max_jobs=1)
    assert plan(12, [], [few, CPU], max_jobs=9).submit == {"gpu": 1, "cpu": 4}
    assert plan(12, [], [few], max_jobs=9).submit == {"gpu": 1}


def test_what_waits_is_cancelled_first_then_what_is_idle_and_never_what_is_busy() -> None:
    busy, idle = Alive("1", "gpu", is_busy=True), Alive("2", "gpu")
    waiting = Alive("3", "gpu", is_pending=True)
    jobs = [busy, idle, waiting]
    assert plan(8, jobs, [GPU], max_jobs=9).cancel == ("3",)
    assert plan(3, jobs, [GPU], max_jobs=9).cancel == ("3", "2")
    assert plan(0, jobs, [GPU], max_jobs=9).cancel == ("3", "2")
    assert plan(9, jobs, [GPU], max_jobs=9).cancel == ()


kinds = st.sampled_from([[GPU], [CPU, GPU], [Kind("gpu", 4, 2), CPU]])
alive = st.lists(
    st.builds(
        Alive,
        id=st.uuids().map(str),
        kind=st.sampled_from(["gpu", "cpu", "other"]),
        is_pending=st.booleans(),
        is_busy=st.booleans(),
        seconds_left=st.one_of(st.none(), st.floats(-100, 100)),
    ),
    max_size=8,
)


@given(st.integers(0, 40), alive, kinds, st.integers(1, 10))
def test_it_never_goes_beyond_a_limit_and_settles_at_once(
    wanted: int, jobs: list[Alive], some: list[Kind], max_jobs: int
) -> None:
    planned = plan(wanted, jobs, some, max_jobs=max_jobs)
    lasting = [job for job in jobs if job.seconds_left is None or job.seconds_left > 0]
    new = sum(planned.submit.values())
    assert new == 0 or len(lasting) + new <= max_jobs
    assert not (planned.submit and planned.cancel)
    busy = {job.id for job in jobs if job.is_busy}
    assert not busy & set(planned.cancel)
    after = [job for job in jobs if job.id not in planned.cancel]
    after += [
        Alive(f"new-{kind}-{i}", kind, is_pending=True)
        for kind, count in planned.submit.items()
        for i in range(count)
    ]
    again = plan(wanted, after, some, max_jobs=max_jobs)
    assert again.submit == {}
