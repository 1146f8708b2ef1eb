"""The example of a package of plug-ins: it keeps the contracts, and is used by name."""

from __future__ import annotations

import importlib
import json
import os
import shutil
import subprocess
import sys
import tomllib
import venv
from pathlib import Path

import pytest

from hptune.config.reference import markdown
from hptune.samplers.registry import SAMPLERS
from in_process import InProcess
from real_runs import trials

ROOT = Path(__file__).parents[2]
PLUGIN = ROOT / "examples" / "plugin"

_suites = importlib.import_module("test_evolution")  # by name, as another process finds it
TestEvolution = _suites.TestEvolution
TestBetterHalf = _suites.TestBetterHalf

MODEL = """
def objective(hp, trial):
    x = hp.Float("x", -1.0, 1.0)
    for step in range(1, 7):
        trial.report(step, value=(x - 0.3) ** 2 + 1 / step)
        if trial.should_stop():
            break
    return (x - 0.3) ** 2 + 1 / step
"""


def entry_points(package: Path) -> dict[str, dict[str, str]]:
    project = tomllib.loads((package / "pyproject.toml").read_text())["project"]
    found: dict[str, dict[str, str]] = project["entry-points"]
    return found


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the package's metadata, as an installer writes it."""
    folder = tmp_path / "site"
    info = folder / "hptune_evolution-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: hptune-evolution\nVersion: 1.0\n")
    lines = [
        line
        for group, points in entry_points(PLUGIN).items()
        for line in (f"[{group}]", *(f"{name} = {value}" for name, value in points.items()))
    ]
    (info / "entry_points.txt").write_text("\n".join(lines))
    monkeypatch.syspath_prepend(str(folder))
    return info / "entry_points.txt"


def test_an_installed_package_is_used_by_name(cli: InProcess, installed: Path) -> None:
    cli.file("model.py", MODEL)
    ended = cli(
        "run", "model.py", "--search", "evolution", "--option", "search.population=4",
        "--pruner", "better-half", "--option", "pruner.at-epoch=2", "--epochs", 6,
        "--trials", 12, "--seed", 3, "--study", "study", "--executor", "joblib", "-q",
    )  # fmt: skip
    assert ended.code == 0, ended.err
    ended = cli("resume", "study", "--trials", 16, "-q")
    assert ended.code == 0, ended.err
    found = trials(cli.study())
    assert {trial["origin"] for trial in found} == {"defaults", "evolution"}
    assert cli("replay", "study").out == "16 suggestions, all equal\n"
    ended = cli("export", "study", "--format", "markdown")
    assert (ended.code, cli.study().joinpath("trials.md").read_text().count("\n")) == (0, 18)
    # Without the package, the study can still be looked at; the error says what is missing.
    sys.path.remove(str(installed.parents[1]))
    assert json.loads(cli("status", "study", "--json").out)["search"] == "evolution"
    ended = cli("resume", "study", "--trials", 20)
    assert (ended.code, "'better-half'" in ended.err) == (1, True)


def test_help_reference_and_checks_know_an_installed_package(
    cli: InProcess, installed: Path
) -> None:
    del installed
    words = "evolution: changes the best of the newest"
    for text in (" ".join(cli("run", "--help").out.split()), markdown()):
        assert words in text
        assert "--option search.population=N (trials to choose from, default 20)" in text
        assert "at one epoch, stops the trials of the worse half" in text
    cli.file("model.py", MODEL)
    for option, said in (
        ("population=1", "--option search.population is 1; allowed are whole numbers from 2 on"),
        ("size=3", "--option search.size is given, but --search is evolution; its options are"),
    ):
        ended = cli("run", "model.py", "--search", "evolution", "--option", f"search.{option}")
        assert (ended.code, said in ended.err) == (2, True), ended.err
    ended = cli("run", "model.py", "--search", "evolutoin")
    assert "Did you mean 'evolution'?" in ended.err


def test_a_package_that_cannot_be_loaded_harms_no_other(cli: InProcess, installed: Path) -> None:
    installed.write_text("[hptune.samplers]\nbroken = hptune_evolution:NOTHING\n")
    cli.file("model.py", MODEL)
    assert "broken cannot be loaded" in " ".join(cli("run", "--help").out.split())
    ended = cli("run", "model.py", "--search", "broken")
    assert (ended.code, "cannot be loaded from hptune_evolution:NOTHING" in ended.err) == (2, True)
    assert "tpe" in SAMPLERS.rows


def test_an_entry_point_that_names_no_factory_harms_no_other(
    cli: InProcess, installed: Path
) -> None:
    points = "broken = json:__name__\nneeding = real_runs:trials\n"
    installed.write_text(f"[hptune.samplers]\n{points}")
    cli.file("model.py", MODEL)
    words = " ".join(cli("run", "--help").out.split())
    assert "broken cannot be used: json:__name__ is no class or function" in words
    assert "inspect._empty" not in words
    ended = cli("run", "model.py", "--search", "broken")
    assert (ended.code, "json:__name__ is no class or function" in ended.err) == (2, True)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_package_is_installed_into_an_environment(tmp_path: Path) -> None:
    venv.create(tmp_path / "env", with_pip=True, system_site_packages=True)
    python = tmp_path / "env/bin/python"
    for package in sys.path:  # of the environment of the tests, which may be virtual itself
        if package.endswith("site-packages"):
            site = next((tmp_path / "env/lib").glob("python*/site-packages"))
            (site / "outer.pth").write_text(f"{package}\n{ROOT}/tuner\n{ROOT}/jobqueue\n")
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}

    def run(*command: object) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(python), *map(str, command)],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )

    copied = tmp_path / "plugin"  # away from the settings of our tests
    shutil.copytree(PLUGIN, copied)
    packed = run("-m", "pip", "install", "--quiet", "--no-deps", copied)
    assert packed.returncode == 0, packed.stderr
    passed = run("-m", "pytest", "-q", "-n2", copied / "tests")
    assert passed.returncode == 0, passed.stdout
    (tmp_path / "model.py").write_text(MODEL)
    options = ("--search", "evolution", "--option", "search.population=3", "--study", "study")
    ended = run("-m", "hptune", "run", "model.py", "--trials", 5, *options)
    assert ended.returncode == 0, ended.stderr
    ended = run("-m", "hptune", "resume", "study", "--trials", 7)
    assert ended.returncode == 0, ended.stderr
    assert run("-m", "hptune", "replay", "study").stdout == "7 suggestions, all equal\n"
