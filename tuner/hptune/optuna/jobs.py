"""How a study runs its trials: in this process, or each in one that is forked from it."""

from __future__ import annotations

import contextlib
import multiprocessing
import pickle
import time
from collections.abc import Callable
from multiprocessing.connection import Connection, wait
from typing import Any

import cloudpickle

from ..errors import StudyOverError, TrialOverError
from .running_trial import RunningTrial as Trial

Run = Callable[[Trial], Exception | None]
"""Runs a trial, and returns the error that ends the study."""

WAIT_SECONDS = 0.2
"""Time between two looks for a trial while other programs have all of them."""


def run_trials(
    begin: Callable[[], Trial | None], run: Run, ended: Callable[[Trial, Any], None], *, jobs: int
) -> None:
    """Run trials until no more begin; with several jobs, each in a process.

    Args:
        begin: Returns the next trial, None if none is free now; raises StudyOverError at the end.
        run: Runs a trial.
        ended: Takes each trial, with the error that `run` returned.
        jobs: How many trials run at the same time.
    """
    running: dict[Any, tuple[Trial, Any]] = {}
    has_more = True
    try:
        while has_more or running:
            trial = None
            if has_more and len(running) < jobs:
                try:
                    trial = begin()
                except StudyOverError:
                    has_more = False
                    continue
            if trial and jobs == 1:
                ended(trial, run(trial))
            elif trial:
                pipe, process = _started(trial, run)
                running[pipe] = trial, process
            elif running:
                is_full = not has_more or len(running) == jobs
                for ready in wait([*running], timeout=None if is_full else WAIT_SECONDS):
                    trial, process = running.pop(ready)
                    ended(trial, _outcome(trial, ready, process))
            else:
                time.sleep(WAIT_SECONDS)
    except BaseException as error:
        for trial, process in running.values():
            if not isinstance(error, Exception):
                process.kill()  # an interrupt need not have reached it
            process.join()
            trial.give_back()
        raise


def _started(trial: Trial, run: Run) -> tuple[Any, Any]:
    """Start a process for a trial; return the pipe by which it answers, and the process."""
    fork = multiprocessing.get_context("fork")  # so that an objective need not be importable
    ours, its = fork.Pipe(duplex=False)
    process = fork.Process(target=_run_in_process, args=(trial, run, its))
    process.start()
    its.close()  # so that its end is seen
    return ours, process


def _run_in_process(trial: Trial, run: Run, pipe: Connection) -> None:
    with contextlib.suppress(KeyboardInterrupt):  # the trial was given back
        error = run(trial)
        try:
            data = cloudpickle.dumps(error)
            pickle.loads(data)  # noqa: S301 - of this process
        except Exception:  # the user's own exception cannot be sent
            data = cloudpickle.dumps(RuntimeError(repr(error)))
        pipe.send((data, trial.study.is_stopped))


def _outcome(trial: Trial, pipe: Any, process: Any) -> BaseException | None:
    """Return the error that ends the study after a trial in a process."""
    try:
        data, is_stopped = pipe.recv()
        error: BaseException | None = pickle.loads(data)  # noqa: S301 - of a child of this process
        trial.study.is_stopped |= is_stopped
        process.join()
    except EOFError:
        process.join()
        error = RuntimeError(f"the process of trial {trial.number} died: {process.exitcode}")
        with contextlib.suppress(TrialOverError):
            trial.asked.fail(str(error))
    return error
