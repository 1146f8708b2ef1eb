"""The recipes for centres, with partitions as their documentation describes them."""

from __future__ import annotations

from pathlib import Path

import pytest

from hptune_jobqueue.config import read_config
from hptune_jobqueue.nodes import parse_sinfo
from hptune_jobqueue.script import WorkerCommand, job_script
from hptune_jobqueue.sizing import Need, choose_worker

CENTRES = Path(__file__).parents[2] / "examples" / "slurm" / "centres"
GIBIBYTE = 2**30

RECIPES: dict[str, tuple[str, Need, tuple[str, ...], str]] = {
    "lumi-g": (
        "small-g|up|3-00:00:00|112|480000|gpu:mi250:8|100|mix",
        Need(cpus=7, gpus=1),
        ("#SBATCH -p small-g", "#SBATCH --gres=gpu:8", "#SBATCH --cpus-per-task=56"),
        (
            "exec singularity exec --bind /project/project_465000000 "
            '--bind /scratch/project_465000000 --bind "${TMPDIR:-/tmp}" --rocm '
        ),
    ),
    "puhti": (
        "gpu|up|3-00:00:00|40|382000|gpu:v100:4,nvme:3600|80|mix",
        Need(cpus=10, gpus=1, memory_bytes=80 * GIBIBYTE),
        ("#SBATCH --gres=gpu:v100:4,nvme:100", "#SBATCH --mem=328704M"),
        "exec /",
    ),
    "juwels-booster": (
        "booster*|up|1-00:00:00|96|500000|gpu:4|900|idle",
        Need(cpus=12, gpus=1),
        ("#SBATCH --gres=gpu:4", "#SBATCH --cpus-per-task=48"),
        "exec /",
    ),
    "frontier": (
        (
            "batch*|up|12:00:00|128|512000|gpu:8|9400|alloc\n"
            "extended|up|1-00:00:00|128|512000|gpu:8|9400|alloc"
        ),
        Need(cpus=7, gpus=1),
        (
            "#SBATCH -p batch",
            "#SBATCH -t 02:00:00",
            "#SBATCH --gres=gpu:8",
            "#SBATCH --cpus-per-task=56",
            "#SBATCH --constraint=nvme",
        ),
        "exec /",
    ),
    "perlmutter": (
        (
            "gpu_ss11|up|2-00:00:00|128|229992|gpu:a100:4|1700|alloc\n"
            "shared_gpu_ss11|up|2-00:00:00|128|229992|gpu:a100:4|1700|mix\n"
            "regular_milan_ss11|up|2-00:00:00|256|487802|(null)|3000|alloc"
        ),
        Need(cpus=32, gpus=1),
        (
            "#SBATCH --qos=shared",
            "#SBATCH --gres=gpu:1",
            "#SBATCH --cpus-per-task=32",
            "#SBATCH --constraint=gpu",
        ),
        "exec /",
    ),
    "site-chooses": (
        (
            "cpu|up|2-00:00:00|256|512000|(null)|3000|mix\n"
            "gpu_a|up|1-00:00:00|128|256000|gpu:a100:4|1500|mix"
        ),
        Need(cpus=16, gpus=1),
        ("#SBATCH --gres=gpu:4", "#SBATCH --qos=regular", "#SBATCH --constraint=gpu"),
        "exec /",
    ),
}


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_asks_for_what_its_cluster_has(name: str) -> None:
    sinfo, need, directives, begin = RECIPES[name]
    (shape,) = read_config(CENTRES / f"{name}.toml").shapes
    worker = choose_worker(parse_sinfo(f"{sinfo}\n"), shape, need)
    assert worker.trials == worker.gpus
    command = WorkerCommand(address="/study/jobs/scheduler.json", module="hptune worker")
    script = job_script(shape, worker, command, job_name="j", logs=Path("/study/jobs"))
    lines = script.splitlines()
    assert not [line for line in directives if line not in lines], script
    assert shape.memory != 0 or "#SBATCH --mem" not in script
    assert lines[-1].startswith(begin)


def test_each_file_has_its_test() -> None:
    assert {path.stem for path in CENTRES.glob("*.toml")} == set(RECIPES)
