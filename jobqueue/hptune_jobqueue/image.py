"""The container image of a shape's jobs: the program that runs it, and the command for that."""

from __future__ import annotations

import enum
import shlex
import shutil
from pathlib import Path

from .config import Shape
from .errors import ConfigError

_SEARCH_PATH = "/opt/hptune/bin:/usr/local/bin:/usr/bin:/bin"
"""PATH in a folder run by ch-run, which would otherwise be that of the host."""

_ALLOWED = (
    "allowed are an Apptainer image (hptune.sif) and an unpacked image (a folder, for Charliecloud)"
)

_SHARED = tuple(map(Path, ("/tmp", "/dev", "/proc", "/sys")))  # noqa: S108 - nothing is made there
"""Directories that both programs take from the host."""


class ImageProgram(enum.StrEnum):
    """Program that runs an image."""

    APPTAINER = "apptainer"
    CH_RUN = "ch-run"


def program_of(image: str) -> ImageProgram:
    """Return the program for an image: ch-run for a folder, Apptainer for all else."""
    return ImageProgram.CH_RUN if Path(image).is_dir() else ImageProgram.APPTAINER


def check_image(shape: Shape) -> None:
    """Check that the shape's image and its program are there, and that it can mount what it must.

    A program that `modules` or `prologue` may provide is not looked for.

    Raises:
        ConfigError: One of them is not, or it cannot.
    """
    image = shape.image
    if image is None:
        return
    is_url = "://" in image
    if not is_url and not Path(image).exists():
        raise ConfigError(f"image is {image!r}, but there is no such file or folder; {_ALLOWED}")
    program = program_of(image)
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
    if shape.modules or shape.prologue or shutil.which(program):
        return
    other = (
        "an unpacked image (a folder) runs in Charliecloud"
        if program is ImageProgram.APPTAINER
        else "a .sif file runs in Apptainer"
    )
    raise ConfigError(
        f"image is {image!r}, which {program} runs, but there is no {program} on this machine. "
        f'If a module brings it, add it, as in modules = ["{program}"]; {other}'
    )


def prepare_lines(shape: Shape) -> list[str]:
    """Return the shell lines of a job before those of its site; none without an image."""
    if shape.image is None:
        return []
    # Packages of the submitting shell or of the user's home are not those of the image.
    lines = ["unset PYTHONPATH PYTHONHOME", "export PYTHONNOUSERSITE=1"]
    if shape.scratch:
        lines.append(f"mkdir -p {shlex.quote(shape.scratch)}")
    if program_of(shape.image) is ImageProgram.CH_RUN:
        # ch-run needs a name, and mounts only on what is there.
        lines.append('export USER="${USER:-$(id -un)}"')
        lines += [f"mkdir -p {shlex.quote(f'{shape.image}{each}')}" for each in _mounted(shape)]
    return lines


def python_command(shape: Shape, image: str, *, has_gpus: bool) -> str:
    """Return the command that runs Python in the shape's image, as shell text.

    Args:
        shape: The kind of job.
        image: Its image.
        has_gpus: Whether the job asks for GPUs.
    """
    python = shlex.quote(shape.python or "python3")
    mounted = _mounted(shape)
    if program_of(image) is ImageProgram.CH_RUN:
        binds = "".join(f" --bind={shlex.quote(str(each))}" for each in mounted)
        return f"ch-run{binds} --set-env=PATH={_SEARCH_PATH} {shlex.quote(image)} -- {python} -P"
    devices = " --nv" if has_gpus else ""
    binds = "".join(f" --bind {shlex.quote(str(each))}" for each in mounted)
    # The node's temporary directory, which a site may set for each job.
    options = f'{devices}{binds} --bind "${{TMPDIR:-/tmp}}"'
    return f"apptainer exec{options} {shlex.quote(image)} {python} -P"


def _mounted(shape: Shape) -> list[Path]:
    """Return the directories to mount, without those inside another one."""
    found = list[Path]()
    for each in sorted(Path(given) for given in (*shape.mounts, shape.scratch) if given):
        if not any(map(each.is_relative_to, (*_SHARED, *found))) and each != Path("/"):
            found.append(each)
    return found
