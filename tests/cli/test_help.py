"""The help of commands with many options."""

from __future__ import annotations

import re
from collections.abc import Iterator

import click
import pytest
from click.shell_completion import BashComplete
from click.testing import CliRunner

from hptune.cli import main


@pytest.mark.parametrize("command", ["run", "resume"])
def test_each_option_is_in_one_section(command: str) -> None:
    shown = CliRunner().invoke(main, [command, "--help-all"]).output
    options = main.commands[command].params
    visible = [each for each in options if not getattr(each, "hidden", True)]
    assert len(visible) > 30
    for each in visible:
        assert len(re.findall(rf"^  (?:-\w, )?{each.opts[-1]}\b(?!-)", shown, re.MULTILINE)) == 1
    others = shown.partition("Others:")[2].partition("\n\n")[0]
    assert set(re.findall(r"--[a-z-]+", others)) <= {
        *("--study", "--quiet", "--model-file", "--help-all", "--help"),
    }


@pytest.mark.parametrize("command", ["run", "resume"])
def test_help_has_what_a_first_month_needs_and_says_how_many_more_there_are(command: str) -> None:
    listed = re.compile(r"^  (?:-\w, )?(--[a-z-]+)", re.MULTILINE)
    shown, whole = (
        CliRunner().invoke(main, [command, option]).output for option in ("--help", "--help-all")
    )
    short, all_of_them = set(listed.findall(shown)), set(listed.findall(whole))
    assert {"--trials", "--pruner", "--confirm", "--slurm"} < short < all_of_them
    assert len(short) <= 31
    assert f"{len(all_of_them - short)} more options: `main {command} --help-all`" in shown
    assert "more options" not in whole
    assert ("Executors:" in whole, "Executors:" in shown) == (command == "run", False)


def test_the_message_for_an_unknown_option_names_the_help_that_lists_all() -> None:
    for command, option in (("run", "--help-all"), ("best", "--help")):
        shown = CliRunner().invoke(main, [command, "--xyzzy"])
        assert shown.exit_code == 2
        assert f"No such option --xyzzy. {option} lists all options" in shown.output


def test_help_lists_exit_codes_and_commands() -> None:
    shown = CliRunner().invoke(main, ["--help"]).output
    assert "130  interrupted" in shown
    assert shown.index("  run ") < shown.index("  resume ") < shown.index("  doctor ")


def _helps(command: click.Command, *words: str) -> Iterator[tuple[tuple[str, ...], str]]:
    shown = CliRunner().invoke(main, [*words, "--help"], terminal_width=80)
    yield words, shown.output
    if isinstance(command, click.Group):
        for name, each in command.commands.items():
            yield from _helps(each, *words, name)


def test_help_names_what_an_option_takes_and_cuts_no_sentence() -> None:
    for words, shown in _helps(main):
        assert not re.search(r"INTEGER|RANGE|WHOLE NUMBER|FLOAT|TEXT\b", shown), words
        assert "..." not in shown.partition("\nCommands:")[2], words


def test_a_shell_may_complete_a_line_with_an_unknown_command() -> None:
    completion = BashComplete(main, {}, "hptune", "_HPTUNE_COMPLETE")
    assert "--trials" in [each.value for each in completion.get_completions(["run"], "--t")]
    assert completion.get_completions(["tune"], "--t") == []


def test_help_shows_pages_of_the_guide_and_commands() -> None:
    topics = re.findall(r"^- `([\w-]+)`: (.+)$", CliRunner().invoke(main, ["help"]).output, re.M)
    assert {"faq", "slurm", "troubleshooting"} < {name for name, _ in topics}
    for name, title in topics:
        shown = CliRunner().invoke(main, ["help", name]).output
        assert shown.startswith(f"# {title}\n")
        assert "<!--" not in shown
    assert "Show the best trial" in CliRunner().invoke(main, ["help", "best"]).output
    assert "'troubleshooting'?" in CliRunner().invoke(main, ["help", "trubleshooting"]).stderr
    asha = CliRunner().invoke(main, ["help", "asha"]).stderr
    assert "lists the pages. These have the word: `hptune help early-stopping`" in asha
    assert CliRunner().invoke(main, ["help", "qwertz"]).stderr.endswith("lists the pages.\n")


def test_a_shell_completes_the_names_of_pages() -> None:
    completion = BashComplete(main, {}, "hptune", "_HPTUNE_COMPLETE")
    found = [each.value for each in completion.get_completions(["help"], "fa")]
    assert found == ["failures", "faq"]
