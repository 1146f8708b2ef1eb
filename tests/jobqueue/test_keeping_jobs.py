"""Jobs that are submitted, given up and cancelled, by the states of Slurm and the workers."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from jobqueue import job_health, polling
from jobqueue import jobs as jobs_module
from jobqueue.commands import Job, JobState, Slurm
from jobqueue.config import Shape, parse_config
from jobqueue.errors import ClosedForNowError, JobsFailError, SlurmUnavailableError, SubmissionError
from jobqueue.job_kinds import JobKind
from jobqueue.jobs import Jobs
from jobqueue.sizing import Need, WorkerShape

Change = Callable[[Job], Job]


class Queue(Slurm):
    """The part of Slurm that concerns jobs; the test says how their states change.

    Attributes:
        there: The jobs that squeue shows, by their ids.
        change: What becomes of new jobs before squeue shows them; by the script.
        before_answer: Called whenever squeue is asked.
        excluded: The nodes that the last jobs were not to run on.
    """

    def __init__(self) -> None:
        self.there: dict[str, Job] = {}
        self.change: dict[str, Change] = {}
        self.before_answer: Callable[[], None] = lambda: None
        self.looks = 0
        self.excluded: set[str] = set()
        self._numbers = itertools.count(1)
        self._looked = threading.Condition()

    def jobs(self, names: Iterable[str] | None) -> tuple[Job, ...]:
        self.before_answer()
        found = [job for job in self.there.values() if names is None or job.name in set(names)]
        with self._looked:
            self.looks += 1
            self._looked.notify_all()
        return tuple(found)

    def submit(self, script: str, count: int, *, exclude: Iterable[str] = ()) -> tuple[str, ...]:
        self.excluded = set(exclude)
        number = next(self._numbers)
        ids = tuple(f"{number}_{i}" for i in range(count))
        for identity in ids:
            job = Job(identity, script, JobState.PENDING, "PENDING", partition="p")
            change = self.change.get(script)
            self.there[identity] = change(job) if change else job
        return ids

    def cancel(self, ids: Sequence[str]) -> None:
        for identity in ids:
            self.there[identity] = ended("CANCELLED")(self.there[identity])

    @property
    def alive(self) -> set[str]:
        return {job.id for job in self.there.values() if job.state is not JobState.OVER}

    def wait_for_a_look(self) -> None:
        """Return after the next poll, or soon if there is none any more."""
        with self._looked:
            self._looked.wait(0.1)


def running(job: Job) -> Job:
    return replace(job, state=JobState.RUNNING, slurm_state="RUNNING", node="n1")


def ended(word: str) -> Change:
    return lambda job: replace(job, state=JobState.OVER, slurm_state=word, node=job.node)


def ran_and_ended(word: str) -> Change:
    return lambda job: ended(word)(running(job))


def pending_for(reason: str) -> Change:
    return lambda job: replace(job, reason=reason)


def in_turn(*changes: Change) -> Change:
    changes_in_turn = itertools.cycle(changes)

    def change(job: Job) -> Job:
        return next(changes_in_turn)(job)

    return change


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(polling, "POLL_SECONDS", 0.01)
    monkeypatch.setattr(polling, "SUBMITTED_POLL_SECONDS", 0.01)
    monkeypatch.setattr(polling, "SLOWEST_POLL_SECONDS", 0.01)
    monkeypatch.setattr(job_health, "REFUSED_SECONDS", 0.02)
    monkeypatch.setattr(jobs_module, "_CANCEL_PAUSE_SECONDS", 0.0)


@pytest.fixture
def queue() -> Queue:
    return Queue()


def jobs_of(
    queue: Queue, path: Path, *names: str, max_jobs: int = 1, notes: list[str] | None = None
) -> Jobs:
    (shape,) = parse_config('partition = "p"\nwalltime = "01:00:00"').shapes
    kinds = [_kind(replace(shape, name=name), name, path) for name in names or ("a",)]
    lines = [] if notes is None else notes
    return Jobs(kinds, max_jobs=max_jobs, notify=lines.append, slurm=queue)


def _kind(shape: Shape, name: str, path: Path) -> JobKind:
    return JobKind(shape, WorkerShape(1, 0, 0, 1), name, name, path)


Useful = Callable[[Queue], dict[str, bool]]
Refused = Callable[[Queue], dict[str, str]]


def drive(
    jobs: Jobs,
    queue: Queue,
    *,
    looks: int = 60,
    wanted: int = 1,
    useful: Useful = lambda queue: {},
    refused: Refused = lambda queue: {},
) -> None:
    """Ask for trials until this many polls are over; raise the error of a failure."""
    try:
        jobs.open(wanted)
        end = queue.looks + looks
        while queue.looks < end:
            jobs.set_demand(wanted, useful(queue), refused(queue))
            queue.wait_for_a_look()
    finally:
        jobs.close()
    assert not queue.alive


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
    queue.change["a"] = in_turn(ran_and_ended("PREEMPTED"), ran_and_ended("NODE_FAIL"))
    drive(jobs_of(queue, tmp_path), queue)
    assert len(queue.there) > 6


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

    def useful(queue: Queue) -> dict[str, bool]:
        there = dict.fromkeys(queue.alive, True)
        for identity in there:
            queue.there[identity] = ended("FAILED")(queue.there[identity])
        return there

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


def test_a_thread_that_breaks_ends_the_study_aloud(queue: Queue, tmp_path: Path) -> None:
    queue.change["a"] = running

    def broken() -> None:
        if queue.looks == 3:
            queue.looks += 1
            raise ValueError("no such thing")

    queue.before_answer = broken
    with pytest.raises(JobsFailError, match="managed any more: ValueError"):
        drive(jobs_of(queue, tmp_path), queue)


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


def test_jobs_beyond_a_lower_limit_are_cancelled(queue: Queue, tmp_path: Path) -> None:
    queue.change["a"] = in_turn(running, running, pending_for("Priority"), pending_for("Priority"))
    queue.submit("a", 4)
    jobs = jobs_of(queue, tmp_path, max_jobs=2)
    try:
        jobs.open(9)
        assert queue.alive == {"1_0", "1_1"}
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
    drive(jobs_of(queue, tmp_path, notes=notes), queue)
    assert (len(tries), len(queue.there)) == (4, 1)
    assert notes[0].startswith("no job can be submitted to partition p now, so it is tried again")


def test_the_end_of_a_walltime_is_told_as_such(queue: Queue, tmp_path: Path) -> None:
    queue.change["a"] = lambda job: replace(running(job), ends_at=time.time() + 100)

    def useful(queue: Queue) -> dict[str, bool]:
        there = dict.fromkeys(queue.alive, True)
        if queue.looks > 5:
            queue.there["1_0"] = ended("COMPLETED")(queue.there["1_0"])
        return there

    notes: list[str] = []
    drive(jobs_of(queue, tmp_path, notes=notes), queue, useful=useful, looks=20)
    words = "has reached its walltime (01:00:00); its trials continue in other jobs"
    assert f"job 1_0 on n1 {words}" in notes


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


def test_slurm_is_asked_seldom_but_soon_after_a_submission(
    queue: Queue, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(polling, "POLL_SECONDS", 60.0)
    looks: list[int] = []
    jobs = jobs_of(queue, tmp_path)
    try:
        jobs.open(1)
        looks.append(queue.looks)
        while queue.looks < 2:
            queue.wait_for_a_look()
        for wanted in range(2, 9):  # changes of the demand do not make it ask more often
            jobs.set_demand(wanted, {"1_0": True})
            queue.wait_for_a_look()
        looks.append(queue.looks)
    finally:
        jobs.close()
    assert looks == [1, 2]


def test_jobs_of_shapes_that_are_gone_are_cancelled_and_no_others(
    queue: Queue, tmp_path: Path
) -> None:
    for name in ("study-old", "study-a", "other-old"):
        queue.submit(name, 1)
    notes: list[str] = []
    (shape,) = parse_config('partition = "p"\nwalltime = "01:00:00"').shapes
    kind = _kind(shape, "study-a", tmp_path)
    jobs = Jobs([kind], max_jobs=1, notify=notes.append, slurm=queue, prefix="study-")
    jobs.open(1)
    alive = {queue.there[identity].name for identity in queue.alive}
    jobs.close()
    assert alive == {"study-a", "other-old"}
    assert notes[:2] == [
        "cancelled 1 job of shapes that are no longer used",
        "took over 1 job of an earlier run",
    ]


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


def test_ctrl_c_during_a_submission_leaves_no_job(queue: Queue, tmp_path: Path) -> None:
    submit = queue.submit

    def interrupted(script: str, count: int, *, exclude: Iterable[str] = ()) -> tuple[str, ...]:
        submit(script, count, exclude=exclude)
        raise KeyboardInterrupt

    queue.submit = interrupted  # type: ignore[method-assign] # it fails
    with pytest.raises(KeyboardInterrupt):
        jobs_of(queue, tmp_path).open(1)
    assert queue.there
    assert not queue.alive


def test_who_leaves_at_once_cancels_all_kinds_and_waits_for_nothing(
    queue: Queue, tmp_path: Path
) -> None:
    jobs = jobs_of(queue, tmp_path, "a", "b", max_jobs=2)
    jobs.open(2)
    cancelled: list[str] = []

    def seen(names: Iterable[str]) -> None:
        cancelled.extend(names)

    queue.cancel_all = seen  # type: ignore[method-assign] # it is seen
    jobs.close(force=True)
    assert cancelled == ["a", "b"]

    def silent(names: Iterable[str]) -> None:
        raise SlurmUnavailableError("scancel has not answered for 5 s")

    queue.cancel_all = silent  # type: ignore[method-assign] # it fails
    jobs.close(force=True)
    assert jobs.left.startswith("Slurm jobs of this study may be left (scancel has not answered")
    jobs.close()


def test_cancelling_is_tried_again_and_what_may_be_left_is_said(
    queue: Queue, tmp_path: Path
) -> None:
    queue.change["a"] = running
    tries: list[Sequence[str]] = []
    cancel = queue.cancel

    def unwilling(ids: Sequence[str]) -> None:
        if not ids:
            return
        tries.append(ids)
        if len(tries) < 3:
            raise SlurmUnavailableError("scancel failed")
        cancel(ids)

    queue.cancel = unwilling  # type: ignore[method-assign] # it fails
    drive(jobs_of(queue, tmp_path), queue, looks=3)
    assert len(tries) == 3

    def never(ids: Sequence[str]) -> None:
        if ids:
            raise SlurmUnavailableError("scancel failed")

    queue.cancel = never  # type: ignore[method-assign] # it fails
    jobs = jobs_of(queue, tmp_path, "a", "b")
    jobs.open(1)
    jobs.close()
    assert jobs.left == (
        "Slurm jobs of this study may be left (scancel failed). Cancel them with: "
        "scancel --name=a; scancel --name=b"
    )


def test_the_next_master_is_left_the_jobs_on_which_trials_run(queue: Queue, tmp_path: Path) -> None:
    """It may wait in the queue for hours, and idle jobs would hold their GPUs."""
    queue.change["a"] = in_turn(running, running, pending_for("Resources"))
    jobs = jobs_of(queue, tmp_path, max_jobs=3)
    jobs.open(3)
    busy, idle, _ = sorted(queue.alive)
    jobs.set_demand(3, {busy: True, idle: False})
    jobs.hand_over()
    jobs.close(cancel=False)
    assert queue.alive == {busy}


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


def test_a_job_gives_way_to_one_for_a_trial_that_fits_none(queue: Queue, tmp_path: Path) -> None:
    """Trials that fit are never lacking, so no job would ever be idle."""
    queue.change.update({"a": running, "large": running})
    notes: list[str] = []
    (shape,) = parse_config('partition = "p"\nwalltime = "01:00:00"').shapes
    large = Need(gpus=2)
    kinds = [_kind(replace(shape, name="a"), "a", tmp_path)]

    def sized(need: Need) -> list[JobKind]:
        worker = WorkerShape(1, 2, 0, 1)
        return [JobKind(replace(shape, name="l"), worker, "large", "large", tmp_path, need)]

    jobs = Jobs(kinds, max_jobs=2, notify=notes.append, slurm=queue, sized=sized)
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
