"""One short job: it is waited for, and cancelled in any case."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from hptune.doctor import one_off_job
from hptune.doctor.one_off_job import run_one_off_job
from hptune_jobqueue.commands import JobState
from hptune_jobqueue.config import parse_config
from hptune_jobqueue.errors import NotStartedError, SubmissionError
from hptune_jobqueue.job_kinds import JobKind
from job_queue import Queue, ended, job_kind, pending_for, quick_queue, running


@pytest.fixture
def queue(monkeypatch: pytest.MonkeyPatch) -> Queue:
    queue = quick_queue(monkeypatch)
    monkeypatch.setattr(one_off_job, "Slurm", lambda: queue)
    monkeypatch.setattr(one_off_job, "_POLL_SECONDS", 0.0)
    return queue


@pytest.fixture
def kind(tmp_path: Path) -> JobKind:
    (shape,) = parse_config('partition = "p"\nwalltime = "01:00:00"').shapes
    return job_kind(shape, "once", tmp_path)


def test_one_that_squeue_shows_late_is_waited_for(queue: Queue, kind: JobKind) -> None:
    """Some sites answer squeue from a copy that is a minute old."""

    def late() -> None:
        for each, job in queue.there.items():
            shown = replace(job, name="once" if queue.looks >= 3 else "")
            queue.there[each] = ended("COMPLETED")(shown) if queue.looks >= 6 else running(shown)

    queue.before_answer = late
    job = run_one_off_job(kind, "--version", wait_seconds=60)
    assert (job.slurm_state, job.node) == ("COMPLETED", "n1")


@pytest.mark.parametrize(
    ("reason", "error", "said"),
    [
        ("Priority", NotStartedError, "was not started in 0 s; Slurm's reason is Priority"),
        ("QOSMinGRES", SubmissionError, "was not started and never will be"),
    ],
)
def test_only_what_may_start_later_counts_as_late(
    queue: Queue, kind: JobKind, reason: str, error: type[Exception], said: str
) -> None:
    queue.change["once"] = pending_for(reason)
    queue.submit = lambda script, count, **_: Queue.submit(queue, "once", count)  # type: ignore[method-assign] # one script
    with pytest.raises(SubmissionError, match=said) as caught:
        run_one_off_job(kind, "--version", wait_seconds=0)
    assert caught.type is error


def test_one_that_squeue_never_shows_is_cancelled(
    queue: Queue, kind: JobKind, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(one_off_job, "UNSHOWN_SECONDS", 0.0)
    job = run_one_off_job(kind, "--version", wait_seconds=60)
    assert job.state is JobState.OVER
    assert queue.there
    assert not queue.alive
