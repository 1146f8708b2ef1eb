"""Commands that read studies: list, status, best, trials, show, log, replay."""

from __future__ import annotations

import io
import os
import shutil
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..errors import StudyError, UsageError
from ..reporting.results.states import STATES
from .commands import (
    PathType,
    SectionedCommand,
    WholeNumber,
    as_json,
    newest_study,
    plain_command,
    study_directory,
)
from .options import setting_option
from .output import echo, output_errors, terminal_width

if TYPE_CHECKING:
    from ..clusters.slurm_master import MasterJob, Masters
    from ..core.attempt import ReportedValue
    from ..core.trial import Trial
    from ..reporting.results.view import StudyView
    from ..reporting.terminal.watch import Watched
    from ..storage.directory import StudyDirectory
    from ..study.study import Study


@plain_command(short_help="Show the state of a study, also while it runs.")
@study_directory
@click.option(
    "--watch", "watches", is_flag=True, help="Show it every second, until the study has stopped."
)
@as_json
def status(directory: Path, *, as_json: bool, watches: bool) -> None:
    """Show the state of the study in DIR, which may be running."""
    from ..clusters.slurm_master import Masters
    from ..storage.directory import StudyDirectory

    found, masters = StudyDirectory(directory), Masters()
    if as_json and watches:
        raise UsageError("--watch and --json are given; leave one of them out")
    if watches:
        from ..reporting.terminal.watch import watch

        with output_errors():
            watch(lambda: _begun(found) or _watched(found, masters), sys.stdout)
        return
    echo(_status_json(found, masters) if as_json else _watched(found, masters).state())


def _begun(found: StudyDirectory) -> Watched | None:
    """Return the state of a study whose first run still reads the model; None of any other."""
    from ..reporting.terminal.watch import Watched

    if found.has_ledger or (owner := found.owner()) is None:
        return None
    words = f"The study in {found} is being started by {owner}, which still reads the model."
    return Watched(lambda: words, is_over=False)


def _watched(found: StudyDirectory, masters: Masters) -> Watched:
    """Return the state of a study, which may also wait in Slurm's queue."""
    from ..clusters.shown_jobs import jobs_text, watched_jobs_text
    from ..reporting.results.summary import status_text
    from ..reporting.results.view import StudyState
    from ..reporting.terminal.watch import Watched
    from ..study.study import Study

    master = masters.job_of(found)
    has_job = master is not None and master.job is not None
    if master is not None and not found.has_ledger:
        queued = f"state    {_state_before(master)}\n{master.text()}"
        return Watched(lambda: queued, not has_job)
    now = time.time()
    view = Study(found, _job_of=masters.job_of).view()

    def state() -> str:
        jobs = jobs_text(found.path, now=now)
        if jobs and view.state is StudyState.MASTER_GONE:
            jobs += (
                "\n         jobs that still run hold their cores until --master-grace ends: hptune "
                f"resume {found} takes them over, hptune stop {found} cancels them"
            )
        words = [status_text(view, now=now, width=terminal_width()), jobs]
        if master is not None and (has_job or view.master is None):
            words.append(master.text())
        return "\n".join(filter(None, words))

    return Watched(state, view.is_over, view, watched_jobs_text(found.path, now=now))


def _state_before(master: MasterJob) -> str:
    """Return the state of a study that its master's job has not made yet."""
    if master.job is None:
        return "not running: no study was made; run the same `hptune run` again"
    if master.waits:
        return "queued: the master's job waits in Slurm, and makes the study when it starts"
    return "starting: the master reads the model and makes the study"


def _status_json(found: StudyDirectory, masters: Masters) -> dict[str, object]:
    from ..clusters.shown_jobs import jobs_json
    from ..reporting.results.summary import status_json
    from ..study.study import Study

    master = masters.job_of(found)
    jobs: dict[str, object] = {} if master is None else {"master_job": master.to_json()}
    if master is not None and not found.has_ledger:
        return {"study": str(found.path), "state": None if master.is_gone else "starting", **jobs}
    if (shown := jobs_json(found.path)) is not None:
        jobs["slurm_jobs"] = shown
    return status_json(Study(found, _job_of=masters.job_of).view(), now=time.time()) | jobs


@plain_command(short_help="Show the best trial and its model.")
@study_directory
@as_json
def best(directory: Path, as_json: bool) -> None:
    """Show the best trial of the study in DIR, and the path of its model.

    If the model was deleted or damaged, the exit code is 1.
    """
    from ..reporting.results.best import best_json, best_text
    from ..storage.directory import StudyDirectory
    from ..study.study import Study, first_of

    study = Study(directory)
    view = study.view()
    first_of(view.front, StudyDirectory(directory))
    fault = study.best_fault(view.front)
    if as_json:
        echo(best_json(view) | {"fault": fault or None})
    else:
        echo(best_text(view, width=terminal_width()))
    if fault:
        raise StudyError(fault)


@plain_command(short_help="Show the trials as a table, the best first.")
@study_directory
@click.option("--top", type=WholeNumber(min=1), metavar="N", help="Show the best N trials only.")
@click.option(
    "--state",
    "states",
    type=click.Choice(STATES),
    multiple=True,
    help="Show trials in this state only. May be repeated.",
)
@as_json
def trials(directory: Path, *, top: int | None, states: tuple[str, ...], as_json: bool) -> None:
    """Show the trials of the study in DIR as a table, the best first.

    The column "from epoch" has the epoch of the shown value: the best one of a complete trial, and
    the last one of any other. Complete trials come first, as the others have trained less. An
    interrupted trial has begun, and continues when the study is resumed.
    """
    from ..reporting.results.trials import ranked, trials_json, trials_text
    from ..study.study import Study

    view, now = Study(directory).view(), time.time()
    chosen = ranked(view, states=states)[:top]
    if as_json:
        echo(trials_json(view, chosen, now=now))
    else:
        echo(trials_text(view, chosen, now=now, width=terminal_width()))


def _one_trial(command: Callable[..., None]) -> Callable[..., None]:
    """Add the arguments DIR, which may be left out, and TRIAL."""
    number = click.argument("number", metavar="TRIAL")
    return click.argument("where", nargs=-1, metavar="[DIR]", type=Path)(number(command))


def _study_and_number(where: tuple[Path, ...], number: str) -> tuple[Study, int]:
    from ..study.study import Study

    if len(where) > 1 or not number.isdecimal():
        given = " ".join(map(str, (*where, number)))
        raise UsageError(
            f"{given!r} does not name a trial; give its study's directory and its number, such as "
            "`studies/model-1 7`, or the number alone for the newest study"
        )
    return Study(where[0] if where else newest_study()), int(number)


@plain_command(short_help="Show all about one trial: its curve, its attempts, why it failed.")
@_one_trial
@as_json
def show(where: tuple[Path, ...], number: str, *, as_json: bool) -> None:
    """Show all about a trial of the study in DIR, by its number TRIAL."""
    from ..core.trial import TrialState
    from ..reporting.results.rungs import why_stopped
    from ..reporting.results.trials import trial_details, trial_text

    study, chosen = _study_and_number(where, number)

    def read(now: Study) -> tuple[Trial, StudyView, list[ReportedValue], list[ReportedValue]]:
        trial = now.trial(chosen)
        asks_why = trial.state is TrialState.PRUNED and not as_json
        return trial, now.view(), now.reports(chosen), now.reports() if asks_why else []

    trial, view, reports, others = study.read(read)
    log_file, now, width = study.log_path(chosen), time.time(), terminal_width()
    if as_json:
        echo(trial_details(view, trial, reports, log=log_file, now=now))
        return
    why = why_stopped(view, others).get(chosen, "") if others else ""
    shown = trial_text(view, trial, reports, log=log_file, now=now, width=width, why_stopped=why)
    echo(shown)


@plain_command(short_help="Print the output of one trial.")
@_one_trial
@click.option(
    "--rank",
    type=WholeNumber(min=0),
    default=0,
    metavar="N",
    help="Process of a parallel trial whose output to print, from 0.  [default: 0]",
)
def log(where: tuple[Path, ...], number: str, rank: int) -> None:
    """Print what a trial of the study in DIR has printed, in all its attempts.

    The path of the file is printed to stderr.
    """
    from .. import text
    from ..files.access import open_plain

    study, trial = _study_and_number(where, number)
    path = study.log_path(trial, rank)
    if path is None:
        of_rank = f"rank {rank} of " if rank else ""
        raise StudyError(
            f"{of_rank}trial {trial} has printed nothing: {text.path(study.directory)} has no log "
            "of it"
        )
    try:
        stream = os.fdopen(open_plain(path, os.O_RDONLY), "rb")
    except OSError as error:
        raise StudyError(f"{text.path(path)} cannot be read: {error.strerror}") from error
    click.echo(f"log: {text.path(path)}", err=True)
    with stream, output_errors():
        if not sys.stdout.isatty():
            shutil.copyfileobj(stream, sys.stdout.buffer)
            return
        for line in io.TextIOWrapper(stream, encoding="utf-8", errors="replace", newline=""):
            sys.stdout.write(text.harmless(line))


@click.command(cls=SectionedCommand, short_help="Show the search space of a model file or a study.")
@click.argument("model_file", type=PathType(path_type=Path), metavar="MODEL_FILE|DIR")
@setting_option("entry")
@as_json
def space(model_file: Path, entry: str | None, as_json: bool) -> None:
    """Show the hyperparameters that MODEL_FILE declares, with their ranges and conditions.

    The file is run in a process of its own, as for a study. Nothing is trained. Of the study in
    DIR, the search space that it has now is shown, and nothing is run.
    """
    from ..core.space.space import SearchSpace
    from ..master.code_reader import read_code
    from ..reporting.results.space import space_json, space_text
    from ..user_code.model_file import check_path

    if model_file.is_dir():
        if entry is not None:
            raise UsageError("--entry is given with a study's directory; it is for a MODEL_FILE")
        from ..study.study import Study

        known = Study(model_file).space
        facts: dict[str, Any] = {"is_complete": None}
    else:
        found = read_code(replace(check_path(model_file), entry=entry or ""))
        known = SearchSpace.from_json(found.space)
        facts = {"warnings": found.warnings, "is_complete": found.is_complete}
    width = terminal_width()
    echo(space_json(known, **facts) if as_json else space_text(known, width=width, **facts))


@plain_command("list", short_help="List studies with their states and best values.")
@click.argument(
    "folder",
    type=PathType(path_type=Path, exists=True, file_okay=False, readable=True),
    metavar="[DIR]",
    required=False,
)
@as_json
def list_studies(folder: Path | None, as_json: bool) -> None:
    """List the studies in and below DIR (studies, if not given), the newest first."""
    from ..clusters.slurm_master import Masters
    from ..reporting.results.listing import list_json, list_text
    from ..study.study import find_directories, listed
    from ..text import path, plural

    others = "`hptune list FOLDER` lists the studies of another folder, `hptune list .` of this one"
    place = Path("studies") if folder is None else folder
    errors: list[OSError] = []
    job_of = Masters().job_of
    found = [listed(each, job_of) for each in find_directories(place, errors.append)]
    if closed := [each.filename for each in errors if not isinstance(each, FileNotFoundError)]:
        words = f"{plural(len(closed), 'folder')} cannot be read, such as {path(closed[0])}"
        click.echo(words, err=True)
    if not found and not as_json:
        where = f"no study is in {place} or in the three levels of folders below it"
        raise UsageError(where if folder else f"{where}; {others}")
    echo(list_json(found) if as_json else list_text(found, width=terminal_width()))
    if folder is None and not as_json:
        click.echo(others, err=True)


@plain_command(short_help="Repeat a study's search and compare its suggestions.")
@study_directory
@as_json
def replay(directory: Path, as_json: bool) -> None:
    """Repeat the search of the study in DIR, and compare its suggestions.

    Nothing is trained: the search gets the results of the study's trials. At the first
    suggestion that differs from the study's, both are shown and the exit code is 1.
    """
    from ..master.replay import replay as replay_study
    from ..storage.directory import StudyDirectory

    replayed = replay_study(StudyDirectory(directory))
    echo(replayed.to_json() if as_json else replayed.text())
    if replayed.difference is not None:
        raise SystemExit(1)
