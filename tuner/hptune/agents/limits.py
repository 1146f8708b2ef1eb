"""What an agent may ask for: a file of the user's, and the checks of paths and settings by it."""

from __future__ import annotations

import json
import math
import stat
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from ..config import kinds
from ..config.settings import SETTINGS, StudySettings
from ..core.budget import Device, read_budget
from ..core.kinds import Kind, whole_number
from ..errors import UsageError
from ..pruners.registry import PRUNERS
from ..samplers.registry import AUTO, SAMPLERS
from ..user_code.source import SourceKind

_OPTIONS = (
    *("objective", "constraint", "search", "try", "seed", "trials", "first", "epochs", "timeout"),
    *("budget", "trial-timeout", "pruner", "min-epochs", "reduction-factor", "cpus-per-trial"),
    *("gpus-per-trial", "memory-per-trial", "slurm", "max-jobs", "on-failure", "max-failures"),
)
"""The options of `hptune run` that an agent may give. None of them names code or a machine."""

_SETTING_OF = {each.flag.removeprefix("--"): each for each in SETTINGS}
_NAMES = {"search": (AUTO, *SAMPLERS.built_in), "pruner": tuple(PRUNERS.built_in)}
"""What options that may name code are limited to."""

_MOST_CHARACTERS = 500
_MOST_VALUES = 20


_HOURS = kinds.texts("HOURS", "texts such as 40core-h and 10gpu-h", check=read_budget)


def _read(kind: Kind, default: Any = None) -> Any:
    """Return a field of `Limits`, which is a key of its file; it is needed if it has no default."""
    return field(default=default, metadata={"kind": kind})


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What an agent may ask for; the fields are the keys of its file.

    Attributes:
        studies: The folder of the studies, the only one that is written to.
        models: Model files, and folders of model files.
        slurm: Files slurm.toml; none if trials run on the machine of the server.
        device_hours: What the studies of the folder may use together, for each kind of device.
        jobs: Most Slurm jobs of a study at once.
        time: Longest time of a study, in seconds.
        trials: Most trials of a study.
        running: Most studies at once.
    """

    studies: Path = _read(kinds.text("DIR", "the path of a folder"))
    models: tuple[Path, ...] = _read(kinds.texts("PATHS", "paths of model files and their folders"))
    slurm: tuple[Path, ...] = _read(kinds.texts("PATHS", "paths of files slurm.toml"), ())
    device_hours: Mapping[Device, float] = _read(_HOURS)
    jobs: int = _read(whole_number(0), 0)
    time: float = _read(kinds.duration())
    trials: int = _read(whole_number(1))
    running: int = _read(whole_number(1), 1)

    def study(self, name: str) -> Path:
        """Return the directory of a study, which need not exist.

        Raises:
            UsageError: The name leads out of the folder of the studies.
        """
        path = _resolved(self.studies / name, "a study")
        if path.parent != self.studies:
            raise UsageError(f"study is {name!r}; allowed is the name of a folder in the studies")
        return path

    def model(self, name: str) -> Path:
        """Return a model file.

        Raises:
            UsageError: It is none of those that are allowed.
        """
        path = _resolved(Path(name), "model_file")
        if not (path.is_file() and any(path.is_relative_to(each) for each in self.models)):
            raise UsageError(f"model_file is {name!r}; {_allowed(self.models)}")
        return path

    def check(self, settings: StudySettings, committed: Mapping[Device, float]) -> None:
        """Check the settings that a study would have.

        Args:
            settings: All of its settings.
            committed: The device hours of the other studies in the folder.

        Raises:
            UsageError: It could use more than is allowed, or something else.
        """
        if settings.source.kind is not SourceKind.FILE:
            raise UsageError("the study has no model file; an agent runs only those of the limits")
        self.model(settings.source.path)
        if settings.cluster not in (AUTO, "local") or settings.connect:
            raise UsageError("the study has workers of its own; an agent uses only --slurm")
        # With files of Slurm, no trial runs on the machine of the server.
        slurm = None if settings.slurm is None else Path(settings.slurm)
        if slurm not in (self.slurm or (None,)):
            raise UsageError(f"slurm is {settings.slurm!r}; {_allowed(self.slurm)}")
        for name, value, most in (
            ("trials", settings.trials, self.trials),
            ("timeout", settings.timeout_seconds or None, self.time),  # 0 is "none"
            ("max-jobs", settings.max_jobs if settings.slurm else 0, self.jobs),
        ):
            if value is None or not value <= most:
                shown = "not given" if value is None else f"{value:g}"
                unit = " seconds" * (name == "timeout")
                raise UsageError(f"{name} is {shown}; allowed is at most {most:g}{unit}")
        self._check_budget(settings, committed)

    def _check_budget(self, settings: StudySettings, committed: Mapping[Device, float]) -> None:
        budget = settings.device_budget
        left = {
            device: max(0.0, hours - committed.get(device, 0.0))
            for device, hours in self.device_hours.items()
        }
        if budget is None or budget.hours > left.get(budget.device, -1.0):
            shown = "not given" if budget is None else str(budget)
            most = " or ".join(f"{hours:.6g}{device}-h" for device, hours in left.items())
            raise UsageError(f"budget is {shown}; at most {most} is left of the limits")
        # A budget counts one kind of device, and the other one must not be used without a limit.
        gpus, cpus = settings.fixed_gpus, settings.cpus_per_trial or 1
        if budget.device is Device.CORE:
            if gpus != 0:
                raise UsageError("budget has core hours, so give gpus-per-trial=0")
            return
        if not gpus:
            raise UsageError("budget has GPU hours, so give gpus-per-trial, a number above 0")
        cores = budget.hours / gpus * cpus
        if cores > left.get(Device.CORE, math.inf):
            raise UsageError(
                f"trials of {gpus:g} GPUs and {cpus:g} cores may hold {cores:.6g} core hours in "
                f"{budget}; {left[Device.CORE]:.6g} are left of the limits"
            )


def texts_of(given: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    """Return the options of a request as texts of a command line.

    Raises:
        UsageError: One is not allowed.
    """
    found = {}
    for name, value in sorted(given.items()):
        if name not in _OPTIONS:
            raise UsageError(f"the setting {name[:100]!r} is unknown here; {_allowed(_OPTIONS)}")
        values = value if isinstance(value, list) else [value]
        is_one = len(values) == 1 or _SETTING_OF[name].kind.is_repeated
        if not (is_one and 0 < len(values) <= _MOST_VALUES):
            raise UsageError(f"{name} has {len(values)} values; allowed is one, or a few of `try`")
        found[name] = tuple(each if isinstance(each, str) else json.dumps(each) for each in values)
        for text in found[name]:
            # A value such as @FILE would read what is not allowed.
            if text.strip().startswith("@") or not text.isprintable():
                raise UsageError(f"{name} is {text[:100]!r}; allowed is plain text without a file")
            if len(text) > _MOST_CHARACTERS:
                raise UsageError(f"{name} has over {_MOST_CHARACTERS} characters; give fewer")
        if name in _NAMES and found[name][0] not in _NAMES[name]:
            raise UsageError(f"{name} is {found[name][0][:100]!r}; {_allowed(_NAMES[name])}")
    if "slurm" in found:
        found["slurm"] = (str(_resolved(Path(found["slurm"][0]), "slurm")),)
    return found


def settings_of_texts(texts: Mapping[str, tuple[str, ...]]) -> dict[str, Any]:
    """Return options by the names of settings."""
    rows = {_SETTING_OF[name]: values for name, values in texts.items()}
    return {row.name: values if row.kind.is_repeated else values[0] for row, values in rows.items()}


def read_limits(file: Path) -> Limits:
    """Return the limits of a file.

    Raises:
        UsageError: It cannot be read, says something wrong, or an agent could write it.
    """
    path = _resolved(file, "--limits")
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise UsageError(f"--limits is {file}, which cannot be read: {reason}") from error
    known = {each.name: each for each in fields(Limits)}
    if unknown := table.keys() - known.keys():
        raise UsageError(f"{file} has {min(unknown)!r}; {_allowed(known)}")
    found: dict[str, Any] = {}
    for name, key in known.items():
        value, kind = table.get(name, key.default), key.metadata["kind"]
        try:
            found[name] = kind.read(value)
        except (ValueError, TypeError) as error:
            shown = "not given" if value is None else repr(value)
            raise UsageError(f"{file}: {name} is {shown}; allowed are {kind.allowed}") from error
    for name in ("models", "slurm"):
        found[name] = tuple((path.parent / each).resolve() for each in found[name])
    found["studies"] = (path.parent / found["studies"]).resolve()
    budgets = map(read_budget, found["device_hours"])
    found["device_hours"] = {each.device: each.hours for each in budgets}
    limits = Limits(**found)
    _check_places(limits, file)
    return limits


def _check_places(limits: Limits, file: Path) -> None:
    """Check that no study, and no code in one, can change the limits.

    Raises:
        UsageError: One could.
    """
    folders = (limits.studies, *limits.models)
    for place in {file.absolute(), file.resolve()}:
        inside = [each for each in folders if place.is_relative_to(each)]
        holders = [each for each in place.parents if (each / "study.db").exists()]
        if inside or holders:
            where = (inside + holders)[0]
            raise UsageError(f"--limits is {file}, inside of {where}; move it out of that folder")
    info = file.resolve().stat()
    if info.st_nlink > 1 or info.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise UsageError(
            f"--limits is {file}, which others can write, or which has a second name; make it a "
            "file of its own, and use `chmod go-w` on it"
        )
    for each in (*limits.models, *limits.slurm):
        if each.is_relative_to(limits.studies) or limits.studies.is_relative_to(each):
            raise UsageError(
                f"the limits name {each} and the studies {limits.studies}, of which one is inside "
                "of the other, so trials could write it; give folders apart from each other"
            )


def _resolved(path: Path, name: str) -> Path:
    """Return where a path leads, through all links.

    Raises:
        UsageError: It cannot lead anywhere: a null character, a name that is too long, a circle.
    """
    try:
        found = path.resolve()
        found.exists()
    except (OSError, ValueError, RuntimeError):
        raise UsageError(f"{name} is {str(path)[:100]!r}, which is no path") from None
    return found


def _allowed(names: Iterable[object]) -> str:
    return f"allowed are {', '.join(map(str, names)) or 'none'}"
