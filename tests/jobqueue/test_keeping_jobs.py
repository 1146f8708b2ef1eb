"""Jobs that are submitted and kept, by what trials need and Slurm says."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from hptune_jobqueue import jobs as shell
from hptune_jobqueue.commands import JobState
from hptune_jobqueue.errors import ClosedForNowError
from hptune_jobqueue.job_messages import Demand
from hptune_jobqueue.job_reports import read_jobs
from job_queue import Queue, ended, jobs_of, quick_queue, running


@pytest.fixture
def queue(monkeypatch: pytest.MonkeyPatch) -> Queue:
    return quick_queue(monkeypatch)


def test_one_job_is_tried_where_slurm_refuses_several(
    queue: Queue, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes an array whole or not at all."""
    monkeypatch.setattr(shell, "POLL_SECONDS", 60.0)
    submit, tries = queue.submit, []

    def limited(script: str, count: int, *, exclude: Iterable[str] = ()) -> tuple[str, ...]:
        tries.append(count)
        if count > 1:
            raise ClosedForNowError("Slurm refuses the job: QOSMaxSubmitJobPerUserLimit")
        return submit(script, count, exclude=exclude)

    queue.submit = limited  # type: ignore[method-assign] # it fails
    jobs = jobs_of(queue, tmp_path, max_jobs=9)
    jobs.open(9)
    assert (tries[:2], queue.alive) == ([9, 1], {"1_0"})
    jobs.close()


def test_slurm_is_asked_seldom_but_soon_after_a_submission(
    queue: Queue, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shell, "POLL_SECONDS", 60.0)
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
            jobs.set_demand(Demand(wanted, {"1_0": True}))
            queue.wait_for_a_look()
        looks.append(queue.looks)
    finally:
        jobs.close()
    assert looks == [1, 2]


def test_a_job_whose_worker_takes_trials_is_shown_running_before_slurm_is_asked_again(
    queue: Queue, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shell, "SUBMITTED_POLL_SECONDS", 60.0)
    jobs = jobs_of(queue, tmp_path)
    try:
        jobs.open(1)
        shown = read_jobs(tmp_path)
        assert shown is not None
        assert [job.state for job in shown.jobs] == [JobState.PENDING]
        jobs.set_demand(Demand(1, {"1_0": True}))
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
    monkeypatch.setattr(shell, "SLOWEST_POLL_SECONDS", 60.0)
    queue.change["a"] = running

    def fail() -> None:
        for job in [*queue.there.values()]:
            if job.id.startswith("1_"):
                ending = replace(job, state=JobState.ENDING, slurm_state="COMPLETING")
                queue.there[job.id] = ended("NODE_FAIL")(job) if queue.looks > 9 else ending

    jobs = jobs_of(queue, tmp_path, max_jobs=2)
    try:
        jobs.open(9)
        jobs.set_demand(Demand(9, {"1_0": True, "1_1": True}))
        queue.before_answer = fail
        jobs.set_demand(Demand(9, {}))
        for _ in range(40):
            queue.wait_for_a_look()
        assert queue.looks > 9
        assert "2_1" in queue.there
    finally:
        queue.before_answer = lambda: None
        jobs.close()


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
            jobs.set_demand(Demand(wanted, {"1_0": True}))
            queue.wait_for_a_look()
        assert queue.looks == 3
    finally:
        jobs.close()
