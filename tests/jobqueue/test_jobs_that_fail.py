"""Jobs that fail: what is given up, what is tried again, and which nodes are avoided."""

from __future__ import annotations

from pathlib import Path

import pytest

from hptune_jobqueue.errors import (
    ConfigError,
    JobsFailError,
    SlurmUnavailableError,
    SubmissionError,
)
from hptune_jobqueue.job_messages import Demand
from job_queue import (
    Queue,
    drive,
    jobs_of,
    pending_for,
    quick_queue,
    running,
)


@pytest.fixture
def queue(monkeypatch: pytest.MonkeyPatch) -> Queue:
    return quick_queue(monkeypatch)


def test_a_job_that_slurm_will_never_start_ends_the_study(queue: Queue, tmp_path: Path) -> None:
    queue.change["a"] = pending_for("PartitionTimeLimit")
    with pytest.raises(SubmissionError, match="never start the job: PartitionTimeLimit"):
        drive(jobs_of(queue, tmp_path), queue)
    assert len(queue.there) == 1


def test_a_folder_for_output_that_cannot_be_made_is_refused(queue: Queue, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match=r"cannot be made: Not a directory; name another log_d"):
        jobs_of(queue, tmp_path / "file" / "logs").open(1)


def test_a_slurm_that_is_silent_for_a_while_ends_nothing(queue: Queue, tmp_path: Path) -> None:
    queue.change["a"] = running

    def silent() -> None:
        if 2 <= queue.looks < 5:
            queue.looks += 1
            raise SlurmUnavailableError("squeue has not answered")

    queue.before_answer = silent
    notes: list[str] = []
    drive(jobs_of(queue, tmp_path, notes=notes), queue)
    assert "Slurm does not answer: squeue has not answered" in notes
    assert len(queue.there) == 1


def test_a_slurm_that_is_silent_at_first_is_waited_for_and_its_jobs_are_taken_over(
    queue: Queue, tmp_path: Path
) -> None:
    """Reading the data may take an hour: by then, Slurm may restart."""
    queue.change["a"] = running
    queue.submit("a", 1)

    def silent() -> None:
        if queue.looks < 3:
            queue.looks += 1
            raise SlurmUnavailableError("squeue has not answered")

    queue.before_answer = silent
    notes: list[str] = []
    drive(jobs_of(queue, tmp_path, notes=notes), queue)
    said = ["Slurm does not answer: squeue has not answered", "took over 1 job of an earlier run"]
    assert notes[:2] == said
    assert len(queue.there) == 1


def test_a_thread_that_breaks_ends_the_study_aloud(queue: Queue, tmp_path: Path) -> None:
    queue.change["a"] = running

    def broken() -> None:
        if queue.looks == 3:
            queue.looks += 1
            raise ValueError("no such thing")

    queue.before_answer = broken
    with pytest.raises(JobsFailError, match="managed any more: ValueError"):
        drive(jobs_of(queue, tmp_path), queue)


def test_pending_jobs_avoid_a_node_that_is_excluded_after_their_submission(
    queue: Queue, tmp_path: Path
) -> None:
    jobs = jobs_of(queue, tmp_path, max_jobs=2)
    jobs.open(2)
    try:
        jobs.exclude_node("n1", "three attempts were lost there")
        while len(queue.changed) < 2:
            jobs.set_demand(Demand(2, {}))
            queue.wait_for_a_look()
    finally:
        jobs.close()
    assert queue.changed == {"1_0": ["n1"], "1_1": ["n1"]}
    assert jobs.take_excluded() == {}, "the study knows it"
