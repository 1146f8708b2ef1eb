"""Studies in jobs of a real Slurm: their model file, how they start and how they end."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from private_slurm import PrivateSlurm
from real_runs import Hptune, Started, rows, trials

WALLTIME = 'walltime = "00:10:00"\ninterface = "lo"\n'

GPUS = WALLTIME + 'partition = "gpu"\n'
SLICES = GPUS + "trials_per_job = 1\n"

MODEL = """
import json, os, time

OBJECTIVE = "total:max"

def objective(hp, trial):
    x = hp.Float("x", 0.0, 1.0)
    saved = trial.checkpoint_dir / "total.json"
    done, total = json.loads(saved.read_text()) if saved.exists() else (0, 0.0)
    for epoch in range(done + 1, {epochs} + 1):
        is_over = os.path.exists({go!r})
        time.sleep(0.0 if is_over else {seconds})
        total += x * epoch
        new = saved.with_suffix(".new")
        new.write_text(json.dumps([epoch, total]))
        new.replace(saved)
        if not is_over or epoch == {epochs}:
            trial.report(epoch, total=total, gpu=float(os.environ["CUDA_VISIBLE_DEVICES"] or -1))
        if trial.should_stop():
            break
    return {{"total": total}}
"""
"""Model file that continues from its own checkpoint; its result shows lost or repeated epochs."""


def model(hptune: Hptune, *, epochs: int, seconds: float) -> None:
    """Write the model file; an epoch takes these seconds until the file `go` exists.

    From then on, only the last one is reported.
    """
    go = str(hptune.directory / "go")
    hptune.file("model.py", MODEL.format(epochs=epochs, seconds=seconds, go=go))


def go(hptune: Hptune) -> None:
    """Let all trials end soon: their epochs take no more time."""
    (hptune.directory / "go").touch()


def start(hptune: Hptune, toml: str, *options: object) -> Started:
    hptune.file("slurm.toml", toml)
    search = () if "--search" in options else ("--search", "random")
    return hptune.start(
        "run", "model.py", "--slurm", "slurm.toml", "--study", "study", "--seed", "1",
        *search, *options,
    )  # fmt: skip


def finish(
    hptune: Hptune, started: Started, *, count: int, epochs: int, seconds: float = 200
) -> str:
    """Wait for the study's end, and check that each trial has its undisturbed result."""
    ended = started.wait(seconds=seconds)
    assert ended.code == 0, ended.err
    found = trials(hptune.study())
    assert [trial["state"] for trial in found] == ["COMPLETE"] * count
    whole = epochs * (epochs + 1) / 2
    for trial in found:
        metrics = json.loads(trial["metrics"]) if "metrics" in trial else {}
        total = metrics.get("total", trial["value"])
        assert total == pytest.approx(trial["params"]["x"] * whole)
    return ended.err


def reached(study: Path, step: int, *, count: int = 1) -> bool:
    """Return whether this many trials have reported a step."""
    if not (study / "study.db").exists():
        return False
    found = rows(study, f"SELECT DISTINCT trial FROM reports WHERE step >= {step}")
    return len(found) >= count


def job_ids(slurm: PrivateSlurm) -> set[str]:
    return {line.split()[0] for line in slurm.jobs() if line.split()[1] != "COMPLETING"}


def gangs(hptune: Hptune) -> list[tuple[str, str]]:
    """Return the gangs whose workers have joined, and their nodes."""
    found = rows(hptune.study(), "SELECT payload FROM events WHERE kind = 'WorkerJoined'")
    joined = [json.loads(row["payload"]) for row in found]
    return sorted((each["gang"], each["node"]) for each in joined)
