"""No GPU of a machine is offered by two workers."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from tuner.core.resources import Capacity
from tuner.errors import UsageError
from tuner.model_file import ObjectiveSource, SourceKind
from tuner.worker import claims, devices
from tuner.worker.agent import Agent
from tuner.worker.joining import offered

GPUS = ("GPU-a", "GPU-b", "GPU-c")


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """Other tests may be running workers on this machine: here they are as if alone."""
    monkeypatch.setenv("SLURMD_NODENAME", str(tmp_path))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", ",".join(GPUS))
    held: dict[str, socket.socket] = {}
    monkeypatch.setattr(claims, "_held", held)
    yield
    for claim in held.values():
        claim.close()


def of_another_process(most: int) -> subprocess.Popen[str]:
    code = f"""
from tuner.worker import claims, devices
from tuner.worker.agent import Agent
print(",".join(claims.gpus({GPUS!r}, {most})), flush=True)
input()
"""
    return subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


def test_what_another_worker_offers_is_not_offered_again() -> None:
    with of_another_process(2) as other:
        assert other.stdout is not None
        assert other.stdout.readline().strip() == "GPU-a,GPU-b"
        assert claims.gpus(GPUS, 3) == ("GPU-c",)
        assert offered("tcp://x:1", cpus=None, gpus=None, memory_bytes=None).capacity.gpus == (
            "GPU-c",
        )
        with pytest.raises(UsageError, match="all but 1 of its 3"):
            offered("tcp://x:1", cpus=None, gpus=2, memory_bytes=None)
        other.kill()
    assert claims.gpus(GPUS, 2) == ("GPU-a", "GPU-c")
    assert claims.gpus(GPUS, 3) == GPUS


def test_the_agents_of_one_worker_offer_the_same() -> None:
    assert claims.gpus(GPUS, 2) == claims.gpus(GPUS, 2) == ("GPU-a", "GPU-b")
    assert claims.gpus(GPUS, 1) == ("GPU-a",)
    assert claims.gpus((), 3) == ()


def test_devices_of_another_job_that_have_the_same_names_are_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    with of_another_process(3) as other:
        assert other.stdout is not None
        assert other.stdout.readline().strip() == ",".join(GPUS)
        monkeypatch.setenv("SLURM_JOB_ID", "8")
        assert claims.gpus(GPUS, 3) == GPUS
        other.kill()


def test_a_plain_dask_worker_offers_what_its_threads_are_of_the_cores(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    machine = Capacity((0, 1, 2, 3), GPUS, 100)
    monkeypatch.setattr(devices, "capacity", lambda: machine)
    source = ObjectiveSource(SourceKind.FILE, "model.py")
    agent = Agent(name="study", source=source, warm_address=None, cores={})
    for threads, expected in (
        (1, Capacity((0,), ("GPU-a",), 25)),
        (2, Capacity((0, 1), ("GPU-a", "GPU-b"), 50)),
        (8, machine),
    ):
        agent._worker = SimpleNamespace(name="w", state=SimpleNamespace(nthreads=threads))
        assert agent._capacity() == expected
