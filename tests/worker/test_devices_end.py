"""The end of a worker's job."""

from __future__ import annotations

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
