"""The private Slurm itself, and the output of its commands."""

from __future__ import annotations

from pathlib import Path

import pytest
from private_slurm import PrivateSlurm, wait_until

from jobqueue.nodes import SINFO_FORMAT, parse_sinfo


def test_partitions_and_nodes_are_read_from_a_real_sinfo(slurm: PrivateSlurm) -> None:
    text = slurm.run("sinfo", "--noheader", "--exact", "-o", SINFO_FORMAT)
    partitions = {partition.name: partition for partition in parse_sinfo(text)}
    assert set(partitions) == {"main", "gpu", "cpu", "short", "closed"}
    assert partitions["main"].is_default
    assert partitions["main"].limit_seconds is None
    assert partitions["short"].limit_seconds == 300
    ((shape, count),) = partitions["gpu"].nodes
    assert (shape.cpus, shape.gpus, count) == (4, (("small", 2),), 2)
    assert shape.memory_bytes == 4000 * 2**20
    assert partitions["cpu"].nodes[0][0].gpus == ()


@pytest.mark.slow  # the trials' GPUs are compared in test_runs
def test_jobs_on_one_node_are_told_different_gpus(slurm: PrivateSlurm, tmp_path: Path) -> None:
    say = "echo $CUDA_VISIBLE_DEVICES; sleep 60"
    for number in range(3):
        out = f"{tmp_path}/{number}"
        slurm.run("sbatch", "-o", out, "-w", "g1", "--gres=gpu:1", "--mem=1G", "--wrap", say)

    def answers() -> list[str]:
        return sorted(path.read_text().strip() for path in tmp_path.iterdir())

    wait_until(lambda: answers() == ["0", "1"], "two jobs that run", seconds=20)
    waiting = [line for line in slurm.jobs() if "PENDING" in line]
    assert len(waiting) == 1
    assert len(slurm.clear()) == 3
