"""Jobs that are submitted and kept, by what trials need and Slurm says."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from hptune_jobqueue import polling
from hptune_jobqueue.commands import JobState
from hptune_jobqueue.config import parse_config
from hptune_jobqueue.errors import ClosedForNowError
from hptune_jobqueue.job_kinds import JobKind
from hptune_jobqueue.jobs import Jobs
from hptune_jobqueue.jobs_file import read_jobs
from hptune_jobqueue.sizing import Need, WorkerShape
from job_queue import Queue, drive, ended, job_kind, jobs_of, quick_queue, running


@pytest.fixture
def queue(monkeypatch: pytest.MonkeyPatch) -> Queue:
    return quick_queue(monkeypatch)


def test_the_limit_holds_while_jobs_are_requeued(queue: Queue, tmp_path: Path) -> None:
    """A requeued job ends, waits with the same id, and runs again."""
    queue.change["a"] = running
    states = itertools.chain([JobState.ENDING] * 4, itertools.repeat(JobState.PENDING))
    most = 0

    def requeued() -> None:
        nonlocal most
        if queue.looks > 3:
            queue.there["1_0"] = replace(queue.there["1_0"], state=next(states))
        kinds = (JobState.PENDING, JobState.RUNNING)
        most = max(most, sum(job.state in kinds for job in queue.there.values()))

    queue.before_answer = requeued
    jobs = jobs_of(queue, tmp_path, max_jobs=2)
    try:
        jobs.open(9)
        while queue.looks < 20:
            jobs.set_demand(9, {"1_1": True})
            queue.wait_for_a_look()
    finally:
        queue.before_answer = lambda: None
        jobs.close()
    assert (most, set(queue.there)) == (2, {"1_0", "1_1"})


def test_requeued_jobs_that_slurm_delays_count_as_none(queue: Queue, tmp_path: Path) -> None:
    """After a preemption of all jobs, Slurm starts none of them for two minutes."""
    queue.change["a"] = running
    jobs = jobs_of(queue, tmp_path, max_jobs=2)

    def state(reason: str) -> None:
        for each in ("1_0", "1_1"):
            job = replace(queue.there[each], state=JobState.PENDING, slurm_state="PENDING")
            queue.there[each] = replace(job, node="", reason=reason)

    def poll(until: Callable[[], bool], useful: dict[str, bool]) -> None:
        while not until():
            jobs.set_demand(9, useful)
            queue.wait_for_a_look()

    jobs.open(9)
    try:
        poll(lambda: queue.looks > 5, {"1_0": True, "1_1": True})
        state("BeginTime")
        poll(lambda: len(queue.there) == 4, {})
        new = dict.fromkeys(("2_0", "2_1"), True)
        seen = queue.looks
        poll(lambda: queue.looks > seen + 5, new)
        assert len(queue.alive) == 4, "they may still start"
        state("Resources")
        poll(lambda: queue.alive == new.keys(), new)
    finally:
        jobs.close()


def test_a_partition_that_takes_no_jobs_for_now_is_waited_for(queue: Queue, tmp_path: Path) -> None:
    queue.change["a"] = running
    submit, tries = queue.submit, []

    def closed(script: str, count: int, *, exclude: Iterable[str] = ()) -> tuple[str, ...]:
        tries.append(count)
        if len(tries) < 4:
            raise ClosedForNowError("Slurm refuses the job: Required partition not available")
        return submit(script, count, exclude=exclude)

    queue.submit = closed  # type: ignore[method-assign] # it fails
    notes: list[str] = []
    jobs, problems = jobs_of(queue, tmp_path, notes=notes), list[list[str]]()

    def seen(queue: Queue) -> dict[str, bool]:
        problems.append([problem.text for problem in jobs.problems()])
        return {}

    drive(jobs, queue, useful=seen)
    assert problems[0] == [notes[0]], "why no job runs, for those who look"
    assert problems[-1] == []
    assert (len(tries), len(queue.there)) == (4, 1)
    assert notes[0].startswith("no job can be submitted to partition p now, so it is tried again")


def test_as_many_jobs_are_submitted_as_slurm_takes(queue: Queue, tmp_path: Path) -> None:
    """It takes an array whole or not at all, and here 5 jobs of a user."""
    queue.change["a"] = running
    submit, tries = queue.submit, []

    def limited(script: str, count: int, *, exclude: Iterable[str] = ()) -> tuple[str, ...]:
        tries.append(count)
        if len(queue.alive) + count > 5:
            raise ClosedForNowError("Slurm refuses the job: QOSMaxSubmitJobPerUserLimit")
        return submit(script, count, exclude=exclude)

    queue.submit = limited  # type: ignore[method-assign] # it fails
    notes: list[str] = []
    drive(jobs_of(queue, tmp_path, max_jobs=9, notes=notes), queue, wanted=9)
    assert len(queue.there) == 5
    assert tries[:9] == [9, 1, 2, 4, 1, 2, 1, 2, 1]
    assert set(tries[9:]) == {1}
    why = "Slurm refuses the job: QOSMaxSubmitJobPerUserLimit"
    assert [line for line in notes if why in line] == [
        f"{why}. So fewer jobs are submitted at once",
        f"no job can be submitted to partition p now, so it is tried again every 60 s. {why}",
    ]


def test_the_end_of_a_walltime_is_told_as_such(queue: Queue, tmp_path: Path) -> None:
    queue.change["a"] = lambda job: replace(running(job), ends_at=time.time() + 100)

    told: list[str] = []

    def useful(queue: Queue) -> dict[str, bool]:
        there = dict.fromkeys(queue.alive, True)
        told.extend(there)
        if told.count("1_0") > 5:
            queue.there["1_0"] = ended("COMPLETED")(queue.there["1_0"])
        return there

    notes: list[str] = []
    drive(jobs_of(queue, tmp_path, notes=notes), queue, useful=useful, looks=20)
    words = "has reached its walltime (01:00:00)"
    assert f"job 1_0 on n1 {words}" in notes


def test_slurm_is_asked_seldom_but_soon_after_a_submission(
    queue: Queue, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(polling, "POLL_SECONDS", 60.0)
    looks: list[int] = []
    noted = threading.Event()

    def wait_until_noted() -> None:
        if queue.looks:
            noted.wait(60)

    queue.before_answer = wait_until_noted
    jobs = jobs_of(queue, tmp_path)
    try:
        jobs.open(1)
        looks.append(queue.looks)
        noted.set()
        while queue.looks < 2:
            queue.wait_for_a_look()
        for wanted in range(2, 9):  # changes of the demand do not make it ask more often
            jobs.set_demand(wanted, {"1_0": True})
            queue.wait_for_a_look()
        looks.append(queue.looks)
    finally:
        jobs.close()
    assert looks == [1, 2]


def test_a_job_whose_worker_takes_trials_is_shown_running_before_slurm_is_asked_again(
    queue: Queue, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(polling, "SUBMITTED_POLL_SECONDS", 60.0)
    jobs = jobs_of(queue, tmp_path)
    try:
        jobs.open(1)
        shown = read_jobs(tmp_path)
        assert shown is not None
        assert [job.state for job in shown.jobs] == [JobState.PENDING]
        jobs.set_demand(1, {"1_0": True})
        again = read_jobs(tmp_path)
        assert again is not None
        assert [job.state for job in again.jobs] == [JobState.RUNNING]
        assert (again.at, queue.looks) == (shown.at, 1)
    finally:
        jobs.close()


def test_the_end_of_all_jobs_is_waited_for_with_short_pauses(
    queue: Queue, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after the failure of the node of all jobs, which still count while they complete."""
    monkeypatch.setattr(polling, "SLOWEST_POLL_SECONDS", 60.0)
    queue.change["a"] = running

    def fail() -> None:
        for job in [*queue.there.values()]:
            if job.id.startswith("1_"):
                ending = replace(job, state=JobState.ENDING, slurm_state="COMPLETING")
                queue.there[job.id] = ended("NODE_FAIL")(job) if queue.looks > 9 else ending

    notes: list[str] = []
    jobs = jobs_of(queue, tmp_path, max_jobs=2, notes=notes)
    try:
        jobs.open(9)
        jobs.set_demand(9, {"1_0": True, "1_1": True})
        queue.before_answer = fail
        jobs.set_demand(9, {})
        for _ in range(40):
            queue.wait_for_a_look()
        assert queue.looks > 9
        assert "2_1" in queue.there
    finally:
        queue.before_answer = lambda: None
        jobs.close()
    assert "Slurm: 2 jobs ending on n1" in notes


def test_a_study_that_has_called_slurm_often_pauses(
    queue: Queue, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue, "rest_seconds", lambda: 60.0 * (queue.looks >= 3))
    jobs = jobs_of(queue, tmp_path)
    try:
        jobs.open(1)
        while queue.looks < 3:
            queue.wait_for_a_look()
        for wanted in range(2, 6):
            jobs.set_demand(wanted, {"1_0": True})
            queue.wait_for_a_look()
        assert queue.looks == 3
    finally:
        jobs.close()


def test_no_more_jobs_are_to_be_expected_than_there_is_work_for(
    queue: Queue, tmp_path: Path
) -> None:
    queue.change["a"] = running
    jobs = jobs_of(queue, tmp_path, max_jobs=4)
    found = []
    for wanted in (2, 9, 0):
        jobs.set_demand(wanted, {})
        found.append(jobs.max_workers())
    assert found == [2, 4, 0]


def test_a_job_gives_way_to_one_for_a_trial_that_fits_none(queue: Queue, tmp_path: Path) -> None:
    """Trials that fit are never lacking, so no job would ever be idle."""
    queue.change.update({"a": running, "large": running})
    notes: list[str] = []
    (shape,) = parse_config('partition = "p"\nwalltime = "01:00:00"').shapes
    large = Need(gpus=2)
    kinds = [job_kind(replace(shape, name="a"), "a", tmp_path)]

    def sized(need: Need) -> list[JobKind]:
        worker = WorkerShape(1, 2, 0, 1)
        return [JobKind(replace(shape, name="l"), worker, "large", "large", tmp_path, need)]

    jobs = Jobs(
        kinds,
        max_jobs=2,
        notify=lambda line: notes.append(line.text),
        prefix="study-",
        sized=sized,
        directory=tmp_path,
        slurm=queue,
    )
    jobs.open(2)
    try:
        while not jobs.drained():
            jobs.set_demand(99, dict.fromkeys(queue.alive, True), {}, {large: 1})
            queue.wait_for_a_look()
        (drained,) = jobs.drained()
        assert (
            f"job {drained} on n1 takes no more trials, to make room for another job: a trial "
            "waits that fits into none of the present jobs"
        ) in notes
        while [job.name for job in queue.there.values()].count("large") < 1:
            busy = {identity: identity != drained for identity in queue.alive}
            jobs.set_demand(99, busy, {}, {large: 1})
            queue.wait_for_a_look()
        # It is gone, and the other one takes trials as before.
        assert {queue.there[identity].name for identity in queue.alive} == {"a", "large"}
        assert drained not in queue.alive
    finally:
        jobs.close()


def test_a_demand_that_changes_no_job_does_not_make_it_ask_slurm(
    queue: Queue, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The end of a trial changes the demand; a day's study has thousands."""
    monkeypatch.setattr(polling, "SLOWEST_POLL_SECONDS", 60.0)
    queue.change["a"] = running
    jobs = jobs_of(queue, tmp_path, max_jobs=2)
    both = {"1_0": True, "1_1": True}
    jobs.open(100)
    try:
        jobs.set_demand(100, both)
        before = -1
        while before != queue.looks:  # until nothing changes any more
            before = queue.looks
            for _ in range(5):
                queue.wait_for_a_look()
        for left in range(100, 1, -1):
            jobs.set_demand(left, both)
        queue.wait_for_a_look()
        assert queue.looks == before
        jobs.set_demand(1, {**both, "1_0": False})
        while len(queue.alive) == 2:
            queue.wait_for_a_look()
    finally:
        jobs.close()
    assert queue.looks <= before + 5
