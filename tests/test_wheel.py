"""What users install: the wheel without any extra, and the extras."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
import tomllib
import venv
from pathlib import Path

import pytest

from hptune import errors

ROOT = Path(__file__).parents[1]
FRAMEWORKS = {"jax", "keras", "keras-tuner", "tensorflow", "torch"}
MODEL = """
def objective(hp, trial):
    return hp.Float("x", 0.0, 1.0)
"""

JAX_MODEL = """
import sys
import jax

def objective(hp, trial):
    assert sys.prefix == {here!r} and "keras" not in sys.modules
    x = jax.numpy.float32(hp.Float("x", 0.0, 1.0))
    return float(jax.grad(lambda x: x * x)(x))
"""


def test_extras_bring_the_frameworks_and_are_described() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    names = {re.split(r"[\[>=]", each)[0] for each in project["dependencies"]}
    assert names.isdisjoint(FRAMEWORKS)
    assert {"tensorflow", "jax", "torch", "skopt", "optuna", "all"} <= extras.keys()
    described = (ROOT / "docs/dependencies.md").read_text()
    assert [each for each in (*extras, *names) if not re.search(rf"\b{each}\b", described)] == []
    suggested = {extra for several in errors._EXTRAS.values() for extra in several}
    assert suggested <= extras.keys()


def files_in(sdist: Path) -> list[str]:
    """Return the names of a source distribution's files, without the folder that holds them."""
    with tarfile.open(sdist) as packed:
        return sorted(each.name.partition("/")[2] for each in packed if each.isfile())


def files_of_the_project() -> list[str]:
    """Return what a source distribution must have: what git has, and no link."""
    listed = subprocess.check_output(["git", "ls-files", "-z"], cwd=ROOT, text=True)
    names = [*filter(None, listed.split("\0")), "PKG-INFO"]
    names.remove("tuner/hptune/guide")
    pages = (each.name for each in (ROOT / "tuner/hptune/guide").iterdir())
    return sorted((*names, *(f"tuner/hptune/guide/{each}" for each in pages)))


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_plain_objective_is_tuned_without_a_framework(tmp_path: Path) -> None:
    tools = tmp_path / "tools"
    without_tree = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}

    def run(
        *command: str | Path, cwd: Path = tmp_path, **environment: str
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            list(map(str, command)),
            cwd=cwd,
            env=without_tree | environment,
            capture_output=True,
            text=True,
            check=False,
        )

    pip = (sys.executable, "-m", "pip")
    run(*pip, "install", "--quiet", "--target", tools, "hatchling")
    build = (sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", tmp_path)
    packed = run(*build, cwd=ROOT, PYTHONPATH=str(tools))
    assert packed.returncode == 0, packed.stderr
    (sdist,) = tmp_path.glob("hptune-*.tar.gz")
    if (ROOT / ".git").exists():
        assert files_in(sdist) == files_of_the_project()
    built = run(*pip, "wheel", "--no-deps", "-w", tmp_path, sdist)
    assert built.returncode == 0, built.stderr
    (wheel,) = tmp_path.glob("hptune-*.whl")
    venv.create(tmp_path / "env", with_pip=True)
    python = tmp_path / "env/bin/python"
    installed = run(python, "-m", "pip", "install", "--quiet", wheel)
    assert installed.returncode == 0, installed.stderr
    for absent in ("keras", "tensorflow", "bokeh", "skopt", "pandas"):
        assert run(python, "-c", f"import {absent}").returncode != 0, absent
    (tmp_path / "model.py").write_text(MODEL)
    hptune = tmp_path / "env/bin/hptune"
    ended = run(hptune, "run", "model.py", "--trials", "4", "--study", "study")
    assert ended.returncode == 0, ended.stderr
    assert "4 complete" in ended.stdout
    assert run(hptune, "help", "faq").stdout.startswith("# ")
    assert "watch    hptune dashboard study" in ended.stderr
    assert run(hptune, "report", "study").returncode == 0, "the page needs no other package"
    (tmp_path / "keras_model.py").write_text("import keras\n" + MODEL)
    missing = run(hptune, "run", "keras_model.py", "--study", "missing")
    assert missing.returncode == 2
    assert f"{wheel}[tensorflow]" in missing.stderr.splitlines()[-1], missing.stderr
    # Another environment's hptune has its trials run here, with a framework that only this one has.
    (tmp_path / "jax_model.py").write_text(JAX_MODEL.format(here=str(tmp_path / "env")))
    run(python, "-m", "pip", "install", "--quiet", "jax")
    there = ("--python", python, "--study", "there", "--trials", "2", "--objective", "slope:min")
    ended = run(sys.executable, "-m", "hptune", "run", "jax_model.py", *there)
    assert (ended.returncode, "2 complete" in ended.stdout) == (0, True), ended.stderr
    # The parts of the report that are not Python are in the wheel.
    assert run(hptune, "report", "study").returncode == 0
    assert (tmp_path / "study/report.html").read_text().count("<section") > 5
