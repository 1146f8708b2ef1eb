"""The end of a worker's job."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from hptune.worker import devices


def test_a_worker_leaves_before_the_end_of_its_job(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HPTUNE_WORKER_ENDS_AT", "1795275000")
    monkeypatch.delenv("HPTUNE_WORKER_NOTICE", raising=False)
    assert devices.leaves_at() == 1795275000.0
    monkeypatch.setenv("HPTUNE_WORKER_NOTICE", "120")
    assert devices.leaves_at() == 1795274880.0


def test_the_end_is_what_the_job_script_or_slurm_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HPTUNE_WORKER_ENDS_AT", raising=False)
    monkeypatch.delenv("SLURM_JOB_END_TIME", raising=False)
    assert devices.ends_at() is None
    monkeypatch.setenv("SLURM_JOB_END_TIME", "1795275307")
    assert devices.ends_at() == 1795275307.0
    monkeypatch.setenv("HPTUNE_WORKER_ENDS_AT", "1795275000")
    assert devices.ends_at() == 1795275000.0
    monkeypatch.setenv("HPTUNE_WORKER_ENDS_AT", "NONE")  # a partition without a time limit
    assert devices.ends_at() == 1795275307.0


@pytest.mark.parametrize("name", ["PBS_WALLTIME", "OAR_JOB_WALLTIME_SECONDS"])
def test_the_walltime_is_what_the_user_says_or_else_the_script_or_the_batch_system(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    for each in ("HPTUNE_WORKER_ENDS_AT", "HPTUNE_WORKER_NOTICE", "SLURM_JOB_END_TIME"):
        monkeypatch.setenv(each, "")  # undone after the test, whatever is set in it
    began = time.time()
    devices.set_walltime(None)
    assert devices.leaves_at() is None
    monkeypatch.setenv(name, "3600")
    devices.set_walltime(None)
    assert devices.leaves_at() == pytest.approx(began + 3600 - 120, abs=30)
    devices.set_walltime(400.0)
    ends_at = devices.ends_at()
    assert ends_at == pytest.approx(began + 400, abs=30)
    assert devices.leaves_at() == pytest.approx(began + 300, abs=30)
    devices.set_walltime(None)
    assert devices.ends_at() == ends_at, "the script has said so"


def test_the_walltime_counts_from_the_beginning_of_the_job(tmp_path: Path) -> None:
    code = "from hptune.worker import devices as d; d.set_walltime(None); print(d.ends_at())"
    job = tmp_path / "job.sh"
    job.write_text(f"sleep 3\n{sys.executable} -P -c '{code}'\n")
    began = time.time()
    found = subprocess.run(
        ["sh", job], env={"PBS_WALLTIME": "3600"}, capture_output=True, text=True, check=True
    )
    assert float(found.stdout) == pytest.approx(began + 3600, abs=2)


def test_a_worker_in_a_slurm_job_of_the_users_own_leaves_before_its_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for each in ("HPTUNE_WORKER_ENDS_AT", "HPTUNE_WORKER_NOTICE"):
        monkeypatch.setenv(each, "")  # undone after the test, whatever is set in it
    end = int(time.time()) + 3600
    monkeypatch.setenv("SLURM_JOB_END_TIME", str(end))
    devices.set_walltime(None)
    assert devices.leaves_at() == pytest.approx(end - 120, abs=1)


def test_jobs_on_one_node_use_different_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    cores = tuple(range(64))
    found = set()
    for number in range(8):
        monkeypatch.setenv("JOB_ID", str(number))
        found.add(devices.some_of(cores, 4))
    assert len(found) > 4
    assert all(len(set(each)) == 4 for each in found)
    assert devices.some_of(cores, 64) == cores
