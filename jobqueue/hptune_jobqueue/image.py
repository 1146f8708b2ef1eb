"""The container image of a shape's jobs: the program that runs it, and the command for that."""

from __future__ import annotations

import enum
import shlex
import shutil
from pathlib import Path

from .config import Shape
from .errors import ConfigError
from .values import expanded

_SEARCH_PATH = "/opt/hptune/bin:/usr/local/bin:/usr/bin:/bin"
"""PATH in a folder run by ch-run, which would otherwise be that of the host."""

_ALLOWED = (
    "allowed are an Apptainer image (hptune.sif), an unpacked image (a folder, for Charliecloud) "
    'and, with image_program = "pyxis", what srun --container-image takes'
)

NO_SRUN_OPTIONS = "unset ${!SRUN_*}"
"""Shell line of a job that calls srun: options of the shell that submitted it are not for it."""

_ONE_TASK = "--ntasks=1 --overlap --mem=0 --cpu-bind=none --export=ALL"
"""Options of an srun whose one task has all of the job."""

_SHARED = tuple(map(Path, ("/tmp", "/dev", "/proc", "/sys")))  # noqa: S108 - nothing is made there
"""Directories that both programs take from the host."""


class ImageProgram(enum.StrEnum):
    """Program that runs an image."""

    APPTAINER = "apptainer"
    SINGULARITY = "singularity"
    CH_RUN = "ch-run"
    PYXIS = "pyxis"
    """The plug-in for srun; enroot runs the image."""

    @property
    def command(self) -> str:
        """The command that a job calls."""
        return "srun" if self is ImageProgram.PYXIS else self.value


def program_of(shape: Shape) -> ImageProgram:
    """Return the program for a shape's image: by default ch-run for a folder, or Apptainer."""
    if shape.image_program:
        return ImageProgram(shape.image_program)
    is_folder = Path(shape.image or "").is_dir()
    return ImageProgram.CH_RUN if is_folder else ImageProgram.APPTAINER


def is_run_by_srun(shape: Shape) -> bool:
    """Return whether srun runs the shape's image. At a SIGTERM it would kill its task."""
    return shape.image is not None and program_of(shape) is ImageProgram.PYXIS


def check_image(shape: Shape) -> None:
    """Check that the shape's image and its program are there, and that it can mount what it must.

    A program that `modules` or `prologue` may provide is not looked for.

    Raises:
        ConfigError: One of them is not, or it cannot.
    """
    image = shape.image
    if image is None:
        return
    program = program_of(shape)
    is_file = "://" not in image and program is not ImageProgram.PYXIS
    if is_file and not Path(image).exists():
        raise ConfigError(f"image is {image!r}, but there is no such file or folder; {_ALLOWED}")
    if program is ImageProgram.PYXIS and shape.nodes > 1:
        raise ConfigError(
            f"jobs are to have {shape.nodes} nodes, and image_program is pyxis, with which a job "
            "has one node; leave nodes out, and divide no trial among nodes"
        )
    separators = ":" if program is ImageProgram.CH_RUN else ":,"
    for each in map(str, _mounted(shape)):
        if any(character in each for character in separators):
            allowed = " and ".join(f"no {character!r}" for character in separators)
            raise ConfigError(
                f"{each!r} is to be visible in the image, but {program} mounts only directories "
                f"with {allowed} in their paths"
            )
    if program is ImageProgram.CH_RUN and not Path(image, "usr").is_dir():
        raise ConfigError(f"image is {image!r}, a folder without usr/; {_ALLOWED}")
    if shape.modules or shape.prologue or shutil.which(program.command):
        return
    others = (
        "an unpacked image (a folder) runs in Charliecloud, a .sif file in Apptainer, and, with "
        f'image_program = "{ImageProgram.SINGULARITY}", in Singularity'
    )
    raise ConfigError(
        f"image is {image!r}, which {program} runs, but there is no {program.command} on this "
        f'machine. If a module brings it, add it, as in modules = ["{program}"]; {others}'
    )


def prepare_lines(shape: Shape) -> list[str]:
    """Return the shell lines of a job before those of its site; none without an image."""
    if shape.image is None:
        return []
    # Packages of the submitting shell or of the user's home are not those of the image.
    lines = ["unset PYTHONPATH PYTHONHOME", "export PYTHONNOUSERSITE=1"]
    if shape.scratch:
        lines.append(f"mkdir -p {expanded(shape.scratch)}")
    if program_of(shape) is ImageProgram.PYXIS:
        lines.append(NO_SRUN_OPTIONS)
    if program_of(shape) is ImageProgram.CH_RUN:
        # ch-run needs a name, and mounts only on what is there.
        lines.append('export USER="${USER:-$(id -un)}"')
        lines += [f"mkdir -p {shlex.quote(shape.image)}{each}" for each in _words(shape)]
    return lines


def python_command(shape: Shape, image: str, *, has_gpus: bool) -> str:
    """Return the command that runs Python in the shape's image, as shell text.

    Args:
        shape: The kind of job.
        image: Its image.
        has_gpus: Whether the job asks for GPUs.
    """
    program = program_of(shape)
    python = f"{shlex.quote(shape.python or 'python3')} -P"
    own = "".join(f" {option}" for option in shape.image_options)
    image = shlex.quote(image)
    mounted = _words(shape)
    if program is ImageProgram.CH_RUN:
        binds = "".join(f" --bind={each}" for each in mounted)
        return f"ch-run{binds} --set-env=PATH={_SEARCH_PATH}{own} {image} -- {python}"
    temporary = '"${TMPDIR:-/tmp}"'  # a site may set it for each job
    if program is ImageProgram.PYXIS:
        binds = ",".join(f"{each}:{each}" for each in (*mounted, temporary))
        return (
            f"srun {_ONE_TASK} --container-image={image} --container-mounts={binds}{own} {python}"
        )
    # `--rocm` shows the GPUs of AMD in the place of NVIDIA's.
    devices = " --nv" if has_gpus and " --rocm" not in own else ""
    binds = "".join(f" --bind {each}" for each in (*mounted, temporary))
    return f"{program} exec{devices}{binds}{own} {image} {python}"


def _mounted(shape: Shape) -> list[Path]:
    """Return the directories to mount, without those inside another one."""
    found = list[Path]()
    for each in sorted(Path(given) for given in (*shape.mounts, shape.scratch) if given):
        if not any(map(each.is_relative_to, (*_SHARED, *found))) and each != Path("/"):
            found.append(each)
    return found


def _words(shape: Shape) -> list[str]:
    """Return the directories to mount as shell words; that of the node may name its variables."""
    own = Path(shape.scratch or "/")
    return [expanded(str(d)) if d == own else shlex.quote(str(d)) for d in _mounted(shape)]
