"""The digits study of the examples, on TensorFlow, with a scheduler and workers in containers."""

from __future__ import annotations

import re
import shutil
import time
from pathlib import Path

import pytest

from real_containers import Container, Containers, build_further, build_image, missing, note
from real_runs import Hptune, rows, trials, wait_for
from requirements import unavailable

ROOT = Path(__file__).parents[2]
TRIALS = 6

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]


@pytest.fixture(scope="module")
def image() -> str:
    """Return the image with TensorFlow, and what the guide adds for the digits."""
    if why := missing():
        unavailable(f"the tests on containers cannot run: {why}")
    guide = (ROOT / "docs" / "guide" / "containers.md").read_text()
    further = re.search(r"```dockerfile\n(FROM hptune\n.*?)```", guide, re.DOTALL)
    assert further is not None
    return build_further(build_image("tensorflow"), further[1], name="digits")


@pytest.mark.parametrize("is_shared", [True, False], ids=["shared directory", "connection"])
def test_the_digits_study_runs_on_a_scheduler_and_three_workers(
    containers: Containers, hptune: Hptune, *, is_shared: bool
) -> None:
    shutil.copy(ROOT / "examples" / "digits_cnn.py", containers.work)
    study = containers.work / "study"
    host = containers.address("scheduler")
    certs = ("--certs", "/project/certs/worker.pem")
    scheduler = containers.start(
        "scheduler", "scheduler", "--host", host, "--certs", "/project/certs"
    )
    address = scheduler.until(r"join:  hptune worker (tls://\S+)")[1]
    began = time.monotonic()
    workers: list[Container] = []
    for name, cpus in (("one", 1), ("two", 2), ("three", 1)):
        limits = (f"--cpus={cpus}", "--memory=3g")
        shows = "" if is_shared else "certs/worker.pem"
        workers.append(
            containers.start(name, "worker", address, *certs, options=limits, shows=shows)
        )
    for each in workers:
        each.until("joined ", seconds=120)
    run = containers.start(
        "study", "run", "digits_cnn.py", "--connect", address, *certs, "--study", "study",
        "--trials", TRIALS, "--epochs", 3, "--seed", 1, "--cpus-per-trial", 1,
    )  # fmt: skip
    ended = run.end(seconds=600)
    assert ended.code == 0, ended
    note(
        f"digits study of {TRIALS} trials on three containers, with"
        f"{'' if is_shared else 'out'} a shared directory: {time.monotonic() - began:.0f} s"
    )
    way = "files: shared directory" if is_shared else "files: over the connection (3 workers"
    assert way in ended.out + ended.err
    found = trials(study)
    assert [each["state"] for each in found] == ["COMPLETE"] * TRIALS
    assert max(each["value"] for each in found) > 0.5
    assert {row["node"] for row in rows(study, "SELECT node FROM attempts")} == {
        "one",
        "two",
        "three",
    }
    model = "import hptune; print(hptune.Study('study').best_model().output_shape)"
    loaded = containers.start("load", "-c", model, options=("--entrypoint=python3",)).end()
    assert (loaded.code, "(None, 10)" in loaded.out) == (0, True), loaded
    for each in (*workers, scheduler):
        assert each.terminate().code == 0
    wait_for(lambda: not containers.running(), "no container")
    status = hptune("status", study)
    assert f"{TRIALS} complete" in status.out, status
