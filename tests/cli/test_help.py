"""The help of commands with many options."""

from __future__ import annotations

import re

import pytest
from click.testing import CliRunner

from tuner.cli import main


@pytest.mark.parametrize("command", ["run", "resume"])
def test_options_stand_in_sections_and_none_is_lost(command: str) -> None:
    shown = CliRunner().invoke(main, [command, "--help"]).output
    options = main.commands[command].params
    visible = [each for each in options if not getattr(each, "hidden", True)]
    assert len(visible) > 30
    for each in visible:
        assert len(re.findall(rf"^  (?:-\w, )?{each.opts[-1]}\b(?!-)", shown, re.MULTILINE)) == 1
    others = shown.partition("Others:")[2].partition("\n\n")[0]
    assert set(re.findall(r"--[a-z-]+", others)) <= {"--study", "--quiet", "--help", "--model-file"}


def test_the_exit_codes_are_told() -> None:
    shown = CliRunner().invoke(main, ["--help"]).output
    assert "130  interrupted" in shown
    assert shown.index("  run ") < shown.index("  resume ") < shown.index("  doctor ")
