"""How a study runs its trials: in this process, or each in one that is forked from it."""

from __future__ import annotations

import contextlib
import multiprocessing
import sys
from collections.abc import Callable, Iterable
from multiprocessing.connection import wait
from typing import Any

from ..errors import TrialOverError
from .running_trial import RunningTrial as Trial

Run = Callable[[Trial], Exception | None]
"""Runs a trial, and returns the error that ends the study."""

WAIT_SECONDS = 0.2
"""Time between two looks for a trial while other programs have all of them."""


def run_trials(
    trials: Iterable[Trial | None],
    run: Run,
    ended: Callable[[Trial, Exception | None], None],
    *,
    jobs: int,
    caught: tuple[type[Exception], ...],
) -> None:
    """Run trials; with several jobs, each in a process.

    Args:
        trials: Yields the trials, and None while none is free.
        run: Runs a trial.
        ended: Takes each trial, with the error that ends the study.
        jobs: How many trials run at the same time.
        caught: Errors that do not end the study. A process that dies is a RuntimeError.
    """
    running: dict[Any, tuple[Trial, Any]] = {}
    fork = multiprocessing.get_context("fork")  # so that an objective need not be importable

    def await_one(seconds: float | None = None) -> None:
        for sentinel in wait([*running], seconds):
            trial, process = running.pop(sentinel)
            process.join()
            ended(trial, _error(trial, process.exitcode, caught))

    try:
        for trial in trials:
            if trial is None:
                await_one(WAIT_SECONDS)
            elif jobs == 1:
                ended(trial, run(trial))
            else:
                process = fork.Process(target=_run_in_process, args=(trial, run))
                process.start()
                running[process.sentinel] = trial, process
                if len(running) == jobs:
                    await_one()
        while running:
            await_one()
    except BaseException as error:
        for trial, process in running.values():
            if not isinstance(error, Exception):
                process.kill()  # an interrupt need not have reached it
            process.join()
            trial.give_back()
        raise


def _run_in_process(trial: Trial, run: Run) -> None:
    with contextlib.suppress(KeyboardInterrupt):  # the trial was given back
        try:
            status: str | int = run(trial) is not None
        except SystemExit as left:
            status = left.code or 1  # 0 says that the trial is over
        sys.exit(status)


def _error(trial: Trial, exit_code: int, caught: tuple[type[Exception], ...]) -> Exception | None:
    """Return the error that ends the study after a trial in a process."""
    study = trial.study.hptune_study
    with contextlib.suppress(TrialOverError):  # else its process has ended it
        # Nobody knows what that process has suggested, so this is not told of `trial.asked`.
        study.tell(str(trial.asked.attempt), failed=f"its process died: {exit_code}")
        exit_code = 0 if issubclass(RuntimeError, caught) else 1
    reason = study.trial(trial.number).reason or f"its process ended: {exit_code}"
    shown = f"`hptune show {study.directory} {trial.number}` says more"
    return RuntimeError(f"trial {trial.number}: {reason}; {shown}") if exit_code else None
