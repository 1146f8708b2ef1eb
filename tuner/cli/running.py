"""Commands that run a study: run, resume, stop."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..errors import StudyError
from ..samplers.registry import AUTO, SEARCH_WORDS
from .options import settings_options, settled_options, start_points_option, study_directory
from .output import INTERRUPTED, echo, last_words
from .sections import SectionedCommand
from .values import Duration

if TYPE_CHECKING:
    from ..master.run import RunResult
    from ..reporting.terminal.progress import Progress


class _Repeatable(SectionedCommand):
    """Remembers what it was given, so that a detached master can be started with the same."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """As click has it."""
        ctx.meta[_ARGUMENTS] = [str(ctx.info_name), *args]
        return super().parse_args(ctx, args)


_ARGUMENTS = "hptune.arguments"

_detach = click.option(
    "--detach",
    is_flag=True,
    help="With --slurm: make the master a small Slurm job too, and return when Slurm has accepted "
    "it.",
)


def _arguments(*more: str) -> list[str]:
    """What the command was given, but for --detach."""
    given: list[str] = click.get_current_context().meta[_ARGUMENTS]
    return [*(each for each in given if each != "--detach"), *more]


def _searches() -> str:
    width = max(map(len, SEARCH_WORDS))
    lines = [f"  {name:{width}}  {words}" for name, words in SEARCH_WORDS.items()]
    return "\n".join(("\b", "Searches:", *lines))


@click.command(
    cls=_Repeatable, epilog=_searches(), short_help="Start a study, and run it to its end."
)
@click.argument("model_file", type=click.Path(path_type=Path))
@click.option(
    "--search",
    default=AUTO,
    show_default=True,
    metavar="NAME",
    help="How to search; see below.",
)
@click.option(
    "--surrogate",
    metavar="MODEL",
    help="For --search skopt: gp, forest, extra-trees, or gbrt.  [default: gp]",
)
@click.option(
    "--grid-points",
    "grid_resolution",
    type=int,
    metavar="N",
    help="For --search grid: values taken of each continuous parameter.  [default: 10]",
)
@start_points_option("first")
@click.option(
    "--warm-start",
    multiple=True,
    metavar="DIR",
    help="Learn from the earlier study in DIR, and try its best configuration first. The spaces "
    "may differ in part. May be repeated.",
)
@click.option(
    "--prior",
    "priors",
    multiple=True,
    metavar="NAME~PRIOR",
    help='Where good values are expected: "lr~lognormal(0.001,0.5)", "units~normal(128,64)", or '
    'weights of choices: "act~{relu:3,tanh:1}". May be repeated.',
)
@click.option(
    "--objective",
    "objectives",
    multiple=True,
    metavar="METRIC[:min|:max]",
    help="Metric to optimise; again for several objectives at once.  [default: OBJECTIVE of the "
    "file, or val_accuracy, or val_loss]",
)
@click.option(
    "--direction",
    type=click.Choice(["max", "min"]),
    help="Which way is better.  [default: by the metric's name]",
)
@click.option(
    "--constraint",
    "constraints",
    multiple=True,
    metavar="METRIC<NUMBER",
    help="What to keep to, such as 'params<2e6'; with <, <=, > or >=; may be repeated.",
)
@click.option(
    "--study",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Where to keep the study.  [default: studies/MODEL_FILE-N]",
)
@click.option("--seed", type=int, metavar="S", help="Makes a run repeat itself.")
@click.option(
    "--executor",
    type=click.Choice(["dask", "joblib"]),
    default="dask",
    show_default=True,
    help="Who carries the trials to the cores.",
)
@_detach
@settings_options
def run(
    model_file: Path,
    study: Path | None,
    *,
    direction: str | None,
    start_points: tuple[str, ...],
    quiet: bool,
    detach: bool,
    **options: Any,
) -> None:
    """Start a study of MODEL_FILE and run it to its end.

    \b
    hptune run model.py                               50 trials, as many at once as fit
    hptune run model.py --trials 200 --pruner asha    poor trials stop early
    hptune run model.py --timeout 8h --study DIR      for eight hours, kept in DIR

    MODEL_FILE says what may vary and how it is trained; see `hptune --help`. What is
    not said here is taken from the file or chosen, and then told.
    """
    from ..config.model_file import check_path
    from ..config.settings import StudySettings
    from ..config.start_points import read_points
    from ..core.space.user_priors import read_belief
    from ..core.trial import Direction
    from ..master.observers import RunDisplay
    from ..master.run import start
    from ..storage.directory import StudyDirectory

    priors = dict(map(read_belief, options.pop("priors")))
    said = {name: value for name, value in options.items() if value is not None}
    settings = StudySettings(
        source=check_path(model_file),
        working_directory=str(Path.cwd()),
        direction=None if direction is None else Direction(direction),
        start_points=[point for each in start_points for point in read_points(each)],
        priors=priors,
        **said,
    )
    directory = StudyDirectory.free(model_file.stem) if study is None else StudyDirectory(study)
    if detach:
        from ..master.detached import detach_new

        where = [] if study else ["--study", str(directory.path)]
        echo(detach_new(settings, directory, _arguments(*where)))
        return
    _run_and_close(
        directory,
        lambda progress: start(
            settings, directory, watch=RunDisplay(progress, _leaving(directory), is_quiet=quiet)
        ),
        quiet=quiet,
    )


@click.command(cls=_Repeatable, short_help="Go on after a stop or a crash, or for more trials.")
@click.argument(
    "directory", type=click.Path(path_type=Path), metavar="DIR", is_eager=True
)  # first of all, since messages about the options name it
@click.option(
    "--accept-space",
    is_flag=True,
    help="Go on although the model file now declares another search space.",
)
@click.option(
    "--model-file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Where the model file is now, if it was moved.",
)
@start_points_option("next")
@_detach
@settings_options
@settled_options
def resume(
    directory: Path,
    *,
    accept_space: bool,
    model_file: Path | None,
    start_points: tuple[str, ...],
    quiet: bool,
    detach: bool,
    **options: Any,
) -> None:
    """Go on with the study in DIR, after a stop, a crash, or for more trials.

    Numbers are totals: a study of 50 trials resumed with --trials 80 runs 30 more.
    """
    from ..config.model_file import check_path
    from ..config.start_points import read_points
    from ..master.observers import RunDisplay
    from ..master.run import resume as resume_study
    from ..storage.directory import StudyDirectory

    changes = {name: value for name, value in options.items() if value is not None}
    if model_file is not None:
        changes["source"] = check_path(model_file)
    where = StudyDirectory(directory)
    tries = [point for each in start_points for point in read_points(each)]
    if detach:
        from ..master.detached import detach_again

        echo(detach_again(changes, where, _arguments(), accept_space=accept_space, tries=tries))
        return
    _run_and_close(
        where,
        lambda progress: resume_study(
            where,
            changes,
            watch=RunDisplay(progress, _leaving(where), is_quiet=quiet),
            accept_space=accept_space,
            tries=tries,
        ),
        quiet=quiet,
    )


def _leaving(directory: Any) -> Callable[[], None]:
    """What a second Ctrl-C does."""

    def leave() -> None:
        from ..master.stop_requests import end_process

        last_words(f"Left at once. Go on with: hptune resume {directory}", sys.stderr)
        end_process()

    return leave


def _run_and_close(directory: Any, go: Callable[[Progress], RunResult], *, quiet: bool) -> None:
    from ..core.messages import FinishReason
    from ..core.trial import TrialState
    from ..reporting.terminal.display import make_progress
    from ..reporting.text import counts
    from ..study import Study

    # Until the study runs, which knows better, a SIGTERM is a Ctrl-C: it leaves nothing behind.
    for each in (signal.SIGTERM, signal.SIGUSR1):
        signal.signal(each, signal.default_int_handler)
    # Python's clean-up behind a process that was left at once is no news to its user.
    sys.warnoptions.append("ignore:resource_tracker:UserWarning")
    progress = make_progress(sys.stderr, quiet=quiet)
    try:
        result = go(progress)
    except KeyboardInterrupt:
        progress.stop()
        there = directory.database.exists()
        what = f"go on with: hptune resume {directory}" if there else "no study was made yet"
        last_words(f"interrupted; {what}", sys.stderr)
        raise SystemExit(INTERRUPTED) from None
    finally:
        # Before anything else is printed, what was told so far.
        progress.stop()
    study = Study(directory)
    last_words(study.closing_text(result.finish, seconds=result.seconds), sys.stdout)
    if result.finish.finish_reason is FinishReason.INTERRUPTED:
        raise SystemExit(INTERRUPTED)
    view = study.view()
    if view.best is None:
        words = f"no trial is complete: {counts(view.counts) if view.trials else 'none began'}."
        if view.counts.get(TrialState.FAILED):
            words += f" `hptune status {directory}` says why they failed."
        if result.finish.finish_reason is FinishReason.DONE and view.budget_trials is not None:
            more = 2 * view.budget_trials
            words += f" `hptune resume {directory} --trials {more}` tries others."
        raise StudyError(words)


@click.command(short_help="Let a running study go; nothing is lost.")
@study_directory
@click.option(
    "--wait",
    "wait_seconds",
    type=Duration(),
    default=60.0,
    show_default="60s",
    help="How long to wait for it.",
)
def stop(directory: Path, wait_seconds: float) -> None:
    """Ask the master of the study in DIR to let go; nothing is lost.

    Waits until it has. `hptune resume DIR` goes on later.
    """
    from ..master.detached import cancel_jobs
    from ..storage.directory import StudyDirectory

    where = StudyDirectory(directory)
    owner = where.owner()
    if owner is None and cancel_jobs(where):
        click.echo(f"The study's Slurm jobs are cancelled. Go on with: hptune resume {where}")
        return
    where.open()
    if owner is None:
        raise StudyError(f"nobody runs the study in {where}: there is nothing to stop.")
    where.request_stop("asked by `hptune stop`")
    deadline = time.monotonic() + wait_seconds
    while where.owner() is not None:
        if time.monotonic() > deadline:
            raise StudyError(
                f"the master (process {owner.pid} on {owner.host}) was asked to stop, but has not "
                f"let go within {wait_seconds:g} seconds. See `hptune status {where}`."
            )
        time.sleep(0.2)
    click.echo(f"The study is let go. Go on with: hptune resume {where}")
