"""The command `hptune`."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import re
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from .errors import HptuneError, StudyError, UsageError
from .samplers import AUTO, SEARCH_WORDS

if TYPE_CHECKING:
    from .reporting.progress import Progress
    from .run import RunResult

INTERRUPTED = 130


class Duration(click.ParamType[float]):
    """A length of time such as 90s, 30m, 2h, 1d, or 1h30m; a bare number means seconds."""

    name = "time"
    _UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}  # noqa: RUF012

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Seconds."""
        if isinstance(value, int | float):
            return float(value)
        text = value.strip().lower()
        parts = re.findall(r"(\d+(?:\.\d+)?)([smhd]?)", text)
        if not parts or "".join(number + unit for number, unit in parts) != text:
            self.fail(f"{value!r} is no length of time; say for example 90s, 30m or 2h", param, ctx)
        return sum(float(number) * self._UNITS[unit or "s"] for number, unit in parts)


class Size(click.ParamType[int]):
    """An amount of memory such as 4GB or 512MiB; a bare number means bytes."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Bytes."""
        if isinstance(value, int):
            return value
        found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]?)(i?)b?\s*", value.lower())
        if found is None:
            self.fail(f"{value!r} is no amount of memory; say for example 4GB", param, ctx)
        number, prefix, binary = found.groups()
        power = ["", "k", "m", "g", "t"].index(prefix)
        return int(float(number) * (1024 if binary else 1000) ** power)


class Commands(click.Group):
    """Suggests the command that was meant, and shows our errors without a traceback."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; errors become one message and an exit code."""
        try:
            return super().invoke(ctx)
        except HptuneError as error:
            _show_error(error)
            ctx.exit(2 if isinstance(error, UsageError) else 1)
        except KeyboardInterrupt:
            click.echo("interrupted", err=True)
            ctx.exit(INTERRUPTED)


def _show_error(error: HptuneError) -> None:
    if error.detail:
        click.echo(error.detail, err=True)
        click.echo(err=True)
    click.echo(f"{click.style('Error:', fg='red', bold=True)} {error.message}", err=True)


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="hptune", prog_name="hptune")
def main() -> None:
    """Tune the hyperparameters of Keras models (or of anything else).

    \b
    hptune run model.py --search tpe --trials 50
    hptune best studies/model-1

    The model file offers build_model(hp) and load_data(), a KerasTuner HyperModel,
    or objective(hp, trial). Everything about a study lies in one directory; if a run
    is interrupted in any way, `hptune resume DIR` goes on and nothing is lost.
    """


def _settings_options(command: Callable[..., None]) -> Callable[..., None]:
    """Options that `run` takes, and that `resume` may change."""
    options = [
        click.option(
            "--trials",
            type=int,
            metavar="N",
            help="Total number of trials.  [default: 50; for a grid, all of it]",
        ),
        click.option(
            "--epochs",
            type=int,
            metavar="N",
            help="Epochs of a trial, at most.  [default: EPOCHS of the file, or 10]",
        ),
        click.option(
            "--pruner",
            metavar="NAME",
            help="Stop poor trials early: asha, hyperband, median, or none.  [default: none]",
        ),
        click.option(
            "--reduction-factor",
            type=int,
            metavar="N",
            help="For asha and hyperband: one trial in N goes on at each rung.  [default: 3]",
        ),
        click.option(
            "--min-epochs",
            type=int,
            metavar="N",
            help="No trial is stopped before this epoch.  [default: a twentieth of the epochs]",
        ),
        click.option(
            "--brackets",
            type=int,
            metavar="N",
            help="For hyperband: how many brackets.  [default: as many as there can be]",
        ),
        click.option(
            "--pruner-mode",
            type=click.Choice(["stop", "promote"]),
            help="For asha and hyperband: poor trials stop for good, or pause and may go on later "
            "from their checkpoints.  [default: stop]",
        ),
        click.option(
            "--timeout",
            "timeout_seconds",
            type=Duration(),
            help="How long the study may work in all, such as 2h.",
        ),
        click.option(
            "--trial-timeout",
            "trial_timeout_seconds",
            type=Duration(),
            help="How long one trial may run, such as 30m.",
        ),
        click.option(
            "--workers",
            type=int,
            metavar="N",
            help="Workers on this machine, sharing its cores; each then runs one trial at a time "
            "unless --cpus-per-trial is given.  [default: one, with a trial on each core]",
        ),
        click.option("--cpus-per-trial", type=int, metavar="N", help="CPU cores of a trial."),
        click.option(
            "--gpus-per-trial",
            type=int,
            metavar="N",
            help="GPUs of a trial.  [default: one where there are any]",
        ),
        click.option(
            "--memory-per-trial",
            "memory_per_trial_bytes",
            type=Size(),
            help="Host memory of a trial, such as 4GB.",
        ),
        click.option(
            "--checkpoint-every",
            type=int,
            metavar="N",
            help="Epochs between two checkpoints of a Keras trial; 0 for none.  [default: as few "
            "as take under 3 % of the time]",
        ),
        click.option(
            "--keep-checkpoints",
            type=int,
            metavar="N",
            help="So many of the best trials can be given more epochs later.  [default: 3]",
        ),
        click.option(
            "--confirm",
            type=int,
            metavar="K",
            help="In the end, train the best K configurations again; the best mean wins.",
        ),
        click.option(
            "--confirm-repeats",
            type=int,
            metavar="N",
            help="How often to train each of them again.  [default: 2]",
        ),
        click.option(
            "--max-failures", type=int, metavar="N", help="Stop when more trials than this fail."
        ),
        click.option(
            "--same-failures",
            "same_failure_limit",
            type=int,
            metavar="N",
            help="Stop when the first N trials all fail the same way; 0 for never.  [default: 3]",
        ),
        click.option("-q", "--quiet", is_flag=True, help="Show no progress."),
    ]
    for option in reversed(options):
        command = option(command)
    return command


def _searches() -> str:
    width = max(map(len, SEARCH_WORDS))
    lines = [f"  {name:{width}}  {words}" for name, words in SEARCH_WORDS.items()]
    return "\n".join(("\b", "Searches:", *lines))


@main.command(epilog=_searches())
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
@click.option(
    "--try",
    "start_points",
    multiple=True,
    metavar="POINT",
    help='Try this first: "lr=0.001,units=64", or @FILE.json or @FILE.csv with several. What is '
    "not named takes its default. May be repeated.",
)
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
    help="Metric to optimise; again for several objectives at once.",
)
@click.option("--direction", type=click.Choice(["max", "min"]), help="Which way is better.")
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
@_settings_options
def run(
    model_file: Path,
    study: Path | None,
    direction: str | None,
    start_points: tuple[str, ...],
    quiet: bool,
    **options: Any,
) -> None:
    """Start a study of MODEL_FILE and run it to its end."""
    from .core.beliefs import read_belief
    from .core.trial import Direction
    from .model_file import check_path
    from .points import read_points
    from .run import Watch, start
    from .settings import StudySettings
    from .study_directory import StudyDirectory

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
    _run_and_close(
        directory,
        lambda progress: start(
            settings, directory, watch=Watch(progress, _leaving(directory), is_quiet=quiet)
        ),
        quiet=quiet,
    )


@main.command()
@click.argument("directory", type=click.Path(path_type=Path), metavar="DIR")
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
@_settings_options
def resume(
    directory: Path, accept_space: bool, model_file: Path | None, quiet: bool, **options: Any
) -> None:
    """Go on with the study in DIR, after a stop, a crash, or for more trials.

    --trials is the total: a study of 50 trials resumed with --trials 80 runs 30 more.
    """
    from .model_file import check_path
    from .run import Watch
    from .run import resume as resume_study
    from .study_directory import StudyDirectory

    changes = {name: value for name, value in options.items() if value is not None}
    if model_file is not None:
        changes["source"] = check_path(model_file)
    where = StudyDirectory(directory)
    _run_and_close(
        where,
        lambda progress: resume_study(
            where,
            changes,
            watch=Watch(progress, _leaving(where), is_quiet=quiet),
            accept_space=accept_space,
        ),
        quiet=quiet,
    )


def _leaving(directory: Any) -> Callable[[], None]:
    """What a second Ctrl-C does."""

    def leave() -> None:
        from .interrupts import end_process

        click.echo(f"Left at once. Go on with: hptune resume {directory}", err=True)
        end_process()

    return leave


def _run_and_close(directory: Any, go: Callable[[Progress], RunResult], *, quiet: bool) -> None:
    from .core.messages import Verdict
    from .reporting.display import make_progress
    from .study import Study

    # Until the study runs, which knows better, a SIGTERM is a Ctrl-C: it leaves nothing behind.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    # Python's clean-up behind a process that was left at once is no news to its user.
    sys.warnoptions.append("ignore:resource_tracker:UserWarning")
    # Dask tells of every worker that leaves as if it were a misfortune; ours are told by us.
    logging.getLogger("distributed").setLevel(logging.CRITICAL + 1)
    result = go(make_progress(sys.stderr, quiet=quiet))
    study = Study(directory)
    _echo(study.closing_text(result.finish, seconds=result.seconds))
    if result.finish.verdict is Verdict.INTERRUPTED:
        raise SystemExit(INTERRUPTED)
    if study.view().best is None:
        raise StudyError(
            f"No trial is complete. `hptune status {directory}` says what became of each."
        )


_as_json = click.option("--json", "as_json", is_flag=True, help="As JSON, for programs.")
_study_directory = click.argument("directory", type=click.Path(path_type=Path), metavar="DIR")


@main.command()
@_study_directory
@_as_json
def status(directory: Path, as_json: bool) -> None:
    """Show where the study in DIR stands; it may be running."""
    from .study import Study

    study = Study(directory)
    _echo(study.status_json() if as_json else study.status_text())


@main.command()
@_study_directory
@_as_json
def best(directory: Path, as_json: bool) -> None:
    """Show the best trial of the study in DIR, and where its model lies."""
    from .study import Study

    study = Study(directory)
    # Exits with 1 if there is none.
    _ = study.best_trial
    _echo(study.best_json() if as_json else study.best_text())


@main.command()
@_study_directory
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
    from .study_directory import StudyDirectory

    where = StudyDirectory(directory).open()
    owner = where.owner()
    if owner is None:
        raise StudyError(f"Nobody runs the study in {where}: there is nothing to stop.")
    where.request_stop("asked by `hptune stop`")
    deadline = time.monotonic() + wait_seconds
    while where.owner() is not None:
        if time.monotonic() > deadline:
            raise StudyError(
                f"The master (process {owner.pid} on {owner.host}) was asked to stop, but has not "
                f"let go within {wait_seconds:g} seconds. See `hptune status {where}`."
            )
        time.sleep(0.2)
    click.echo(f"The study is let go. Go on with: hptune resume {where}")


@main.command()
@_study_directory
@_as_json
def replay(directory: Path, as_json: bool) -> None:
    """Run the search of the study in DIR again, and compare its suggestions.

    Nothing is trained: the search is told what the trials gave. Exits with 1 at the
    first suggestion that differs from the study's, and shows both.
    """
    from .replay import replay as replay_study
    from .study_directory import StudyDirectory

    replayed = replay_study(StudyDirectory(directory))
    _echo(replayed.to_json() if as_json else replayed.to_text())
    if replayed.difference is not None:
        raise SystemExit(1)


@main.command()
@_study_directory
@click.option(
    "--format",
    "file_format",
    type=click.Choice(["csv", "json"]),
    default="csv",
    show_default=True,
    help="csv: a row for each trial; json: with attempts and reports.",
)
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), metavar="FILE", help="[default: print it]"
)
def export(directory: Path, file_format: str, output: Path | None) -> None:
    """Write all trials of the study in DIR as a table or as JSON."""
    from .study import Study

    study = Study(directory)
    if output is None:
        with _a_reader_that_may_leave():
            study.export(sys.stdout, file_format=file_format)
        return
    try:
        with output.open("w", newline="", encoding="utf-8") as stream:
            study.export(stream, file_format=file_format)
    except OSError as error:
        raise UsageError(f"{output} cannot be written: {error.strerror}") from error
    click.echo(f"Wrote {output}", err=True)


def _echo(content: str | dict[str, object]) -> None:
    if not isinstance(content, str):
        content = json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False)
    with _a_reader_that_may_leave():
        click.echo(content)


@contextlib.contextmanager
def _a_reader_that_may_leave() -> Iterator[None]:
    """Whoever reads our output, such as `head`, may have seen enough."""
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
