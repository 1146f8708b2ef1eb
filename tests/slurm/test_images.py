"""Workers of Slurm jobs in an image, which Charliecloud runs."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from private_slurm import PrivateSlurm, wait_until
from real_containers import unpacked
from real_runs import Hptune, rows, trials, wait_for
from requirements import unavailable
from slurm_studies import job_ids, reached

# The value is whole only if each epoch ran once, and inside of the image.
MODEL = """
import json, os, sys, time
import beside

OBJECTIVE = "total:max"

def objective(hp, trial):
    x = hp.Float("x", 0.0, 1.0)
    saved = trial.checkpoint_dir / "total.json"
    done, total = json.loads(saved.read_text()) if saved.exists() else (0, 0.0)
    for epoch in range(done + 1, 401):
        is_over = os.path.exists({go!r})
        time.sleep(0.0 if is_over else 0.25)
        total += x * epoch * (sys.prefix == "/opt/hptune")
        saved.write_text(json.dumps([epoch, total]))
        if not is_over or epoch == 400:
            trial.report(epoch, total=total)
        if trial.should_stop():
            break
    return {{"total": total}}
"""


@pytest.fixture(scope="module")
def folder(image: str) -> Iterator[Path]:
    """Return the image as a folder."""
    if shutil.which("ch-run") is None:
        unavailable("ch-run not found; install it with `apt-get install charliecloud-runtime`")
    with unpacked(image) as root:
        yield root


@pytest.fixture
def elsewhere() -> Iterator[Path]:
    """Return a directory that ch-run does not show by itself, as it does /tmp."""
    path = Path(tempfile.mkdtemp(prefix="hptune-test-", dir="/var/tmp"))
    yield path
    shutil.rmtree(path)


def test_jobs_run_their_workers_in_an_image_and_leave_it_in_good_order(
    hptune: Hptune, slurm: PrivateSlurm, folder: Path, elsewhere: Path
) -> None:
    if sys.version_info[:2] != (3, 11):
        pytest.skip("the image has Python 3.11, as the master must have")
    go = elsewhere / "go"
    (elsewhere / "model.py").write_text(MODEL.format(go=str(go)))
    (elsewhere / "beside.py").touch()
    hptune.file(
        "slurm.toml",
        'walltime = "00:10:00"\ninterface = "lo"\npartition = "gpu"\ntrials_per_job = 1\n'
        f'image = "{folder}"\n',
    )
    study = elsewhere / "study"
    # The master's packages are those of the image, so that their versions are.
    packages = folder / "opt/hptune/lib/python3.11/site-packages"
    run = hptune.other(
        sys.executable, "-P", "-m", "hptune", "run", elsewhere / "model.py", "--slurm",
        "slurm.toml", "--study", study, "--search", "random", "--trials", 2,
        "--gpus-per-trial", 1, "--max-jobs", 2, PYTHONPATH=str(packages),
    )  # fmt: skip
    wait_for(lambda: reached(study, 3, count=2), "two trials under way")
    first = min(job_ids(slurm))
    slurm.run("scancel", first)
    over = "SELECT * FROM attempts WHERE outcome IS NOT NULL"
    wait_for(lambda: rows(study, over), "its trial to leave")
    go.touch()
    ended = run.wait(seconds=200)
    assert ended.code == 0, ended
    found = trials(study)
    assert [trial["state"] for trial in found] == ["COMPLETE"] * 2
    for trial in found:
        assert trial["value"] == pytest.approx(trial["params"]["x"] * 80200)
    outcomes = [row["outcome"] for row in rows(study, "SELECT outcome FROM attempts")]
    assert "RELEASED" in outcomes, outcomes
    assert "LOST" not in outcomes, outcomes
    wait_until(lambda: slurm.jobs() == [], "an empty queue")
