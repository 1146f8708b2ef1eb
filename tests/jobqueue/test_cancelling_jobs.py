"""Jobs that are cancelled: too many, no longer needed, or when the master leaves."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest

from hptune_jobqueue.commands import Job
from hptune_jobqueue.errors import SlurmUnavailableError
from hptune_jobqueue.job_messages import Demand
from job_queue import Queue, drive, in_turn, jobs_of, pending_for, quick_queue, running


@pytest.fixture
def queue(monkeypatch: pytest.MonkeyPatch) -> Queue:
    return quick_queue(monkeypatch)


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


@pytest.mark.parametrize("command", ["cancel", "jobs"])
def test_who_leaves_at_once_while_jobs_are_closed_cancels_them_all(
    queue: Queue, tmp_path: Path, command: str
) -> None:
    jobs = jobs_of(queue, tmp_path)
    jobs.open(1)
    cancelled: list[str] = []
    setattr(queue, "cancel_all", cancelled.extend)  # noqa: B010 - for the type checker

    def interrupted(*_: object) -> Sequence[Job]:
        if threading.current_thread() is not threading.main_thread():
            return ()
        # As the handler of a second signal does, which runs within the command that closes them.
        jobs.close(force=True)
        raise KeyboardInterrupt

    setattr(queue, command, interrupted)
    with pytest.raises(KeyboardInterrupt):
        jobs.close()
    assert cancelled == ["a"]


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
    jobs.set_demand(Demand(3, {busy: True, idle: False}))
    jobs.hand_over()
    assert queue.alive == {busy}
