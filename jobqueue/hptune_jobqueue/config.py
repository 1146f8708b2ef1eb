"""The slurm.toml: the kinds of jobs to submit, and what is specific to a site.

Keys at the top apply to all kinds of jobs, those in a `[[shape]]` to one kind::

    account = "project"
    walltime = "04:00:00"

    [[shape]]
    name = "big"
    partition = "gpu"

    [[shape]]
    name = "small"
    partition = "cpu"
    walltime = "1-00:00:00"

    [master]
    partition = "cpu"

`[master]` describes the job of a study's master (`--detach`).

A file of the site has defaults for the keys at the top and those of `[master]`.
"""

from __future__ import annotations

import difflib
import os
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from .errors import ConfigError
from .values import READERS, duration_seconds

ANY_PARTITION = "*"
"""The partition of jobs that name none: Slurm, or a plug-in of the site, chooses it."""

SITE_FILE = Path("/etc/hptune/slurm.toml")
"""The file of the site, if the environment variable `SITE_VARIABLE` names no other."""

SITE_VARIABLE = "HPTUNE_SITE_CONFIG"
"""Names the file of the site; empty for none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """One kind of job.

    Attributes:
        name: Its name; part of its jobs' names.
        partition: The partition to submit to, or several with commas; or `ANY_PARTITION`.
        walltime: How long a job may run, in Slurm's form, such as `04:00:00` or `1-12:00:00`.
        account: The account to charge; None for the user's default one.
        qos: The quality of service; None for the default one.
        nodes: How many nodes a job has, each with a worker; these start together.
        trials_per_job: How many trials a job holds at once on each of its nodes; None for as many
            as fit on one.
        cpus: Cores of a job on each of its nodes; None for what its trials need.
        gpus: GPUs of a job on each of its nodes; None for what its trials need.
        gpu_type: Slurm's name for the type of GPUs; None for any.
        memory: Memory of a job on each of its nodes, in bytes; None for what its trials need or,
            if that is unknown, for a proportional part of the node's; 0 leaves it to Slurm.
        exclusive: Whether to ask for whole nodes.
        max_jobs: How many jobs of this kind there may be at once; None for any number.
        directives: Further lines for `#SBATCH`.
        modules: Environment modules to load before anything else.
        environment: Variables to export.
        prologue: Lines of shell that run before the worker.
        python: The Python of the jobs; None for the one that submits them or, with an image, for
            the image's `python3`.
        launcher: The command that runs Python, such as `apptainer exec --nv image.sif`.
        image: The image that the jobs run in, as its program takes it; None for none.
        image_program: The program that runs it: apptainer, singularity, ch-run (Charliecloud) or
            pyxis (the plug-in for srun); None for ch-run if it is a folder, else apptainer.
        image_options: Further options of that program, as shell text.
        mounts: Directories that the image shows under the same path, besides those of the study.
        interface: The network interface of workers and scheduler, such as `ib0`.
        scratch: A directory on the node's own disk for Dask's files.
        log_directory: Where the jobs' output goes; None for the study's directory.
        notice_seconds: How long before its end Slurm tells a job's worker to leave.
        grace_seconds: How long a job may run without a worker that has joined, and how long its
            worker waits for a master that is gone.
    """

    name: str
    partition: str
    walltime: str
    account: str | None = None
    qos: str | None = None
    nodes: int = 1
    trials_per_job: int | None = None
    cpus: int | None = None
    gpus: int | None = None
    gpu_type: str | None = None
    memory: int | None = None
    exclusive: bool = False
    max_jobs: int | None = None
    directives: tuple[str, ...] = ()
    modules: tuple[str, ...] = ()
    environment: tuple[tuple[str, str], ...] = ()
    prologue: tuple[str, ...] = ()
    python: str | None = None
    launcher: str | None = None
    image: str | None = None
    image_program: str | None = None
    image_options: tuple[str, ...] = ()
    mounts: tuple[str, ...] = ()
    interface: str | None = None
    scratch: str | None = None
    log_directory: str | None = None
    notice_seconds: int = 120
    grace_seconds: int = 600

    @property
    def excluded(self) -> tuple[str, ...]:
        """The nodes that its directives exclude, in Slurm's form."""
        found = (
            re.match(r"(?:--exclude[=\s]|-x)\s*(\S+)", directive) for directive in self.directives
        )
        return tuple(each[1] for each in found if each)

    @property
    def walltime_seconds(self) -> int:
        """The walltime in seconds."""
        return duration_seconds(self.walltime)


@dataclass(frozen=True, slots=True)
class SlurmConfig:
    """Contents of a slurm.toml.

    Attributes:
        shapes: At least one kind of job, each with its own name.
        master: The fields of `Shape` that are given for the master's job.
        files: The files that it was read from: the slurm.toml, and that of the site if there is
            one.
    """

    shapes: tuple[Shape, ...]
    master: Mapping[str, Any] = field(default_factory=dict)
    files: tuple[Path, ...] = ()

    @property
    def interface(self) -> str | None:
        """The network interface for the scheduler: the first that a shape names."""
        return next((shape.interface for shape in self.shapes if shape.interface), None)

    def showing(self, *directories: Path) -> SlurmConfig:
        """Return the same with these directories visible in the images of all shapes."""
        more = tuple(map(str, directories))
        shapes = (replace(shape, mounts=(*shape.mounts, *more)) for shape in self.shapes)
        return replace(self, shapes=tuple(shapes))

    def prefix(self, shape: Shape) -> str:
        """Return the prefix of messages on one of several shapes, such as "shape big: "."""
        return f"shape {shape.name}: " if len(self.shapes) > 1 else ""


@dataclass(frozen=True, slots=True)
class _Tables:
    """What a file says; each value is read and checked.

    Attributes:
        top: Of all kinds of jobs.
        shapes: Of one kind each.
        master: Of the master's job.
    """

    top: Mapping[str, Any] = field(default_factory=dict)
    shapes: Sequence[Mapping[str, Any]] = ()
    master: Mapping[str, Any] = field(default_factory=dict)


def read_config(path: Path) -> SlurmConfig:
    """Read a slurm.toml, and the file of the site for what it does not say.

    Raises:
        ConfigError: One of them cannot be read, or asks for something that does not exist.
    """
    named = os.environ.get(SITE_VARIABLE, SITE_FILE if SITE_FILE.exists() else "")
    site = Path(named) if named else None
    defaults = _Tables() if site is None else _read_site(site)
    text = _text(path, "`hptune slurm init` writes a slurm.toml")
    folder = path.absolute().parent
    with _located(text, path):
        config = _config(_tables(text, folder), defaults)
    shapes = tuple(
        replace(each, image=_whole_image(folder, each.image, each.image_program))
        for each in config.shapes
    )
    return replace(config, shapes=shapes, files=(path,) if site is None else (path, site))


def _read_site(path: Path) -> _Tables:
    text = _text(path, f"It is the site's; {SITE_VARIABLE} names another one, or is empty for none")
    folder = path.absolute().parent
    with _located(text, path):
        site = _tables(text, folder, is_of_site=True)
    top = site.top
    image = _whole_image(folder, top.get("image"), top.get("image_program"))
    return replace(site, top={**top, "image": image}) if image else site


def _text(path: Path, remedy: str) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text in UTF-8"
        raise ConfigError(f"{path} cannot be read: {reason}. {remedy}") from error


def _whole_image(folder: Path, image: str | None, program: str | None) -> str | None:
    """Return the whole path of an image that is named in a folder, if it is no URL."""
    if image is None or "://" in image:
        return image
    path = folder / image
    # Pyxis takes a name in a registry too, such as nvcr.io#nvidia/pytorch:24.05-py3.
    return image if program == _PYXIS and not path.exists() else str(path)


def parse_config(text: str) -> SlurmConfig:
    r"""Parse the text of a slurm.toml.

    >>> parse_config('partition = "gpu"\nwalltime = "04:00:00"').shapes[0].walltime_seconds
    14400

    Raises:
        ConfigError: Something in it is unknown, missing or of the wrong kind.
    """
    with _located(text):
        return _config(_tables(text), _Tables())


@contextmanager
def _located(text: str, path: Path | None = None) -> Iterator[None]:
    """Add to an error the file and the line that it is about."""
    where = "" if path is None else f"{path}: "
    try:
        yield
    except (ValueError, RecursionError) as error:  # a number or a nesting without end, too
        raise ConfigError(f"{where}{_no_toml(text, str(error))}") from error
    except _WrongKeyError as error:
        raise ConfigError(f"{where}{_line_of(text, error.key)}{error}") from error
    except ConfigError as error:
        raise ConfigError(f"{where}{error}") from error


class _WrongKeyError(ConfigError):
    """The value of one key is wrong."""

    def __init__(self, key: str, message: str) -> None:
        super().__init__(message)
        self.key = key


def _line_of(text: str, key: str) -> str:
    lines = [
        str(number)
        for number, line in enumerate(text.splitlines(), start=1)
        if re.match(rf"""\s*["']?{re.escape(key)}["']?\s*=""", line)
    ]
    return f"line {' or '.join(lines)}: " if lines else ""


def _no_toml(text: str, why: str) -> str:
    """Return the error message, with the line of the error."""
    found = re.fullmatch(r"(.*) \(at line (\d+), column \d+\)", why)
    if found is None:
        return f"this is no TOML ({why})"
    number = int(found[2])
    what = f"line {number}, `{text.splitlines()[number - 1].strip()}`,"
    if found[1] == "Cannot overwrite a value":
        return f"{what} repeats a key given above; leave one of them out"
    return f'{what} is no TOML ({found[1].lower()}); write texts in quotes, as in partition = "gpu"'


_KEYS = tuple(each.name for each in fields(Shape))

_MASTER_KEYS = (
    "partition", "walltime", "account", "qos", "cpus", "memory", "directives", "modules",
    "environment", "prologue", "python", "launcher", "notice_seconds",
)  # fmt: skip

_RIVALS = ("image", "launcher")
"""Keys of which a shape has one at most: either of the user's replaces both of the site's."""

_OF_IMAGE = ("image_program", "image_options")
"""Keys that concern an image."""

_PYXIS = "pyxis"

_SHARED_KEYS = ("account", "modules", "environment", "prologue")
"""The keys at the top that apply to the master as well; the others concern its workers' nodes."""


def _tables(text: str, folder: Path = Path(), *, is_of_site: bool = False) -> _Tables:
    # If the last line has no end, tomllib names no line for an error in it.
    plain = tomllib.loads(f"{text}\n")
    master = plain.pop("master", {})
    if not isinstance(master, dict):
        raise ConfigError("`master` is not a single table; begin it with [master]")
    entries = [] if is_of_site else _entries(plain.pop("shape", [{}]))
    if "name" in plain and len(entries) > 1:
        raise ConfigError("`name` is given at the top; give each [[shape]] its own name")
    return _Tables(
        _values(plain, [key for key in _KEYS if key != "name" or not is_of_site], folder),
        [_values(each, _KEYS, folder) for each in entries],
        _values(master, _MASTER_KEYS, folder, "[master]: "),
    )


def _entries(shape: object) -> list[dict[str, Any]]:
    if isinstance(shape, dict):
        raise ConfigError("[shape] is in single brackets; begin each shape with [[shape]]")
    if not isinstance(shape, list) or not all(isinstance(each, dict) for each in shape):
        raise ConfigError("`shape` holds something other than tables; begin each with [[shape]]")
    if not shape:
        raise ConfigError("`shape` is empty; leave it out, or give at least one [[shape]]")
    return shape


def _values(
    plain: Mapping[str, Any], allowed: Sequence[str], folder: Path, where: str = ""
) -> dict[str, Any]:
    values = {}
    for key, value in plain.items():
        if key not in allowed:
            near = difflib.get_close_matches(key, [*allowed, *({"shape", "master"} - {key})], n=1)
            meant = f" (did you mean {near[0]!r}?)" if near else ""
            raise _WrongKeyError(
                key,
                f"{where}unknown key {key!r}{meant}; allowed are {', '.join(allowed)}; other "
                "options of sbatch go into directives",
            )
        try:
            values[key] = READERS[key](key, value)
        except ConfigError as error:
            raise _WrongKeyError(key, str(error)) from error
        # A bare python3 is looked for where the job runs.
        if key == "log_directory" or (key == "python" and "/" in values[key]):
            values[key] = str(folder / values[key])
    return values


def _config(given: _Tables, site: _Tables) -> SlurmConfig:
    shapes = []
    for number, entry in enumerate(given.shapes, start=1):
        own = {**given.top, **entry}
        values = _with_memory(_completed(own, site.top), own)
        shapes.append(_shape(values, number if len(given.shapes) > 1 else None))
    names = [shape.name for shape in shapes]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(f"two shapes are called {name!r}; each needs its own name")
    master = {**_shared(site.top), **site.master, **_shared(given.top), **given.master}
    return SlurmConfig(tuple(shapes), _with_memory(master, given.master))


_ASKS_MEMORY = re.compile(r"--mem(-per-cpu|-per-gpu)?[=\s]")


def _with_memory(values: Mapping[str, Any], own: Mapping[str, Any]) -> Mapping[str, Any]:
    """Leave the memory of a job to a directive that asks for it."""
    asks = next(filter(_ASKS_MEMORY.match, values.get("directives", ())), "")
    if asks and own.get("memory"):
        remedy = "leave one of them out"
        if "directives" not in own:
            remedy = "leave memory out, or give directives of your own in place of the site's"
        raise _WrongKeyError("memory", f"memory is given, and directives has {asks!r}; {remedy}")
    return {**values, "memory": 0} if asks else values


def _shared(top: Mapping[str, Any]) -> dict[str, Any]:
    return {key: top[key] for key in _SHARED_KEYS if key in top}


def _completed(given: Mapping[str, Any], site: Mapping[str, Any]) -> dict[str, Any]:
    """Return one kind of job as the user's file describes it, and else the site's."""
    left_out = set(given)
    if not given.keys().isdisjoint(_RIVALS):
        left_out.update(_RIVALS)
    if "image" not in given and ("image" not in site or "image" in left_out):
        left_out.update(_OF_IMAGE)
    return {**{key: site[key] for key in site if key not in left_out}, **given}


def _shape(values: Mapping[str, Any], number: int | None) -> Shape:
    """Return one kind of job; `number` is its position among several."""
    for key, example in (("partition", "gpu"), ("walltime", "04:00:00")):
        if key not in values:
            where = "" if number is None else f"shape {values.get('name', number)}: "
            raise ConfigError(f'{where}{key!r} is missing; add it, as in {key} = "{example}"')
    name = values.get("name", "workers" if number is None else f"shape{number}")
    if not re.fullmatch(r"[A-Za-z0-9_.-]+", name):
        raise ConfigError(f"name is {name!r}; allowed are letters, digits, '_', '-' and '.'")
    shape = Shape(**{**values, "name": name})
    if shape.image and shape.launcher:
        raise ConfigError(
            "`image` is given with `launcher`, which it is short for; leave one of them out"
        )
    for key in _OF_IMAGE:
        if getattr(shape, key) and not shape.image:
            raise _WrongKeyError(key, f"{key} is given without `image`; add it, or leave {key} out")
    check_notice(shape)
    return shape


def check_notice(shape: Shape) -> None:
    """Check that a job has time before the notice of its end, which Slurm may send a minute early.

    Raises:
        ConfigError: The notice is longer than half of the walltime.
    """
    duration = shape.walltime_seconds
    if 2 * shape.notice_seconds > duration:
        raise ConfigError(
            f"notice_seconds is {shape.notice_seconds}, but a job ends after {duration} s, by "
            f'walltime = "{shape.walltime}"; allowed is half of the walltime, here '
            f"{duration // 2}. Give less, or a longer walltime "
            '("04:00:00" is four hours, "04:00" four minutes)'
        )
