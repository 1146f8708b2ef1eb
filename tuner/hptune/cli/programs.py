"""What `hptune run` tunes other than a model file: a program, or a script of KerasTuner."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..errors import UsageError
from .output import INTERRUPTED, print_last

if TYPE_CHECKING:
    from ..config.asked import Asked
    from ..storage.directory import StudyDirectory
    from ..user_code.source import ObjectiveSource


def refuse_arguments(given: tuple[str, ...], runs: str) -> None:
    """Refuse the arguments of a script where none is run.

    Raises:
        UsageError: There are some.
    """
    if given:
        raise UsageError(
            f"{' '.join(given)} after -- is for a script of KerasTuner, which {runs} is not; a "
            "program with arguments is tuned with --command"
        )


def run_script(
    script: Path,
    arguments: tuple[str, ...],
    given: dict[str, Any],
    *,
    study: Path | None,
    quiet: bool,
    detach: bool,
) -> None:
    """Run a script of KerasTuner, with what the user gave in place of what the script says."""
    from ..config.settings import BY_NAME
    from ..keras_tuner.script import run_script as run
    from ..reporting.terminal.display import imports_shown

    if detach:
        raise UsageError(
            f"--detach is given, but {script} is a script of KerasTuner, which runs where it is "
            "started; submit a job that runs `hptune run`, or write a model file "
            "(`hptune help model-file`)"
        )
    settings = {BY_NAME[name].argument: value for name, value in given.items()}
    if study is not None:
        settings["directory"] = study
    if quiet:
        settings["quiet"] = True
    else:
        click.echo(f"{script} is run as it is, with hptune in place of KerasTuner", err=True)
    try:
        with imports_shown(quiet=quiet) as say:
            run(script, settings, arguments, say=say)
    except KeyboardInterrupt as error:
        print_last(str(error) or "interrupted", sys.stderr)
        raise SystemExit(INTERRUPTED) from None


def program(
    model_file: Path | None, command: str | None, space: Path | None, given: dict[str, Any]
) -> tuple[Asked, str, str]:
    """Return the settings, the model file that runs the user's program, and a name for it."""
    from ..config.asked import asked
    from ..config.settings import StudySettings
    from ..user_code import programs

    if model_file is not None or command is None or space is None:
        asked_for = {"MODEL_FILE": model_file, "--command": command, "--space": space}
        found = [name for name, value in asked_for.items() if value is not None]
        if found == ["--command"]:
            raise UsageError(
                "--command is given, but --space is missing: name a TOML or JSON file with the "
                "hyperparameters, such as --space space.toml"
            )
        given_text = f"{' and '.join(found) or 'nothing to tune'} {'are' if found[1:] else 'is'}"
        raise UsageError(
            f"{given_text} given; allowed is a MODEL_FILE, such as `hptune run model.py`, or "
            "--command together with --space"
        )
    if not given.get("objectives"):
        raise UsageError(
            "--command needs --objective with the name of a metric that the program reports, such "
            "as --objective val_loss"
        )
    arguments = programs.read_command(command)
    request = asked(StudySettings(source=source_of_program(Path()), **given))
    settings = request.settings
    if settings.chooses_split:
        raise UsageError(
            f"{settings.splitting_option} is auto, which measures the training steps of a Keras "
            "model, and those of --command cannot be measured; give a number of GPUs or cores"
        )
    if max(settings.fixed_processes or 1, settings.nodes_per_trial or 1) > 1:
        raise UsageError(
            "--command runs one program for each trial; leave out --processes-per-trial and "
            "--nodes-per-trial, and let it start its processes, as torchrun does"
        )
    if request.cluster.is_local:
        programs.check_program(arguments)
    return request, programs.model_file(command, space), programs.name_of(arguments)


def source_of_program(directory: Path) -> ObjectiveSource:
    """Return the model file that runs a program, which the study's directory has."""
    from ..user_code.programs import PROGRAM_FILE
    from ..user_code.source import ObjectiveSource, SourceKind

    return ObjectiveSource(SourceKind.FILE, str(directory / PROGRAM_FILE))


@contextlib.contextmanager
def written(directory: StudyDirectory, text: str) -> Iterator[None]:
    """Write a model file into the study's directory; it goes if there is no study in the end.

    Raises:
        UsageError: There is another file of that name.
    """
    from ..files.file_errors import storage_errors
    from ..storage.directory import study_exists

    if directory.database.exists():
        raise study_exists(directory)
    path = Path(source_of_program(directory.path).path)
    directory.make()
    try:
        with storage_errors(directory.path):
            try:
                with path.open("x", encoding="utf-8") as file:
                    directory.draft(path)
                    file.write(text)
            except FileExistsError:
                # The same file may be of a run that was killed before its study began.
                if path.read_bytes() != text.encode():
                    raise UsageError(
                        f"the study in {directory} needs a file {path.name} of its own, and there "
                        "is another one; choose another directory with --study, or move that file"
                    ) from None
        yield
    finally:
        if not directory.has_ledger:
            directory.give_up()
