"""Facts about a machine: cores that are near each other, and the memory of its GPUs."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from commands import Commands
from hptune.worker import devices
from hptune.worker.gpus.machine import Gpus
from nvml import GB, two_gpus


@pytest.fixture
def nodes(tmp_path: Path) -> Path:
    """Make two nodes of memory as the kernel shows them, and one that has no cores."""
    for number, cores in enumerate(["0-3,8-11", "4-7,12-15", ""]):
        node = tmp_path / f"node{number}"
        node.mkdir()
        (node / "cpulist").write_text(cores + "\n")
    return tmp_path


def test_cores_of_one_node_are_near_each_other(nodes: Path, tmp_path: Path) -> None:
    assert devices.near(range(16), nodes) == (
        (0, 1, 2, 3, 8, 9, 10, 11),
        (4, 5, 6, 7, 12, 13, 14, 15),
    )
    assert devices.near([2, 3, 4], nodes) == ((2, 3), (4,))
    assert devices.near([2, 3], nodes) == ()
    assert devices.near([2, 3], tmp_path / "nowhere") == ()


def test_the_smallest_gpu_says_how_much_memory_each_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", two_gpus())
    monkeypatch.setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
    usage = Gpus()
    assert usage.total_bytes(("0",)) == 80 * GB
    assert usage.total_bytes(("0", "1")) == 40 * GB
    assert usage.total_bytes(("0", "7")) == 0
    assert usage.total_bytes(()) == 0


def test_a_worker_says_all_of_it(monkeypatch: pytest.MonkeyPatch, nodes: Path) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", two_gpus())
    monkeypatch.setattr(devices, "NODES", nodes)
    monkeypatch.setattr(devices, "cpus", lambda: (3, 4))
    monkeypatch.setattr(devices, "total_bytes", lambda: 10 * GB)
    monkeypatch.setattr(devices, "free_bytes", lambda: (7 * GB, 12 * GB))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    monkeypatch.setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
    found = devices.capacity()
    assert (found.cpus, found.near) == ((3, 4), ((3,), (4,)))
    assert (found.gpus, found.gpu_memory_bytes) == (("0", "1"), 40 * GB)
    assert (found.memory_bytes, found.memory_taken_bytes) == (10 * GB, 3 * GB)


def test_a_machine_without_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert devices.capacity().gpu_memory_bytes == 0


@pytest.mark.parametrize(
    ("visible", "usable"),
    [
        ("0,2,-1,1", ("0", "2")),  # as CUDA reads it
        ("NoDevFiles", ()),  # Slurm, for a job without GPUs
        (" GPU-8932f937 , MIG-5c89d0f1 ", ("GPU-8932f937", "MIG-5c89d0f1")),
    ],
)
def test_only_what_cuda_would_use_is_a_gpu(
    monkeypatch: pytest.MonkeyPatch, visible: str, usable: tuple[str, ...]
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert Gpus().names == usable


def test_the_numbers_of_the_driver_mean_the_same_to_cuda(
    monkeypatch: pytest.MonkeyPatch, commands: Commands
) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setenv("CUDA_DEVICE_ORDER", "")  # so that it is put back
    monkeypatch.delenv("CUDA_DEVICE_ORDER")
    rows = "0, GPU-a, 0, 0, 8192, V100, 0\\n1, GPU-b, 0, 0, 8192, V100, 0\\n"
    commands.make("nvidia-smi", f"printf '{rows}'")
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert Gpus().names == ("0", "1")
    assert os.environ["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"


def test_no_more_cores_are_used_than_slurm_granted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not every cluster confines its jobs to their cores."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))
    for name in ("SLURM_JOB_ID", "SLURM_CPUS_ON_NODE", "SLURMD_NODENAME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(devices, "control_groups", lambda _: [])
    assert len(devices.cpus()) == 8
    monkeypatch.setenv("SLURM_CPUS_ON_NODE", "3")
    assert len(devices.cpus()) == 8, "no job, whatever this says"
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    assert len(devices.cpus()) == 3
    monkeypatch.setenv("SLURM_CPUS_ON_NODE", "99")
    assert devices.cpus() == tuple(range(8))


@pytest.mark.parametrize(("job", "order"), [("7", "PCI_BUS_ID"), ("", None)])
def test_the_numbers_of_slurm_mean_the_same_to_cuda(
    monkeypatch: pytest.MonkeyPatch, job: str, order: str | None
) -> None:
    """Slurm numbers GPUs by their PCI buses; a user's own numbers are CUDA's."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    for name in ("CUDA_DEVICE_ORDER", "SLURM_JOB_ID"):
        monkeypatch.setenv(name, job)  # so that it is put back
        monkeypatch.delenv(name)
    if job:
        monkeypatch.setenv("SLURM_JOB_ID", job)
    assert Gpus().names == ("1",)
    assert os.environ.get("CUDA_DEVICE_ORDER") == order
