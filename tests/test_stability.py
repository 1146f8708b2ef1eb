"""docs/stability.md promises what there is, and says of every public name whether it stays."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

import hptune
from hptune import Study, Tuner
from hptune.cli import main
from in_process import InProcess

DOCS = Path(__file__).parents[1] / "docs"
PAGE = (DOCS / "stability.md").read_text()
JSON = (DOCS / "reference" / "json.md").read_text()


def names(start: str) -> list[str]:
    """Return the names in the paragraph or item that begins with these words."""
    paragraph = re.split(r"\n\n|\n- ", PAGE.partition(start)[2])[0]
    return re.findall(r"`([\w-]+)`", paragraph)


def public(of: type) -> set[str]:
    return {name for name in dir(of) if not name.startswith("_")}


def test_the_names_of_the_package() -> None:
    assert names("Of `hptune`:") == sorted(hptune.__all__)


def test_each_public_name_is_kept_or_said_not_to_be() -> None:
    assert set(names("Of `Tuner`:")) - {"Tuner"} == public(Tuner)
    kept, others = names("Of `Study`:"), names("as the commands alone use them:")
    assert not set(kept) & set(others)
    assert set(kept) | set(others) == public(Study)
    shown = {name for name in Study.__dir__(Study.__new__(Study)) if not name.startswith("_")}
    assert shown == set(kept), "what completion in a notebook shows"


def test_the_commands() -> None:
    assert names("## Commands\n") == list(main.commands)


@pytest.fixture(scope="module")
def keys() -> dict[str, list[str]]:
    found = re.findall(r"^- `(\w+)`: (.*)\.$", JSON.partition("## A trial")[0], re.MULTILINE)
    return {thing: re.findall(r"`(\w+)`", listed) for thing, listed in found}


def test_the_keys_of_json(cli: InProcess, keys: dict[str, list[str]]) -> None:
    cli.file("model.py", "def objective(hp, trial):\n    return hp.Float('x', 0, 1)\n")
    assert (
        cli("run", "model.py", "--trials", 2, "--study", "study", "--executor", "joblib").code == 0
    )
    arguments = {"show": ("study", 0), "list": (".",)}
    commands = {"status", "best", "trials", "show", "list", "space"}
    assert set(keys) == {"trial", "attempt", *commands}
    found = {
        command: json.loads(cli(command, *arguments.get(command, ("study",)), "--json").out)
        for command in commands
    }
    found["trial"] = found["show"]
    (found["attempt"],) = found["trial"]["attempts"]
    found["list"] |= found["list"]["studies"][0]
    for thing, kept in keys.items():
        assert not set(kept) - found[thing].keys() - {"best"}, thing
