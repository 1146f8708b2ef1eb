"""What a program is answered: its trial, whether it is to stop, or why nothing has happened."""

from __future__ import annotations

from dataclasses import replace

from ..core.attempt import AttemptId
from ..core.engine.records import LeasedAttempt
from ..core.messages import AttemptEnded, Event, Reported, WorkerJoined
from ..core.trial import Trial, TrialState
from ..errors import (
    HptuneError,
    NoTrialError,
    StudyError,
    StudyOverError,
    TrialOverError,
    UsageError,
)
from ..storage.ledger import LedgerReader
from ..text import plural
from .calls import Answer, GivenTrial
from .followed import FollowedStudy


def answer_to(study: FollowedStudy, name: str, event: Event) -> Answer:
    """Return what the program gets whose event has happened."""
    try:
        return _answer_or_error(study, study.refusals.get(name, ""), event)
    except HptuneError as error:
        return Answer(finish=study.finish, error=error)


def _answer_or_error(study: FollowedStudy, refused: str, event: Event) -> Answer:
    if refused:
        raise _refused(study, event, refused)
    match event:
        case WorkerJoined(worker=worker):
            if worker not in study.starts:
                raise _no_trial(study)
            return Answer(given=given_to(study, worker), finish=study.finish)
        case Reported(attempt=attempt):
            leased = running(study, attempt)
            return Answer(halt=leased.halt if leased.is_told else None, finish=study.finish)
        case AttemptEnded(attempt=attempt):
            return Answer(trial=known_trial(study, attempt.trial), finish=study.finish)
        case _:
            return Answer(finish=study.finish)


def _refused(study: FollowedStudy, event: Event, why: str) -> StudyError:
    name = getattr(event, "attempt", None)
    if name is None or name in study.engine.leased:
        return StudyError(f"the study in {study.past.directory} refuses: {why}")
    return TrialOverError(f"{_why_over(study, name)}. Nothing was changed")


def given_to(study: FollowedStudy, worker: str) -> GivenTrial:
    """Return what a program was given last, as a worker with this name, and has declared since."""
    start, space = study.starts[worker], study.search.space.to_json()
    start = replace(start, params=known_trial(study, start.attempt.trial).params)
    return GivenTrial(start, study.engine.epochs, space)


def running(study: FollowedStudy, name: AttemptId) -> LeasedAttempt:
    """Return an attempt that a program has, and of which it may tell.

    Raises:
        TrialOverError: It does not run.
        UsageError: There is no such trial.
    """
    if (leased := study.engine.leased.get(name)) is not None:
        return leased
    raise TrialOverError(f"{_why_over(study, name)}. Nothing was changed")


def _why_over(study: FollowedStudy, name: AttemptId) -> str:
    trial = known_trial(study, name.trial)
    if trial.state.is_final:
        value = "" if trial.value is None else f" with {trial.value:.6g}"
        return f"trial {trial.number} is {trial.state.lower()}{value} already; a trial is told once"
    attempts = {each.id: each.reason for each in LedgerReader(study.past.directory).attempts()}
    ended = f"attempt {name} is over: {attempts.get(name) or 'it was never asked for'}"
    if trial.state is TrialState.RUNNING:
        is_leased = any(each.trial == trial.number for each in study.engine.leased)
        other = "another program" if is_leased else "a worker of the master"
        return f"{ended}; {other} has trial {trial.number} now"
    return f"{ended}; the next program that asks gets trial {trial.number}"


def _no_trial(study: FollowedStudy) -> NoTrialError:
    """Return why there is no trial for a program that asks."""
    directory, finish = study.past.directory, study.finish
    in_all, leased = len(study.engine.snapshot.running), len(study.engine.leased)
    over = finish.reason if finish else "" if leased else study.engine.snapshot.stopping
    if over:
        return StudyOverError(f"the study in {directory} is over: {over}")
    others = f"other programs have {plural(leased, 'trial')}"
    if study.engine.is_stopping:
        return NoTrialError(f"the study in {directory} stops; {others}")
    if study.engine.snapshot.paused_by:
        return NoTrialError(f"the study in {directory} is {study.engine.snapshot.stall_reason}")
    if in_all > leased:
        others += f", and the master's workers {in_all - leased}"
    return NoTrialError(
        f"no trial of {directory} is free now: {others}; ask again when one is told, or past its "
        "lease"
    )


def known_trial(study: FollowedStudy, number: int) -> Trial:
    """Return a trial by its number.

    Raises:
        UsageError: There is none.
    """
    if (trial := study.engine.trial(number)) is None:
        leased = ", ".join(str(name.trial) for name in sorted(study.engine.leased))
        there = f"programs have {leased or 'none'}"
        raise UsageError(f"{study.past.directory} has no trial {number}; {there}")
    return trial
