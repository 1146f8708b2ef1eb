"""The command line `hptune`.

Reads options, calls `master`, `doctor` or `hptune.Study`, prints results and sets the exit code.

Offers: `main`, the entry point.

May import: `errors`, `text`, `core`, `files`, `user_code`, `security`, `storage`, `config`,
`worker`, `clusters`, `reporting`, `study`, `master`, `doctor`, `scaling`, `keras_tuner`,
`ask_tell`, `agents`, `hydra`, `training`.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import click

from ..config.other_tuners import answer, our_name
from ..core.spelling import did_you_mean
from ..errors import HptuneError, UsageError
from .commands import SectionedCommand
from .output import (
    INTERRUPTED,
    check_working_directory,
    open_standard_streams,
    replace_missing_characters,
    show_error,
)

_MODULES = {
    "run": "running", "resume": "running", "stop": "asking", "pause": "asking",
    "enqueue": "asking", "note": "noting", "status": "reading", "best": "reading",
    "trials": "reading", "show": "reading", "log": "reading", "list": "reading",
    "ask": "telling", "tell": "telling", "report-step": "telling", "wait": "telling",
    "space": "reading", "report": "exporting", "dashboard": "dashboard", "export": "exporting",
    "replay": "reading", "scaling": "scaling", "scheduler": "joining", "worker": "joining",
    "certs": "joining", "slurm": "slurm", "doctor": "doctor", "mcp": "mcp", "help": "guide",
}  # fmt: skip
"""Where each command is, in the order in which a user needs them."""

_ELSEWHERE = {
    **dict.fromkeys(("clean", "delete", "remove", "rm"), "to delete a study, delete its directory"),
    **dict.fromkeys(("optimize", "search", "tune"), "use `hptune run MODEL_FILE`"),
    "compare": "use `hptune list`, or `hptune dashboard FOLDER`, which draws several studies",
    "init": "write a model file (`hptune help first-study`), or `hptune slurm init` for Slurm",
    "import": "`hptune run MODEL_FILE --warm-start SOURCE` learns from the trials of other tuners",
    "ls": "use `hptune list`",
    "plot": "use `hptune report`, which writes a page with plots",
    "results": "use `hptune best` or `hptune trials`",
    "show-best": "use `hptune best`",
    "watch": "use `hptune status --watch`",
}


class _LoadedWhenTaken(Mapping[str, click.Command]):
    """The commands by name; a call loads the module of its own command only."""

    def __getitem__(self, name: str) -> click.Command:
        found = vars(import_module(f".{_MODULES[name]}", __name__)).values()
        return next(each for each in found if isinstance(each, click.Command) and each.name == name)

    def __iter__(self) -> Iterator[str]:
        return iter(_MODULES)

    def __len__(self) -> int:
        return len(_MODULES)


class Commands(click.Group):
    """A group that shows errors of hptune as a message with an exit code, not as a traceback."""

    def main(self, *arguments: Any, **options: Any) -> Any:
        """Run a command line."""
        open_standard_streams()
        replace_missing_characters()
        check_working_directory()
        return super().main(*arguments, **options)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the commands in the order in which a user needs them."""
        del ctx
        return list(self.commands)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a command; a name that another tuner has is answered with what to use here."""
        if cmd_name in _ELSEWHERE and not ctx.resilient_parsing:  # as a shell completes a line
            ctx.fail(f"No such command {cmd_name!r}: {_ELSEWHERE[cmd_name]}.")
        found = super().get_command(ctx, cmd_name)
        # click lists those that may be meant by the alphabet.
        if found is None and not ctx.resilient_parsing and not cmd_name.startswith("-"):
            is_file = cmd_name.endswith(".py") or Path(cmd_name).is_file()
            hint = f" Did you mean 'hptune run {cmd_name}'?" if is_file else ""
            hint = hint or did_you_mean(cmd_name, self.commands)
            ctx.fail(f"No such command {cmd_name!r}.{hint}")
        return found

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; an error becomes one message and an exit code."""
        try:
            return super().invoke(ctx)
        except click.NoSuchOption as error:
            raise click.UsageError(_unknown_option(error), error.ctx) from None
        except HptuneError as error:
            show_error(error)
            ctx.exit(2 if isinstance(error, UsageError) else 1)
        except OSError as error:
            if error.filename is None:
                raise
            if isinstance(error, PermissionError):
                from ..files.file_errors import storage_full

                show_error(storage_full(Path(error.filename), str(error.strerror)))
                ctx.exit(1)
            # Of a path that no file system takes, such as a name that is too long.
            show_error(UsageError(f"{error.filename!r} cannot be used: {error.strerror}"))
            ctx.exit(2)
        except KeyboardInterrupt:
            click.echo("interrupted", err=True)
            ctx.exit(INTERRUPTED)


def _unknown_option(error: click.NoSuchOption) -> str:
    """Return the message for an unknown option, with those that may be meant.

    It may be one of another tuner. click compares the dashes too, and so finds a likeness of
    --epoch and --search.
    """
    given = error.option_name.lstrip("-")
    command = None if error.ctx is None else error.ctx.command
    params = [] if command is None else command.params
    shown = [param for param in params if isinstance(param, click.Option) and not param.hidden]
    names = [name[2:] for each in shown for name in each.opts if name.startswith("--")]
    argument = given.replace("-", "_")
    ours = (our_name(argument) or argument).replace("_", "-")
    ours = "study" if ours == "directory" else ours
    reply = answer(argument) if isinstance(command, SectionedCommand) else ""
    begun = [name for name in names if name.startswith(given)]
    close = difflib.get_close_matches(given, names, 2, 0.7)
    found = [ours] if ours in names else list(dict.fromkeys([*begun, *close]))[:3]
    if reply:
        hint = f": {reply}"
    elif found:
        hint = f". Did you mean {' or '.join(f'--{name}' for name in found)}?"
    elif ours == "study" and any(param.name == "directory" for param in params):
        hint = ": give the study's directory without an option"
    else:
        has_all = any("--help-all" in each.opts for each in shown)
        hint = f". --help{'-all' * has_all} lists all options."
        if any(param.name == "script_arguments" for param in params):
            hint = hint[:-1] + "; those of a script of KerasTuner follow a --."
    return f"No such option {error.option_name}{hint}"


_EXIT_CODES = """\b
Exit codes:
  0    success; for a run: all trials have ended, or its time or budget is used up
  1    failure, or no trial is complete or keeps the constraints; the message says why
  2    wrong command, setting or model file; the message says what is allowed
  130  interrupted (Ctrl-C, SIGTERM, hptune stop); hptune resume continues
"""


@click.group(
    cls=Commands,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=_EXIT_CODES,
)
@click.version_option(package_name="hptune", prog_name="hptune")
def main() -> None:
    """Tune the hyperparameters of Keras models, of Python functions, or of any program.

    \b
    hptune run model.py --trials 50
    hptune best studies/model-1

    The model file defines build_model(hp) and load_data(), a KerasTuner HyperModel,
    or objective(hp, trial). A study is stored in one directory. After an interruption
    of any kind, `hptune resume DIR` continues it. Without DIR, commands take the study that
    the working directory is in, or else the newest one of the folder studies.
    """


main.commands = _LoadedWhenTaken()  # type: ignore[assignment]  # nothing adds to them
