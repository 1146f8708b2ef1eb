"""Options and names that are given twice: none of the values is lost without a word."""

from __future__ import annotations

from collections.abc import Iterator

import click
import pytest
from click.testing import CliRunner

from hptune.cli import main
from in_process import InProcess


def _commands(group: click.Group, *words: str) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from _commands(command, *words, name)
        else:
            yield (*words, name), command


@pytest.mark.parametrize(
    ("words", "command"), [pytest.param(*row, id=" ".join(row[0])) for row in _commands(main)]
)
def test_an_option_takes_one_value_unless_its_help_says_otherwise(
    words: tuple[str, ...], command: click.Command
) -> None:
    for option in command.params:
        if not isinstance(option, click.Option) or option.is_flag:
            continue
        assert option.multiple == ("May be repeated." in (option.help or "")), option.opts
        name = option.opts[-1]
        if not option.multiple:
            ended = CliRunner().invoke(main, [*words, name, "1", f"{name}=2"])
            assert ended.exit_code == 2, name
            assert ended.stderr == f"Error: {name} is given twice; it takes one value\n"


RUN = ("run", "model.py")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((*RUN, "--prior", "x~normal(1,1)", "--prior", "x~normal(2,1)"), "--prior gives x"),
        ((*RUN, "--option", "search.a=1", "--option", "search.a=2"), "--option gives search.a"),
        (
            (*RUN, "--on-failure", "memory=retry:3", "--on-failure", "memory=fail"),
            "--on-failure gives memory",
        ),
        ((*RUN, "--try", "x=1,x=2"), "--try 'x=1,x=2' gives x"),
        (("scaling", "model.py", "--python", "a", "--python", "b"), "--python gives all backends"),
        (("tell", ".", "0", "loss=1", "loss=2"), "the command gives loss"),
    ],
)
def test_a_name_has_one_value(cli: InProcess, arguments: tuple[str, ...], said: str) -> None:
    cli.file("model.py", "def objective(hp, trial):\n    return hp.Float('x', 0, 1)\n")
    ended = cli(*arguments)
    assert (ended.code, ended.out) == (2, "")
    assert f"Error: {said} twice; give it once\n" == ended.err


def test_an_object_of_json_has_a_name_once(cli: InProcess) -> None:
    cli.file("model.py", "def objective(hp, trial):\n    return hp.Float('x', 0, 1)\n")
    ended = cli(*RUN, "--try", '{"x": 0.1, "x": 0.2}')
    assert (ended.code, ended.out) == (2, "")
    assert "an object gives x twice; give it once" in ended.err
