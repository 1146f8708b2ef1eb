"""The wheel in an environment of its own, without any extra."""

from __future__ import annotations

import subprocess
import sys
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
MODEL = """
def objective(hp, trial):
    return hp.Float("x", 0.0, 1.0)
"""


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_plain_objective_is_tuned_without_a_framework(tmp_path: Path) -> None:
    def run(*command: str | Path) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            list(map(str, command)), cwd=tmp_path, capture_output=True, text=True, check=False
        )

    built = run(sys.executable, "-m", "pip", "wheel", "--no-deps", "-w", tmp_path, ROOT)
    (wheel,) = tmp_path.glob("hptune-*.whl")
    assert built.returncode == 0, built.stderr
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
    assert "watch" not in ended.stderr, "a dashboard that nothing draws"
    missing = run(hptune, "report", "study")
    assert (missing.returncode, "hptune[dashboard]" in missing.stderr) == (2, True)
    # The parts of the report that are not Python are in the wheel.
    run(python, "-m", "pip", "install", "--quiet", "bokeh")
    assert run(hptune, "report", "study").returncode == 0
    assert (tmp_path / "study/report.html").read_text().count("<section") > 5
