"""Commands that run a study: run, resume."""

from __future__ import annotations

import contextlib
import importlib.util
import signal
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from ..core.table import Section
from ..errors import StudyError, UsageError
from .asking import refuse_while_it_runs, resume_paused, what_next
from .commands import PathType, SectionedCommand, option_in, path_option, study_directory, wants_all
from .options import resumable_options, settings_options
from .output import INTERRUPTED, echo, print_last
from .programs import program, refuse_arguments, run_script, source_of_program, written

if TYPE_CHECKING:
    from ..config.asked import Asked
    from ..master.observers import RunDisplay
    from ..master.run import RunResult
    from ..reporting.terminal.progress import Progress
    from ..storage.directory import StudyDirectory
    from ..user_code.source import ObjectiveSource


class _RecordedCommand(SectionedCommand):
    """A command that remembers its arguments, so that a detached master is started with them."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments."""
        ctx.meta[_ARGUMENTS] = [str(ctx.info_name), *args]
        return super().parse_args(ctx, args)


_ARGUMENTS = "hptune.arguments"

_detach = option_in(
    Section.PLACE,
    "--detach",
    is_flag=True,
    help="With --slurm: run hptune itself in a small Slurm job too; this command ends when Slurm "
    "has accepted it.",
)
_quiet = click.option("-q", "--quiet", is_flag=True, help="Show no progress.")


def _arguments(*more: str) -> list[str]:
    """Return the command's arguments without --detach, and more."""
    given: list[str] = click.get_current_context().meta[_ARGUMENTS]
    name, *words = (each for each in given if each != "--detach")
    return [name, *more, *words]  # what follows a "--" is no option


_RARE_LISTS = ("Clusters", "Executors")
"""What only the rare options name."""


class _RunCommand(_RecordedCommand):
    """The command `run`, whose help ends with what settings name."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments; those of a script follow a `--`."""
        rest = super().parse_args(ctx, [*args])
        after = len(args) - args.index("--") - 1 if "--" in args else 0
        given: tuple[str, ...] = ctx.params["script_arguments"]
        if before := given[: max(0, len(given) - after)]:
            raise UsageError(
                f"unexpected arguments: {' '.join(before)}; a study has one MODEL_FILE"
            )
        return rest

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the lists of what settings name, such as search methods."""
        from ..config.reference import NAMED, summaries

        for title, registry in NAMED.items():
            if title in _RARE_LISTS and not wants_all(ctx):
                continue
            with formatter.section(title):
                formatter.write_dl([*summaries(registry).items()])


@click.command(cls=_RunCommand, short_help="Start a study and run it to its end.")
@click.argument("model_file", type=PathType(path_type=Path), required=False)
@click.argument(
    "script_arguments", nargs=-1, type=click.UNPROCESSED, metavar="[-- SCRIPT_ARGUMENTS...]"
)
@option_in(
    Section.GOAL,
    "--command",
    metavar="PROGRAM",
    help="Instead of MODEL_FILE: a program and its arguments, in which {lr} stands for the value "
    "of the hyperparameter lr. It prints its metrics as lines of JSON.",
)
@path_option(
    "--space",
    section=Section.GOAL,
    text="With --command: a TOML or JSON file with the hyperparameters.",
)
@path_option(
    "--study",
    metavar="DIR",
    text="Directory of the study, which must hold none yet.  [default: studies/MODEL_FILE-N]",
)
@_quiet
@_detach
@settings_options
def run(
    model_file: Path | None,
    script_arguments: tuple[str, ...],
    command: str | None,
    space: Path | None,
    study: Path | None,
    *,
    quiet: bool,
    detach: bool,
    **options: Any,
) -> None:
    """Start a study of MODEL_FILE, or of a program, and run it to its end.

    \b
    hptune run model.py                               50 trials, as many at once as fit
    hptune run model.py --trials 200 --pruner asha    stop poor trials early
    hptune run model.py --timeout 8h --study DIR      for eight hours, stored in DIR
    hptune run script.py -- --tune                    a script of KerasTuner, as it is
    hptune run --command "python train.py --lr {lr}" --space space.toml --objective val_loss

    MODEL_FILE defines the hyperparameters and the training; see `hptune --help`.
    """
    from ..config.asked import asked
    from ..config.settings import StudySettings
    from ..user_code.model_file import check_path
    from ..user_code.scripts import is_keras_tuner_script
    from ..user_code.source_checks import check_source, check_syntax

    given = _given(options)
    # First, and before the imports that a study needs: most mistakes are found here.
    if command is None and space is None and model_file is not None:
        python = given.get("python", "")
        source = check_path(model_file, python)
        if not given.get("entry") and is_keras_tuner_script(check_syntax(model_file, python)):
            run_script(model_file, script_arguments, given, study=study, quiet=quiet, detach=detach)
            return
        refuse_arguments(script_arguments, model_file.name)
        request = asked(StudySettings(source=source, **given))
        early = None
        if not detach and not python:
            check_source(model_file, has_entry=bool(given.get("entry")))
            early = request.settings.source
        directory = _directory(study, model_file.stem)
        _start(request, directory, study=study, quiet=quiet, detach=detach, early=early)
        return
    refuse_arguments(script_arguments, "--command")
    request, text, name = program(model_file, command, space, given)
    directory = _directory(study, name)
    with written(directory, text):
        settings = replace(request.settings, source=source_of_program(directory.path))
        request = replace(request, settings=settings)
        _start(request, directory, study=study, quiet=quiet, detach=detach)


def _directory(study: Path | None, name: str) -> StudyDirectory:
    from ..storage.directory import StudyDirectory

    return StudyDirectory.free(name) if study is None else StudyDirectory(study)


def _start(
    request: Asked,
    directory: StudyDirectory,
    *,
    study: Path | None,
    quiet: bool,
    detach: bool,
    early: ObjectiveSource | None = None,
) -> None:
    def go(display: RunDisplay) -> RunResult:
        from ..master.run import start

        return start(request, directory, display=display)

    try:
        if detach:
            from ..master.detached import detach_new

            # SIGTERM raises KeyboardInterrupt as Ctrl-C does, so that no folder is left.
            signal.signal(signal.SIGTERM, signal.default_int_handler)
            where = [] if study else ["--study", str(directory.path)]
            echo(detach_new(request, directory, _arguments(*where), notify=_note, quiet=quiet))
            return
        directory.check_place()
        _run_and_close(directory, go, quiet=quiet, early=early)
    finally:
        directory.give_up()  # if Ctrl-C came before there was a study


@click.command(
    cls=_RecordedCommand, short_help="Continue a study: after a stop, a crash, or for more trials."
)
@study_directory
@option_in(
    Section.SEARCH,
    "--accept-space",
    is_flag=True,
    help="Continue although the model file now declares another search space.",
)
@option_in(
    Section.FAILURES,
    "--retry-failed",
    is_flag=True,
    help="Let the trials that have failed begin again, such as after a mistake in the model file "
    "was corrected, and use nodes again that were excluded.",
)
@path_option("--model-file", text="New path of the model file, if it was moved.")
@_quiet
@_detach
@resumable_options
def resume(
    directory: Path,
    *,
    accept_space: bool,
    retry_failed: bool,
    model_file: Path | None,
    quiet: bool,
    detach: bool,
    **options: Any,
) -> None:
    """Continue the study in DIR: after a stop, a crash, or for more trials.

    A running study that was paused (`hptune pause`) starts trials again.

    Numbers are totals: a study of 50 trials, resumed with --trials 80, runs 30 more.
    Settings that are not given stay as they are.
    """
    from ..user_code.model_file import find_file

    settings = _given(options)
    asks_more = accept_space or retry_failed or detach or model_file is not None
    if not settings and not asks_more and resume_paused(directory):
        return
    refuse_while_it_runs(directory, settings)
    if model_file is not None:
        settings["source"] = find_file(model_file)  # its syntax is checked with the study's Python
        settings["working_directory"] = str(Path.cwd())  # as of a run: other files moved with it
    from ..master.resume_plan import Changes
    from ..master.run import resume as resume_study
    from ..storage.directory import StudyDirectory

    study = StudyDirectory(directory)
    changes = Changes(settings=settings, accept_space=accept_space, retry_failed=retry_failed)
    if _has_no_code(study):
        from ..ask_tell.study import open_again

        if detach:
            raise UsageError("--detach is for a master, and here programs train; leave it out")
        echo(open_again(study, changes))
        return
    if detach:
        from ..master.detached import detach_again

        # In the job, perhaps days later, another study may be the newest one.
        source = click.get_current_context().get_parameter_source("directory")
        is_named = source is not ParameterSource.DEFAULT
        arguments = _arguments(*([] if is_named else [str(study.path)]))
        echo(detach_again(changes, study, arguments, notify=_note, quiet=quiet))
        return
    _run_and_close(
        study, lambda display: resume_study(study, changes, display=display), quiet=quiet
    )
    _write_results_of_multirun(study)


def _write_results_of_multirun(directory: StudyDirectory) -> None:
    """Write the file that ends a multirun of Hydra, if the study is that of one."""
    from ..config.reference import MULTIRUN

    file = directory.path / MULTIRUN
    if file.is_file() and importlib.util.find_spec("hydra"):
        from ..hydra.sweep import write_results
        from ..study.study import Study

        write_results(Study(directory), directory.path / file.read_text())


def _has_no_code(study: StudyDirectory) -> bool:
    """Return whether programs train the study's trials, and hptune has no code to run."""
    from ..storage.ledger import LedgerReader
    from ..study.view_reading import settings_of
    from ..user_code.source import SourceKind

    source = settings_of(study, LedgerReader(study).facts()).source
    return source.kind is SourceKind.ASKED


def _note(line: str) -> None:
    click.echo(line, err=True)


def _given(options: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}


def _on_second_signal(directory: StudyDirectory, progress: Progress) -> Callable[[], None]:
    """Return what a second Ctrl-C does."""

    def end() -> None:
        from ..master.stop_requests import end_process

        progress.stop()
        directory.remove_if_unused()
        print_last(f"Stopped at once; {what_next(directory)}", sys.stderr)
        end_process()

    return end


def _run_and_close(
    directory: StudyDirectory,
    go: Callable[[RunDisplay], RunResult],
    *,
    quiet: bool,
    early: ObjectiveSource | None = None,
) -> None:
    """Run a study and show how it ended.

    Args:
        directory: The study's directory.
        go: Runs it.
        quiet: Whether to show no progress.
        early: The code to import in the other process now, while this one imports `master`; None
            to leave that to the run.
    """
    from ..master.stop_requests import interrupt_on_signals
    from ..reporting.terminal.display import make_progress
    from ..worker.forkserver.client import ForkServer

    # Python warns of what it cleans up after a process that ended at once; users need not know.
    sys.warnoptions.append("ignore:resource_tracker:UserWarning")
    progress = make_progress(sys.stderr, quiet=quiet)
    # Until the study runs and handles signals itself.
    end = _on_second_signal(directory, progress)
    with interrupt_on_signals(end):
        try:
            with ForkServer.started_early(early) if early else contextlib.nullcontext():
                from ..master.observers import RunDisplay

                result = go(RunDisplay(progress, end, is_quiet=quiet))
        except KeyboardInterrupt:
            progress.stop()
            print_last(f"interrupted; {what_next(directory)}", sys.stderr)
            raise SystemExit(INTERRUPTED) from None
        finally:
            # The progress display must be complete before anything else is printed.
            progress.stop()
    _close(directory, result)


def _close(directory: StudyDirectory, result: RunResult) -> None:
    from ..core.messages import FinishReason
    from ..reporting.results.summary import closing_text, why_without_result
    from ..study.study import Study

    view = Study(directory).view()
    print_last(closing_text(view, result.finish), sys.stdout)
    if result.left_behind:
        raise StudyError(result.left_behind)
    if result.finish.finish_reason is FinishReason.INTERRUPTED:
        raise SystemExit(INTERRUPTED)
    if view.best is None or view.best.violation:
        raise StudyError(*why_without_result(view, result.finish))
