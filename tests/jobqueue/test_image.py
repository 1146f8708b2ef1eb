"""Images of jobs: which program runs them, what they show, and what is refused at the start."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from hptune_jobqueue.cluster import ClusterOrder, job_kinds
from hptune_jobqueue.commands import Slurm
from hptune_jobqueue.config import Shape, SlurmConfig, read_config
from hptune_jobqueue.errors import ConfigError
from hptune_jobqueue.image import check_image
from hptune_jobqueue.nodes import parse_sinfo
from hptune_jobqueue.script import WorkerCommand, job_script
from hptune_jobqueue.sizing import Need, WorkerShape

GIBIBYTE = 2**30


def shape_of(folder: Path, lines: str) -> Shape:
    file = folder / "slurm.toml"
    file.write_text(f'partition = "gpu"\nwalltime = "04:00:00"\n{lines}')
    config = read_config(file).showing(Path("/home/me/study"), Path("/home/me"), Path("/tmp/model"))
    return config.shapes[0]


def script_of(shape: Shape, *, gpus: int = 0) -> list[str]:
    """Return the lines of a job's script."""
    return job_script(
        shape,
        WorkerShape(cpus=2, gpus=gpus, memory_bytes=GIBIBYTE, trials=1),
        WorkerCommand(address="/home/me/study/jobs/scheduler.json", module="hptune worker"),
        job_name="j",
        logs=Path("/home/me/study/jobs"),
    ).splitlines()


def commands(shape: Shape, *, gpus: int = 0) -> list[str]:
    """Return the lines of a job's script that are neither directives nor hptune's variables."""
    skipped = ("#", "export HPTUNE_", "export CUDA_", "for _ in ")
    return [line for line in script_of(shape, gpus=gpus) if line and not line.startswith(skipped)]


def test_apptainer_runs_a_file_with_its_gpus_and_the_directories_of_the_study(
    tmp_path: Path,
) -> None:
    shape = shape_of(tmp_path, 'image = "my tf.sif"\nmounts = ["/data"]\nscratch = "/local"')
    *prepare, command = commands(shape, gpus=1)
    assert prepare == [
        "unset PYTHONPATH PYTHONHOME",
        "export PYTHONNOUSERSITE=1",
        "mkdir -p /local",
    ]
    assert command.startswith(
        "exec apptainer exec --nv --bind /data --bind /home/me --bind /local "
        f"--bind \"${{TMPDIR:-/tmp}}\" '{tmp_path}/my tf.sif' python3 -P -m hptune worker "
    )
    assert "--nv" not in commands(shape)[-1]
    shape = shape_of(tmp_path, 'image = "tf.sif"\nmounts = ["/a$b"]\nscratch = "$TMPDIR/"')
    assert "exec --bind \"${TMPDIR:?}\" --bind '/a$b' --bind /home/me " in commands(shape)[-1]
    url = shape_of(tmp_path, 'image = "oras://site/hptune"\npython = "/env/bin/python"')
    assert commands(url)[-1].startswith("exec apptainer exec ")
    assert " oras://site/hptune /env/bin/python -P -m hptune" in commands(url)[-1]


def test_charliecloud_runs_a_folder(tmp_path: Path) -> None:
    (tmp_path / "image" / "usr").mkdir(parents=True)
    shape = shape_of(tmp_path, 'image = "image"')
    *prepare, command = commands(shape)
    # ch-run mounts only on folders that the image has.
    assert prepare[2:] == [
        'export USER="${USER:-$(id -un)}"',
        f"mkdir -p {tmp_path}/image/home/me",
    ]
    assert command.startswith(
        "exec ch-run --bind=/home/me --set-env=PATH=/opt/hptune/bin:/usr/local/bin:/usr/bin:/bin "
        f"{tmp_path}/image -- python3 -P -m hptune worker "
    )


def test_centres_name_their_program_and_give_it_options(tmp_path: Path) -> None:
    lines = """image = "lumi.sif"
image_program = "singularity"
image_options = ["--rocm", "--bind $SCRATCH,/opt/cray"]"""
    assert commands(shape_of(tmp_path, lines), gpus=8)[-1].startswith(
        'exec singularity exec --bind /home/me --bind "${TMPDIR:-/tmp}" --rocm '
        f"--bind $SCRATCH,/opt/cray {tmp_path}/lumi.sif python3 -P -m hptune worker "
    )


@pytest.mark.parametrize("image", ["nvcr.io#nvidia/pytorch:25.01-py3", "hptune.sqsh"])
def test_pyxis_runs_a_name_in_a_registry_or_a_file(tmp_path: Path, image: str) -> None:
    (tmp_path / "hptune.sqsh").touch()
    lines = f'image = "{image}"\nimage_program = "pyxis"\nmounts = ["/data"]'
    options = '\nimage_options = ["--no-container-entrypoint"]'
    shown = image if "#" in image else f"{tmp_path}/hptune.sqsh"
    shown = f"'{shown}'" if "#" in shown else shown
    assert commands(shape_of(tmp_path, lines + options), gpus=1)[-1].startswith(
        "exec srun --ntasks=1 --overlap --mem=0 --cpu-bind=none --export=ALL "
        f"--container-image={shown} --container-mounts=/data:/data,/home/me:/home/me,"
        '"${TMPDIR:-/tmp}":"${TMPDIR:-/tmp}" --no-container-entrypoint '
        "python3 -P -m hptune worker "
    )
    with pytest.raises(ConfigError, match="with which a job has one node"):
        check_image(shape_of(tmp_path, f"{lines}\nnodes = 2"))


def test_with_pyxis_a_trial_on_several_nodes_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    partitions = parse_sinfo("gpu|up|infinite|8|64000|gpu:4|3|idle\n")
    monkeypatch.setattr(Slurm, "partitions", lambda _: partitions)
    shape = shape_of(tmp_path, 'image = "site#own"\nimage_program = "pyxis"\nmodules = ["pyxis"]')
    config = SlurmConfig((shape,))
    order = ClusterOrder(config=config, name="a", directory=tmp_path, module="worker", max_jobs=1)
    assert job_kinds(order, Need(gpus=1))
    with pytest.raises(ConfigError, match="2 nodes, and image_program is pyxis"):
        job_kinds(order, Need(gpus=1, nodes=2))


def test_the_notice_of_a_jobs_end_does_not_go_to_an_srun_which_would_kill_the_worker(
    tmp_path: Path,
) -> None:
    (tmp_path / "hptune.sif").touch()
    assert "#SBATCH --signal=TERM@120" in script_of(
        shape_of(tmp_path, 'image = "site#own"\nimage_program = "pyxis"')
    )
    assert "#SBATCH --signal=B:TERM@120" in script_of(shape_of(tmp_path, 'image = "hptune.sif"'))


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ('image_program = "singularity"', "image_program is given without `image`"),
        ('image = "a.sif"\nimage_program = "docker"', "allowed are apptainer, singularity, ch-run"),
    ],
)
def test_a_program_that_cannot_be_used_is_refused(tmp_path: Path, lines: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        shape_of(tmp_path, lines)


def test_what_is_missing_is_refused_before_a_job_is_submitted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    (tmp_path / "image" / "usr").mkdir(parents=True)
    (tmp_path / "folder").mkdir()
    (tmp_path / "hptune.sif").touch()
    for name, words in (
        ("absent.sif", "there is no such file or folder; allowed are an Apptainer image"),
        ("folder", "a folder without usr/"),
        ("image", "which ch-run runs, but there is no ch-run on this machine"),
        ("hptune.sif", "there is no apptainer on this machine. If a module brings it, add it, as "),
    ):
        with pytest.raises(ConfigError, match=words):
            check_image(shape_of(tmp_path, f'image = "{name}"'))
    check_image(shape_of(tmp_path, 'image = "hptune.sif"\nmodules = ["apptainer"]'))
    check_image(shape_of(tmp_path, ""))
    (tmp_path / "apptainer").touch(0o755)
    check_image(shape_of(tmp_path, 'image = "hptune.sif"'))


@pytest.mark.parametrize("lines", ['mounts = ["/data:/mnt:ro"]', 'scratch = "/local/a,b"'])
def test_a_directory_that_would_be_mounted_elsewhere_is_refused(tmp_path: Path, lines: str) -> None:
    (tmp_path / "hptune.sif").touch()
    with pytest.raises(ConfigError, match="apptainer mounts only directories with no ':' and no"):
        check_image(shape_of(tmp_path, f'image = "hptune.sif"\n{lines}'))


def test_the_shell_understands_the_command(tmp_path: Path) -> None:
    program = tmp_path / "bin" / "apptainer"
    program.parent.mkdir()
    program.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    program.chmod(0o755)
    shape = shape_of(tmp_path, "image = 'it''s a $HOME.sif'".replace("''", "\u2019"))
    command = commands(shape)[-1]
    done = subprocess.run(
        ["bash", "-c", command],
        env={"PATH": f"{program.parent}:/usr/bin:/bin", "TMPDIR": "/node/my tmp"},
        capture_output=True,
        text=True,
        check=True,
    )
    words = done.stdout.splitlines()
    assert "/node/my tmp" in words
    assert f"{tmp_path}/it\u2019s a $HOME.sif" in words
