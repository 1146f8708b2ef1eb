"""Commands for programs that train the trials of a study: ask, tell, report-step and wait."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..config.kinds import duration
from ..core.kinds import named_once
from ..errors import NoTrialError, StudyOverError, UsageError
from .commands import KindType, PathType, WholeNumber, as_json, plain_command
from .output import echo

if TYPE_CHECKING:
    from ..ask_tell.session import Session
    from ..core.trial import Trial
    from ..reporting.results.view import StudyView

STOP = 3
"""Exit code of `hptune report-step` if the trial is to stop."""

TIME_UP = 4
"""Exit code of `hptune wait` if what it waits for did not happen in time."""

_POLL_SECONDS = 0.5

_directory = click.argument("directory", type=PathType(path_type=Path), metavar="DIR")
_trial = click.argument("trial", metavar="TRIAL")
_metrics = click.argument("metrics", nargs=-1, metavar="[NAME=VALUE]...")


def _session(directory: Path) -> Session:
    from ..ask_tell.session import Session
    from ..storage.directory import StudyDirectory

    study = StudyDirectory(directory)
    study.open(
        otherwise=f"`hptune list` shows studies; `hptune run MODEL.PY --study {study}` starts one, "
        "and so does hptune.open_study in a Python program"
    )
    return Session(study)


@plain_command(short_help="Ask a study for a trial, which your own program trains.")
@_directory
@click.option("--count", type=WholeNumber(min=1), default=1, metavar="N", help="Ask for N trials.")
@click.option(
    "--lease",
    "lease_seconds",
    type=KindType(duration()),
    default=3600.0,
    help="How long a trial may report nothing before another program gets it.  [default: 1h]",
)
@as_json
def ask(directory: Path, count: int, lease_seconds: float, *, as_json: bool) -> None:
    """Print the next trial of the study in DIR, which no other program has.

    \b
    hptune ask DIR                        17.0 lr=0.003 units=64
    hptune ask DIR --json                 {"trial": 17, "attempt": "17.0", "params": {...}, ...}

    Train it, and tell its result by `hptune tell`. A study is made by hptune.open_study in Python,
    or by `hptune run`. No master need run.

    The exit code is 1 if there is no trial: with --json, "over" says whether there will be none.
    """
    from ..ask_tell.trial import asked_trials
    from ..text import exact_assignments

    try:
        found = asked_trials(_session(directory), count, lease_seconds=lease_seconds)
    except NoTrialError as error:
        if as_json:
            is_over = isinstance(error, StudyOverError)
            echo(json.dumps({"trial": None, "over": is_over, "reason": error.message}))
            raise SystemExit(1) from None
        raise
    for trial in found:
        if not as_json:
            echo(" ".join((str(trial.attempt), *exact_assignments(trial.params))))
            continue
        shown = {
            "trial": trial.number,
            "attempt": str(trial.attempt),
            "params": dict(trial.params),
            "seed": trial.seed,
            "epochs": trial.epochs,
            "resumed_from": trial.resumed_from,
            "lease_seconds": lease_seconds,
        }
        echo(json.dumps(shown))


@plain_command(short_help="Tell the result of a trial that your program has trained.")
@_directory
@_trial
@_metrics
@click.option("--failed", metavar="WHY", help="It has no result, for this reason.")
@click.option("--release", is_flag=True, help="Give it back: another program gets it.")
@as_json
def tell(
    directory: Path,
    trial: str,
    metrics: tuple[str, ...],
    failed: str | None,
    *,
    release: bool,
    as_json: bool,
) -> None:
    """Tell the result of TRIAL of the study in DIR, once.

    \b
    hptune tell DIR 17 val_loss=0.93
    hptune tell DIR 17.0 --failed "diverged"

    TRIAL is a number that `hptune ask` printed. 17.0 names the attempt too: it is refused if
    another program has the trial meanwhile. What was reported last need not be repeated.
    """
    from ..ask_tell.trial import asked_trial

    given = _read_metrics(metrics)
    if sum((bool(given), failed is not None, release)) > 1:
        raise UsageError("give one of: a result as NAME=VALUE, --failed, and --release")
    of_program = asked_trial(_session(directory), trial)
    if release:
        told = of_program.release()
    elif failed is not None:
        told = of_program.fail(failed)
    else:
        told = of_program.tell(**given)
    _show(told, as_json=as_json)


@plain_command("report-step", short_help="Report how a trial goes; learn whether it is to stop.")
@_directory
@_trial
@_metrics
@click.option("--step", type=int, required=True, metavar="N", help="The epoch, or such, from 1 on.")
@as_json
def report_step(
    directory: Path, trial: str, metrics: tuple[str, ...], step: int, *, as_json: bool
) -> None:
    """Report metrics of TRIAL after a step, and print whether it is to continue or to stop.

    \b
    hptune report-step DIR 17 --step 3 val_loss=0.4 || break

    The exit code is 0 to continue and 3 to stop. Then end the training, and tell the trial without
    a result: it is pruned, paused for better ones, or the study ends. Each report renews the lease.
    """
    from ..ask_tell.trial import asked_trial
    from ..training.context import NonFiniteMetric

    asked = asked_trial(_session(directory), trial)
    try:
        asked.report(step, **_read_metrics(metrics))
        reason = "" if asked.halt is None else asked.halt.reason
    except NonFiniteMetric as error:
        reason = str(error)
    except (TypeError, ValueError) as error:
        raise UsageError(str(error)) from None
    answer = {"continue": not reason, "reason": reason or None}
    echo(json.dumps(answer) if as_json else f"stop: {reason}" if reason else "continue")
    if reason:
        raise SystemExit(STOP)


@plain_command(short_help="Wait until something happens in a study.")
@_directory
@click.option(
    "--until",
    type=click.Choice(["trial", "best", "failed", "end"]),
    default="end",
    help="A trial is over, a better one is, one has failed, or the study has ended.  [default: "
    "end]",
)
@click.option(
    "--timeout",
    "timeout_seconds",
    type=KindType(duration()),
    default=None,
    help="Longest time to wait.  [default: none]",
)
@as_json
def wait(directory: Path, until: str, timeout_seconds: float | None, *, as_json: bool) -> None:
    """Wait until something happens in the study in DIR, and print it as one line.

    What has happened before the command began does not count, but for the end of the study. The
    exit code is 1 if the study ends without it, and 4 after the --timeout.
    """
    from ..clusters.slurm_master import Masters
    from ..storage.directory import StudyDirectory
    from ..study.study import Study

    found, masters = StudyDirectory(directory), Masters()
    give_up_at = None if timeout_seconds is None else time.monotonic() + timeout_seconds

    def pause() -> None:
        if give_up_at is not None and time.monotonic() > give_up_at:
            missing = f"it did not happen within --timeout: --until {until}"
            echo(json.dumps({"timeout": True}) if as_json else missing)
            raise SystemExit(TIME_UP)
        time.sleep(_POLL_SECONDS)

    is_new = not found.has_ledger
    # Whether it is about to begin, its view says once there is a ledger.
    while not found.has_ledger and (found.owner() is not None or masters.may_have_job(found)):
        pause()
    study = Study(found, _job_of=masters.job_of)
    # A trial that begins again, or trains on, ends again with more attempts.
    first = study.view()
    known = {(t.number, t.attempts) for t in first.trials if t.state.is_final and not is_new}
    best = None if is_new else first.best
    while True:
        view = study.view()
        ended = [t for t in view.trials if t.state.is_final and (t.number, t.attempts) not in known]
        if (trial := _awaited(until, ended, best, view.best)) is not None:
            _show(trial, as_json=as_json)
            return
        if view.is_over:
            _show_end(view, as_json=as_json)
            raise SystemExit(0 if until == "end" else 1)
        pause()


def _awaited(
    until: str, ended: Sequence[Trial], before: Trial | None, best: Trial | None
) -> Trial | None:
    """Return the trial that was waited for; None if it is not there."""
    match until:
        case "best":
            is_same = best and before and best.values == before.values  # it may train on
            return None if is_same else best
        case "failed":
            return next((each for each in ended if each.state == "failed"), None)
        case "trial":
            return next(iter(ended), None)
        case _:
            return None


def _show_end(view: StudyView, *, as_json: bool) -> None:
    from ..reporting.results.summary import state_without_master

    words = f"{state_without_master(view)}: {view.progress}"
    shown = {"ended": True, "state": str(view.state), "progress": view.progress}
    echo(json.dumps(shown) if as_json else words)


def _show(trial: Trial, *, as_json: bool) -> None:
    value = "" if trial.value is None else f" {trial.value:.6g}"
    why = f" ({trial.reason})" if trial.reason else ""
    shown: dict[str, Any] = {
        "trial": trial.number,
        "state": str(trial.state),
        "value": trial.value,
        "reason": trial.reason or None,
    }
    line = f"trial {trial.number}: {str(trial.state).lower()}{value}{why}"
    echo(json.dumps(shown) if as_json else line)


def _read_metrics(given: Sequence[str]) -> dict[str, float]:
    metrics = []
    for pair in given:
        name, equals, value = pair.partition("=")
        try:
            metrics.append((name, float(value)))
        except ValueError:
            equals = ""
        if not (name and equals):
            raise UsageError(
                f"{pair!r} is no metric; allowed is NAME=NUMBER, such as val_loss=0.93"
            )
    return named_once(metrics, "the command")
