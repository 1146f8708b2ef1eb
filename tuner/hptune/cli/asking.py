"""Commands that ask a running study for something: stop, pause, enqueue."""

from __future__ import annotations

import contextlib
import math
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..config.kinds import duration
from ..core.clock import polls
from ..core.user_requests import UserAction
from ..errors import NoStudyError, StudyError, StudyLockedError, UsageError
from .commands import KindType, WholeNumber, newest_study, plain_command, study_directory
from .output import echo

if TYPE_CHECKING:
    from ..config.start_points import Point
    from ..storage.directory import StudyDirectory
    from ..storage.lease import LockOwner

_POLL_SECONDS = 0.2
_SILENT_SECONDS = 2.0
"""How long a command waits before it says what it waits for."""

_NUMBER_SECONDS = 5.0
"""How long to wait for the number of a trial that was added."""

_wait = click.option(
    "--wait",
    "wait_seconds",
    type=KindType(duration()),
    default=60.0,
    help="Longest time to wait until it has stopped.  [default: 60s]",
)


@plain_command(short_help="Stop a running study, or one of its trials.")
@study_directory
@click.option("--trial", type=WholeNumber(min=0), metavar="N", help="Stop only this trial.")
@_wait
def stop(directory: Path, trial: int | None, wait_seconds: float) -> None:
    """Stop the running study in DIR, and wait until it has stopped.

    Trials write a checkpoint first. `hptune resume DIR` continues the study later.

    With --trial N, only that trial stops, for good, whether it runs, waits or is paused. It is
    PRUNED, with the value of its last report, and its place is free for the next one.
    """
    from ..storage.directory import StudyDirectory

    study = StudyDirectory(directory)
    if trial is None:
        _stop_study(study, wait_seconds)
    else:
        _stop_trial(study, trial, wait_seconds)


def _stop_study(study: StudyDirectory, wait_seconds: float) -> None:
    from ..clusters.slurm_master import cancel_jobs
    from ..storage.ledger import LedgerReader

    if (owner := study.owner()) is not None:
        _stop_master(study, owner, wait_seconds)
    # One that was killed, or has left all to its next job, seems to be there for a minute.
    if (owner is None or not _has_ended(study)) and cancel_jobs(study):
        _record_stop(study)
        follows = f"Continue with: hptune resume {study}"
        if not study.has_ledger:
            follows = "No study was made yet; to start it, run the same `hptune run` again"
        click.echo(f"The study's Slurm jobs are cancelled. {follows}")
    elif owner is not None:
        click.echo(f"The study has stopped; {what_next(study)}")
    else:
        study.open()
        if not (LedgerReader(study).run_state().without_master and _stop_programs(study)):
            raise StudyError(f"the study in {study} is not running, so there is nothing to stop")
        echo(
            "The study has stopped: programs that have its trials learn it at their next reports. "
            f"Continue with: hptune resume {study}"
        )


def _stop_master(study: StudyDirectory, owner: LockOwner, wait_seconds: float) -> None:
    from ..storage.asking import send

    send(study, UserAction.STOP, tool="hptune stop")
    tell_at = time.monotonic() + _SILENT_SECONDS
    for _ in polls(wait_seconds, _POLL_SECONDS):
        if study.owner() is None:
            return
        if time.monotonic() > tell_at:
            click.echo(f"waiting until process {owner.pid} on {owner.host} has stopped …", err=True)
            tell_at = math.inf
    raise StudyError(
        f"the study's master (process {owner.pid} on {owner.host}) was asked to stop, but "
        f"still runs after {wait_seconds:g} seconds. See `hptune status {study}`."
    )


def _has_ended(study: StudyDirectory) -> bool:
    """Return whether the last master has recorded its end, and left the study to no other."""
    from ..core.messages import FinishReason
    from ..storage.ledger import LedgerReader

    ended = LedgerReader(study).facts()["ended"] if study.has_ledger else None
    return ended is not None and ended["finish_reason"] != FinishReason.HANDED_OVER


def _stop_programs(study: StudyDirectory) -> bool:
    from ..ask_tell.session import Session
    from ..storage.asking import new_request

    return Session(study).stop(new_request(UserAction.STOP, tool="hptune stop").stop_reason)


def _record_stop(study: StudyDirectory) -> None:
    """Record that a study waits for no job any more."""
    from ..core.messages import FinishReason
    from ..storage.asking import new_request
    from ..storage.ledger import Ledger
    from ..storage.whose import Use

    if not study.has_ledger:
        return
    with (
        contextlib.suppress(StudyError, UsageError),  # another user's, whose jobs are not here
        study.open(Use.WRITE).acquire(is_brief=True) as lock,
        Ledger.open(study, lock=lock) as ledger,
    ):
        ended = ledger.facts["ended"]
        if ended is not None and ended["finish_reason"] == FinishReason.HANDED_OVER:
            reason = new_request(UserAction.STOP, tool="hptune stop").stop_reason
            ended = {"finish_reason": str(FinishReason.INTERRUPTED), "reason": reason}
        ledger.set_facts({"ended": ended, "submitted": False})


def _stop_trial(study: StudyDirectory, number: int, wait_seconds: float) -> None:
    from .. import text
    from ..storage.asking import ask
    from ..study.study import Study

    ask(study, UserAction.STOP_TRIAL, tool="hptune stop", trial=number, wait_seconds=wait_seconds)
    results = Study(study)
    for is_last in polls(wait_seconds, _POLL_SECONDS):
        if (trial := results.trial(number)).state.is_final:
            break
        if is_last:
            raise StudyError(
                f"trial {number} was told to stop, but is {trial.state.lower()} after "
                f"{wait_seconds:g} seconds. See `hptune log {study} {number}`"
            )
    metric = text.clean(results.goal.metric)
    value = "no value" if trial.value is None else f"{metric} {text.measured(trial.value)}"
    step = "" if trial.step is None else f" at step {trial.step}"
    echo(f"Trial {number} is {trial.state.lower()}: {value}{step}")


def what_next(directory: StudyDirectory) -> str:
    """Return how a study that was stopped is continued, in words."""
    exists = directory.has_ledger
    return f"continue with: hptune resume {directory}" if exists else "no study was made yet"


@plain_command(short_help="Start no more trials in a running study, until `hptune resume`.")
@study_directory
def pause(directory: Path) -> None:
    """Pause the running study in DIR: no trial starts until `hptune resume DIR`.

    Trials that run continue. Slurm jobs of --slurm are cancelled when no trial runs on them, and
    submitted again by `hptune resume`. Other workers stay, with their devices; `hptune stop` frees
    them.
    """
    from ..config.plugins import pause_text
    from ..storage.asking import ask
    from ..storage.directory import StudyDirectory
    from ..storage.ledger import LedgerReader

    study = StudyDirectory(directory)
    ask(study, UserAction.PAUSE, tool="hptune pause")
    follows = pause_text(directory, LedgerReader(study).facts()["settings"])
    echo(f"The study is paused: {follows}. Start more trials with: hptune resume {study}")


def resume_paused(directory: Path) -> bool:
    """Let a running study that is paused start trials again; return whether it was."""
    from ..storage.asking import ask
    from ..storage.directory import StudyDirectory
    from ..storage.ledger import LedgerReader

    study = StudyDirectory(directory)
    try:
        reader = LedgerReader(study)
        if study.owner() is None or not reader.run_state().paused_by:
            return False
    except NoStudyError:
        return False
    ask(study, UserAction.RESUME, tool="hptune resume")
    echo("The study is resumed: new trials start again")
    return True


def refuse_while_it_runs(directory: Path, changes: Mapping[str, object]) -> None:
    """Check that a study does not run if settings are to be changed.

    Raises:
        StudyLockedError: The study runs; the message says how to ask it for what is wanted.
    """
    from ..storage.directory import StudyDirectory
    from ..storage.ledger import LedgerReader

    study = StudyDirectory(directory)
    if not changes or not study.database.exists() or study.owner() is None:
        return
    if set(changes) == {"start_points"}:
        raise StudyLockedError(
            f"the study in {study} is running; enqueue a trial with "
            f"`hptune enqueue {study} NAME=VALUE …`"
        )
    if LedgerReader(study).run_state().paused_by:
        raise StudyLockedError(
            f"the study in {study} is paused, and its settings cannot change while it runs. "
            f"`hptune resume {study}` without options starts trials again; to change settings, "
            f"end it first with `hptune stop {study}`"
        )


@plain_command(short_help="Enqueue a trial with given values in a running study.")
@click.argument("words", nargs=-1, metavar="[DIR] NAME=VALUE ...")
def enqueue(words: tuple[str, ...]) -> None:
    """Enqueue a trial with these values in the running study in DIR. It runs next.

    \b
    hptune enqueue DIR lr=0.01 units=64
    hptune enqueue DIR '{"lr": 0.01, "units": 64}'
    hptune enqueue DIR @points.csv                    a trial for each line

    Hyperparameters that are not given have their defaults, as with --try. The trial is one of
    --trials; when all of them exist, the study runs it in addition.
    """
    from ..core.space.space import SearchSpace
    from ..storage.asking import ask
    from ..storage.directory import StudyDirectory
    from ..storage.ledger import LedgerReader

    is_value = bool(words) and ("=" in words[0] or words[0].startswith(("@", "{")))
    # Unlike Path.is_dir, it is false for a text that is too long for a name.
    has_directory = bool(words) and (not is_value or os.path.isdir(words[0]))  # noqa: PTH112
    directory, values = (words[0], words[1:]) if has_directory else (None, words)
    if not values:
        raise UsageError(
            "no value is given; give name=value pairs, such as `hptune enqueue DIR lr=0.01 "
            "units=64`. `hptune space DIR` shows the names"
        )
    # Pairs are one configuration; each other argument has its own.
    pairs = [value for value in values if "=" in value and not value.startswith(("@", "{"))]
    texts = filter(None, [",".join(pairs), *(value for value in values if value not in pairs)])
    study = StudyDirectory(newest_study() if directory is None else Path(directory))
    points = [point for each in texts for point in _read(each, study)]
    answer = ask(study, UserAction.ENQUEUE, tool="hptune enqueue", points=points)
    reader = LedgerReader(study)
    space = SearchSpace.from_json(reader.facts()["space"])
    wanted = {space.key(each.params) for each in answer.added}
    for _ in polls(_NUMBER_SECONDS, _POLL_SECONDS):
        found = [trial for trial in reader.trials() if space.key(trial.params) in wanted]
        # The sampler, whose answer has the next numbers, may take its time.
        if len(found) >= len(wanted):
            break
    named = ", ".join(str(trial.number) for trial in found)
    word = "trial" if len(answer.added) == 1 else "trials"
    echo(f"Enqueued {word} {named}" if named else f"Enqueued {len(answer.added)} {word}")


def _read(given: str, study: StudyDirectory) -> list[Point]:
    """Return the configurations of one argument; those of a file lie in the study's space.

    Raises:
        UsageError: They cannot be read; or one of a file is not in the space, with its place.
    """
    from ..config.start_points import read_points
    from ..core.space.completion import completed
    from ..core.space.space import SearchSpace
    from ..storage.ledger import LedgerReader

    points = read_points(given, "hptune enqueue")
    if not given.startswith("@"):
        return points
    space = SearchSpace.from_json(LedgerReader(study).facts()["space"])
    is_table = given.lower().endswith(".csv")
    for number, point in enumerate(points, start=1):
        try:
            completed(space, point)
        except UsageError as error:
            place = f"line {number + 1}" if is_table else f"configuration {number}"
            raise UsageError(f"{given[1:]}, {place}: {error.message}") from error
    return points
