"""Jobs that fail: what is given up, what is tried again, and which nodes are avoided."""

from __future__ import annotations

import re
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from hptune_jobqueue import job_records
from hptune_jobqueue.commands import Job, JobState
from hptune_jobqueue.errors import (
    ConfigError,
    JobsFailError,
    SlurmUnavailableError,
    SubmissionError,
)
from job_queue import (
    Queue,
    drive,
    ended,
    in_turn,
    jobs_of,
    pending_for,
    quick_queue,
    ran_and_ended,
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


def test_another_shape_takes_the_place_of_one_that_slurm_will_never_start(
    queue: Queue, tmp_path: Path
) -> None:
    queue.change.update(a=pending_for("BadConstraints"), b=running)
    notes: list[str] = []
    drive(jobs_of(queue, tmp_path, "a", "b", notes=notes), queue)
    assert [job.name for job in queue.there.values()] == ["a", "b"]
    assert "Slurm would never start the job: BadConstraints" in notes


@pytest.mark.parametrize("word", ["FAILED", "COMPLETED", "TIMEOUT", "CANCELLED", "OUT_OF_MEMORY"])
def test_jobs_that_ran_for_nothing_are_given_up(queue: Queue, tmp_path: Path, word: str) -> None:
    queue.change["a"] = ran_and_ended(word)
    with pytest.raises(JobsFailError, match="3 jobs in a row ended before their worker had joined"):
        drive(jobs_of(queue, tmp_path), queue)
    assert len(queue.there) == 3


def test_jobs_that_slurm_itself_ended_say_nothing_of_the_next(queue: Queue, tmp_path: Path) -> None:
    states = ("PREEMPTED", "NODE_FAIL", "BOOT_FAIL")
    queue.change["a"] = in_turn(*map(ran_and_ended, states))
    drive(jobs_of(queue, tmp_path), queue)
    assert len(queue.there) > 6


def test_jobs_that_are_always_cancelled_before_they_start_are_given_up(
    queue: Queue, tmp_path: Path
) -> None:
    """The jobs that one poll finds gone count as one: somebody cancelled them together."""
    queue.change["a"] = ended("CANCELLED")
    with pytest.raises(JobsFailError, match="3 jobs in a row ended before they started") as error:
        drive(jobs_of(queue, tmp_path, max_jobs=4), queue, wanted=4)
    assert len(queue.there) == 12
    assert str(error.value).endswith("The last one, 3_3, ended: CANCELLED")


def test_jobs_that_squeue_never_shows_are_cancelled_and_given_up(
    queue: Queue, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if a site submitted them under another name, or to another cluster."""
    monkeypatch.setattr(job_records, "UNSHOWN_SECONDS", 0.02)
    queue.change["a"] = lambda job: replace(job, name="renamed")
    notes: list[str] = []
    with pytest.raises(JobsFailError, match="squeue does not show it"):
        drive(jobs_of(queue, tmp_path, notes=notes), queue)
    assert [job.slurm_state for job in queue.there.values()] == ["CANCELLED"] * 3
    assert "job 1_0 is cancelled: Slurm has accepted it, but squeue does not show it" in notes


def test_a_job_whose_worker_takes_trials_is_no_other_job_because_squeue_hides_it(
    queue: Queue, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As at a site that renames jobs: the user asked for one, and it works."""
    monkeypatch.setattr(job_records, "UNSHOWN_SECONDS", 0.0)
    queue.change["a"] = lambda job: replace(job, name="renamed")
    has_joined = threading.Event()

    def wait_for_the_worker() -> None:
        if queue.looks > 0:
            has_joined.wait(60)

    queue.before_answer = wait_for_the_worker
    notes: list[str] = []
    jobs = jobs_of(queue, tmp_path, notes=notes)
    jobs.open(2)
    try:
        while queue.looks < 20:
            jobs.set_demand(2, {"1_0": True})
            has_joined.set()
            queue.wait_for_a_look()
        assert [job.state for job in jobs.snapshot()] == [JobState.RUNNING]
        assert queue.alive == queue.there.keys() == {"1_0"}
    finally:
        jobs.close()
    assert not queue.alive
    assert notes == ["Slurm: 1 job running"]


def test_a_job_that_squeue_no_longer_shows_is_cancelled_before_it_is_replaced(
    queue: Queue, tmp_path: Path
) -> None:
    """It may still wait or run: a second one must not run beside it."""

    def hide() -> None:
        if queue.looks == 3:
            queue.there["1_0"] = replace(queue.there["1_0"], name="renamed")

    queue.before_answer = hide
    notes: list[str] = []
    drive(jobs_of(queue, tmp_path, notes=notes), queue, looks=20)
    assert [job.slurm_state for job in queue.there.values()] == ["CANCELLED", "CANCELLED"]
    assert "job 1_0 is gone" in notes


def test_a_folder_for_output_that_cannot_be_made_is_refused(queue: Queue, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match=r"cannot be made: Not a directory; name another log_d"):
        jobs_of(queue, tmp_path / "file" / "logs")


def test_a_job_that_squeue_shows_late_is_waited_for(queue: Queue, tmp_path: Path) -> None:
    """Some sites answer squeue from a copy that is a minute old."""
    queue.change["a"] = lambda job: replace(job, name="")

    def late() -> None:
        if queue.looks > 9:
            queue.there["1_0"] = running(replace(queue.there["1_0"], name="a"))

    queue.before_answer = late
    drive(jobs_of(queue, tmp_path), queue, looks=20)
    assert len(queue.there) == 1


def test_jobs_whose_workers_are_refused_are_cancelled_and_given_up(
    queue: Queue, tmp_path: Path
) -> None:
    queue.change["a"] = running
    notes: list[str] = []
    with pytest.raises(JobsFailError, match=r"3 jobs in a row .* refused.*: other versions"):
        drive(
            jobs_of(queue, tmp_path, notes=notes),
            queue,
            refused=lambda queue: dict.fromkeys(queue.alive, "other versions"),
        )
    assert len(queue.there) == 3
    assert "job 1_0 is cancelled, because its worker was refused" in notes


def test_a_shape_whose_jobs_fail_is_given_up_while_another_one_works(
    queue: Queue, tmp_path: Path
) -> None:
    queue.change.update(a=ran_and_ended("FAILED"), b=running)
    notes: list[str] = []
    jobs = jobs_of(queue, tmp_path, "a", "b", max_jobs=2, notes=notes)
    drive(jobs, queue, wanted=2, useful=lambda queue: dict.fromkeys(queue.alive, True))
    names = [job.name for job in queue.there.values()]
    assert names.count("a") == 3
    assert names.count("b") == 2
    assert [line for line in notes if line.startswith("shape a is given up: 3 jobs in a row")]


def test_a_useful_job_clears_its_shape(queue: Queue, tmp_path: Path) -> None:
    """Every third job is useful for a while, and is lost."""
    queue.change["a"] = in_turn(ran_and_ended("FAILED"), ran_and_ended("FAILED"), running)

    there: dict[str, bool] = {}

    def useful(queue: Queue) -> dict[str, bool]:
        for identity in there:  # as was told the last time
            queue.there[identity] = ended("FAILED")(queue.there[identity])
        there.clear()
        there.update(dict.fromkeys(queue.alive, True))
        return dict(there)

    drive(jobs_of(queue, tmp_path), queue, useful=useful)
    assert len(queue.there) > 6


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


def test_a_job_that_ends_before_its_worker_joined_shows_its_last_line(
    queue: Queue, tmp_path: Path
) -> None:
    queue.change["a"] = ran_and_ended("FAILED")
    (tmp_path / "a-1_0.log").write_text("loading\nhptune: setup failed: module load cuda/99\n\n")
    notes: list[str] = []
    with pytest.raises(JobsFailError):
        drive(jobs_of(queue, tmp_path, notes=notes), queue)
    assert (
        "job 1_0 on n1 ended: FAILED before its worker had joined. Its last line: hptune: setup "
        "failed: module load cuda/99"
    ) in notes


def test_a_job_whose_output_is_missing_raises_the_question_what_its_node_sees(
    queue: Queue, tmp_path: Path
) -> None:
    queue.change["a"] = ran_and_ended("FAILED")
    notes: list[str] = []
    with pytest.raises(JobsFailError):
        drive(jobs_of(queue, tmp_path, notes=notes), queue)
    said = "ended: FAILED before its worker had joined, and its output is missing: do the nodes see"
    assert f"job 1_0 on n1 {said} {tmp_path}?" in notes


def test_a_setup_line_that_failed_in_a_working_job_is_told_once(
    queue: Queue, tmp_path: Path
) -> None:
    queue.change["a"] = running
    for job in ("1_0", "1_1"):
        (tmp_path / f"a-{job}.log").write_text("hptune: setup failed: ls /x (status 2)\njoined\n")
    notes: list[str] = []
    jobs = jobs_of(queue, tmp_path, max_jobs=2, notes=notes)
    drive(jobs, queue, wanted=2, useful=lambda queue: dict.fromkeys(queue.alive, True), looks=9)
    told = [line.partition(": ")[2] for line in notes if "setup" in line]
    assert told == ["hptune: setup failed: ls /x (status 2)"]


def test_a_node_that_fails_jobs_is_avoided_where_others_work(queue: Queue, tmp_path: Path) -> None:
    """A broken node is free again at once, so Slurm would send it one job after the other."""

    def change(job: Job) -> Job:
        is_broken = queue.there and "n2" not in queue.excluded
        return replace(ran_and_ended("FAILED")(job), node="n2") if is_broken else running(job)

    queue.change["a"] = change
    notes: list[str] = []
    jobs = jobs_of(queue, tmp_path, max_jobs=2, notes=notes)
    jobs.open(1)
    try:
        jobs.set_demand(1, {"1_0": True})
        while len(queue.there) < 3:
            jobs.set_demand(2, {"1_0": True})
            queue.wait_for_a_look()
    finally:
        jobs.close()
    assert [
        line for line in notes if line.startswith("node n2 is excluded from now on (--exclude=")
    ]
    assert [job.node for job in queue.there.values()] == ["n1", "n2", "n1"]


def test_a_job_that_a_broken_node_could_not_start_goes_to_another_node(
    queue: Queue, tmp_path: Path
) -> None:
    """However many nodes are broken: the study ends only when none is left."""
    bad = ["n1", "n2", "n3", "n4", "n5"]

    def change(job: Job) -> Job:
        node = next((each for each in bad if each not in queue.excluded), "")
        if not node:
            return replace(running(job), node="n6")
        queue.failed[node] = "Prolog error"
        return pending_for("launch failed requeued held")(job)

    queue.change["a"] = change
    notes: list[str] = []
    jobs = jobs_of(queue, tmp_path, notes=notes)
    drive(jobs, queue, useful=lambda queue: dict.fromkeys(queue.alive, True), looks=20)
    assert queue.excluded == set(bad)
    assert jobs.take_excluded().keys() == set(bad)
    assert len(queue.there) == 6
    for node in bad:
        why = "no job can start there (Prolog error)"
        assert f"node {node} is excluded from now on (--exclude={node}): {why}" in notes
    told = (
        "job 1_0: Slurm could not start it (launch failed requeued held), so others are submitted"
    )
    assert told in notes


def test_pending_jobs_avoid_a_node_that_is_excluded_after_their_submission(
    queue: Queue, tmp_path: Path
) -> None:
    jobs = jobs_of(queue, tmp_path, max_jobs=2)
    jobs.open(2)
    try:
        jobs.exclude_node("n1", "three attempts were lost there")
        while len(queue.changed) < 2:
            jobs.set_demand(2, {})
            queue.wait_for_a_look()
    finally:
        jobs.close()
    assert queue.changed == {"1_0": ["n1"], "1_1": ["n1"]}
    assert jobs.take_excluded() == {}, "the study knows it"


def test_jobs_that_are_held_for_no_known_node_are_given_up(queue: Queue, tmp_path: Path) -> None:
    queue.change["a"] = pending_for("launch failed requeued held")
    with pytest.raises(JobsFailError, match="3 jobs in a row could not be started by Slurm"):
        drive(jobs_of(queue, tmp_path), queue)
    assert len(queue.there) == 3


def test_a_job_that_runs_without_a_worker_is_told_and_then_cancelled(
    queue: Queue, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where a prologue hangs, no route leads to the master, or a launcher hides the study."""
    monkeypatch.setattr(job_records, "UNJOINED_SECONDS", 0.05)
    queue.change["a"] = lambda job: replace(running(job), node=f"n{min(len(queue.there), 2) + 1}")
    (tmp_path / "a-2_0.log").write_text("waiting for a scheduler: Network is unreachable\n")
    notes: list[str] = []
    jobs = jobs_of(queue, tmp_path, max_jobs=2, notes=notes, grace_seconds=1)
    jobs.open(1)
    shown = ""
    try:
        while jobs.take_excluded().keys() != {"n2"}:
            jobs.set_demand(2, {"1_0": True})
            queue.wait_for_a_look()
            shown = shown or "".join(each.text for each in jobs.problems())
    finally:
        jobs.close()
    assert re.fullmatch(
        r"no worker has joined from job 2_0, which runs on n2 since \d\d:\d\d\. Its last line: "
        r"waiting for a scheduler: Network is unreachable\. It is cancelled at \d\d:\d\d "
        r"\(grace_seconds in the slurm\.toml\)",
        shown,
    )
    assert notes.count(shown) == 1
    cancelled = "job 2_0 on n2 is cancelled: it has run for 1 s (grace_seconds) without a worker"
    assert cancelled in notes
    why = "the worker of job 2_0 did not join there"
    assert f"node n2 is excluded from now on (--exclude=n2): {why}" in notes


def test_jobs_without_workers_are_given_up(
    queue: Queue, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_records, "UNJOINED_SECONDS", 0.0)
    queue.change["a"] = running
    jobs = jobs_of(queue, tmp_path, grace_seconds=0)
    with pytest.raises(JobsFailError, match="3 jobs in a row were cancelled before their worker"):
        drive(jobs, queue)
    assert len(queue.there) == 3


def test_a_job_that_a_node_is_booted_for_is_waited_for(
    queue: Queue, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_records, "UNJOINED_SECONDS", 0.0)
    queue.change["a"] = lambda job: replace(running(job), slurm_state="CONFIGURING")
    jobs = jobs_of(queue, tmp_path, grace_seconds=0)
    drive(jobs, queue, looks=9)
    assert len(queue.there) == 1
