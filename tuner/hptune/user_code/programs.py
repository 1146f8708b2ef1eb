"""A program to tune, given as a command line and a file with its search space.

They are written into the study's directory as a model file, which runs the program. So a program
has no rules of its own in the rest of hptune, and its study can be changed as any other.
"""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from string import Formatter
from typing import Any

from ..core.spelling import did_you_mean
from ..errors import SpaceError, UsageError
from ..files.access import exists
from .space_tables import EXAMPLE, Declaration, declarations, read_file

PROGRAM_FILE = "program.py"
"""Name of the model file in the study's directory."""

FACTS = ("checkpoint_dir", "params_file", "metrics_file", "number", "seed", "port", "epochs")
"""Facts of the trial, which the command names as `{trial.seed}`, and the environment as
HPTUNE_SEED."""

_LEAVING = frozenset(
    ("srun", "salloc", "sbatch", "flux", "docker", "podman", "nerdctl", "kubectl", "ssh")
)
"""Programs that run others under a daemon or on another machine."""

_WRAPPERS = frozenset(
    ("sh", "bash", "env", "exec", "nice", "nohup", "numactl", "stdbuf", "sudo", "timeout", "time")
)
"""Programs that run what their arguments name."""

_BETWEEN_WORDS = re.compile(r"[\s;&|()`]+")
"""What separates the words of a shell's line, or ends a command there."""

_CALL = "hptune.run_program(COMMAND, trial, hp)"

_SCRIPT = re.compile(r"[^-\s{}][^\s{}]*\.[A-Za-z]+")
"""An argument that is the path of a file with an ending."""

_INTERPRETER = re.compile(r"(.*/)?(python[\d.]*|sh|bash|Rscript|julia|perl|ruby|node|octave)")
"""A program whose first argument that is no option is a file, if it has an ending."""

_FLAG = re.compile(r"-[^mce]\S*")
"""An option without a value of its own; a module, or a text that is run, is no file."""


def model_file(command: str, space: Path) -> str:
    """Return the model file that runs a program.

    Args:
        command: The program and its arguments, as in a shell; `{lr}` stands for the value of `lr`.
        space: The TOML file with the hyperparameters, a table for each.

    Raises:
        UsageError: The command or the file is wrong.
    """
    declared = read_space(space)
    arguments = read_command(command)
    _check_names(arguments, list(declared))
    lines = [f"    hp.{_call(name, each)}" for name, each in declared.items()]
    return "\n".join(
        (
            '"""Runs a program as the objective. `hptune run --command` wrote this file."""',
            "",
            "import hptune",
            "",
            "COMMAND = [",
            *(f"    {argument!r}," for argument in arguments),
            "]",
            "",
            "",
            "def objective(hp, trial):",
            *lines,
            f"    return {_CALL}",
            "",
        )
    )


def is_own_frame(file: str, line: str | None) -> bool:
    """Return whether a frame of a traceback is in a file which `model_file` returned.

    Args:
        file: The file of the frame.
        line: The text of its line.
    """
    return Path(file).name == PROGRAM_FILE and _CALL in (line or "")


def read_command(command: str) -> list[str]:
    """Return the program and its arguments.

    >>> read_command("python train.py --lr {lr}")
    ['python', 'train.py', '--lr', '{lr}']

    Raises:
        UsageError: The command is empty, or a quotation mark is missing.
    """
    try:
        arguments = shlex.split(command)
    except ValueError as error:
        raise UsageError(f"--command is {command!r}, which has no end ({error})") from error
    if not arguments:
        raise UsageError('--command is empty; give a program, such as "python train.py --lr {lr}"')
    return arguments


def name_of(arguments: Sequence[str]) -> str:
    """Return a name for the study of a program: that of its script, or else of the program.

    >>> name_of(["python3.11", "src/train.py", "--wd=0.01"]), name_of(["./fit", "{lr}"])
    ('train', 'fit')
    """
    script = next(filter(_SCRIPT.fullmatch, arguments[1:]), arguments[0])
    return Path(script).stem


def runs_elsewhere(arguments: Sequence[str]) -> bool:
    """Return whether the program is run where its use of the machine is not measured.

    >>> runs_elsewhere(["/usr/bin/srun", "train"]), runs_elsewhere(["python", "ssh"])
    (True, False)
    >>> runs_elsewhere(["sh", "-c", 'cd data&&exec srun -w "$SLURMD_NODENAME" train'])
    True
    """
    words = [Path(word).name for each in arguments for word in _BETWEEN_WORDS.split(each) if word]
    is_wrapped = not _WRAPPERS.isdisjoint(words[:1]) and not _LEAVING.isdisjoint(words)
    return is_wrapped or not _LEAVING.isdisjoint(words[:1])


def check_program(arguments: Sequence[str]) -> None:
    """Check that the program is on this machine, and the script that an interpreter runs.

    Raises:
        UsageError: It is not.
    """
    program = arguments[0]
    if "{" not in program and shutil.which(program) is None:
        raise UsageError(
            f"--command begins with {program!r}, and there is no such program here. Give its path, "
            "or a name that the shell finds; a shell's own words need `sh -c '…'`"
        )
    script = next((each for each in arguments[1:] if not _FLAG.fullmatch(each)), "")
    if _INTERPRETER.fullmatch(program) and _SCRIPT.fullmatch(script) and not exists(Path(script)):
        near = did_you_mean(script, [each.name for each in Path().iterdir()], "{}", likeness=0.7)
        raise UsageError(
            f"--command runs {script}, and there is no such file in {Path.cwd()}.{near}"
        )


def read_space(path: Path) -> dict[str, Declaration]:
    """Return the declaration of each hyperparameter in a file.

    Raises:
        UsageError: The file cannot be read, or a table is wrong.
    """
    tables = read_file(path)
    if not isinstance(tables, Mapping) or not tables:
        raise UsageError(
            f"{path} has no tables; give each hyperparameter a table, such as\n{EXAMPLE}"
        )
    try:
        return declarations(tables)
    except SpaceError as error:
        raise UsageError(f"{path}: {error}") from error


def _call(name: str, declaration: Declaration) -> str:
    """Return a declaration as the call of a method of `hp`."""
    keywords = [f"{key}={value!r}" for key, value in declaration.options.items()]
    return f"{declaration.kind}({', '.join((repr(name), *keywords))})"


def _check_names(arguments: Sequence[str], names: Sequence[str]) -> None:
    """Check that the command and the space name the same hyperparameters."""
    used = {name for argument in arguments for name in placeholders(argument)}
    facts = [f"trial.{fact}" for fact in FACTS]
    if unknown := sorted(used - {*names, *facts}):
        hint = did_you_mean(unknown[0], [*names, *facts], "{{{}}}")
        raise UsageError(
            f"--command has {{{unknown[0]}}}, which is neither in the space ({', '.join(names)}) "
            f"nor one of {', '.join(facts)}.{hint} A brace itself is written {{{{ or }}}}"
        )
    unused = [name for name in names if name not in used]
    if unused and "trial.params_file" not in used:
        raise UsageError(
            f"--command does not use {', '.join(unused)} of the space, so searching would change "
            f"nothing; add {{{unused[0]}}}, or {{trial.params_file}}, a JSON file with all values"
        )


def placeholders(argument: str) -> list[str]:
    """Return the names in the placeholders of one argument of a command.

    >>> placeholders("--lr={lr}"), placeholders("{{no}}")
    (['lr'], [])

    Raises:
        UsageError: A brace has no partner, or a placeholder is no name.
    """
    rule = "a hyperparameter is written {lr}, and a brace itself {{ or }}"
    try:
        parts = [each[1:] for each in Formatter().parse(argument) if each[1] is not None]
    except ValueError as error:
        raise UsageError(f"{argument!r} in the command: {error}; {rule}") from error
    if any(not name or form or conversion for name, form, conversion in parts):
        raise UsageError(f"{argument!r} in the command has a placeholder that is no name; {rule}")
    return [name for name, _, _ in parts if name is not None]


def filled_in(
    command: Sequence[str], values: Mapping[str, Any], facts: Mapping[str, str]
) -> list[str]:
    """Return the arguments of a command with values for their placeholders.

    An argument with a hyperparameter that has no value is left out: it is not active.

    >>> filled_in(["train", "--lr={lr}", "--momentum={momentum}"], {"lr": 0.1}, {})
    ['train', '--lr=0.1']
    """
    known = {**{f"trial.{name}": value for name, value in facts.items()}, **values}
    return [
        "".join(
            text + ("" if name is None else _as_text(known[name]))
            for text, name, _, _ in Formatter().parse(argument)
        )
        for argument in command
        if all(name in known for name in placeholders(argument))
    ]


def _as_text(value: Any) -> str:
    return ("true" if value else "false") if isinstance(value, bool) else str(value)
