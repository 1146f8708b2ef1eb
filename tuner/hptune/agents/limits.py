"""What an agent may ask for: a file of the user's, and the checks of paths and settings by it."""

from __future__ import annotations

import stat
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..config.kinds import duration
from ..config.settings import SETTINGS, StudySettings
from ..core.budget import Device, DeviceBudget, read_budget
from ..errors import UsageError
from ..pruners.registry import PRUNERS
from ..samplers.registry import AUTO, SAMPLERS
from ..user_code.model_file import SourceKind

_OPTIONS = (
    *("objective", "constraint", "search", "try", "seed", "trials", "epochs", "timeout", "budget"),
    *("trial-timeout", "pruner", "min-epochs", "reduction-factor", "cpus-per-trial", "slurm"),
    *("gpus-per-trial", "memory-per-trial", "max-jobs", "on-failure", "max-failures"),
)
"""The options of `hptune run` that an agent may give. None of them names code or a machine."""

_SETTING_OF = {each.flag.removeprefix("--"): each for each in SETTINGS}
_MOST_CHARACTERS = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What an agent may ask for.

    Attributes:
        studies: The folder of the studies, the only one that is written to.
        models: Model files, and folders of model files.
        slurm: Files slurm.toml.
        this_machine: Whether trials may run on the machine of the server.
        device_hours: What the studies of the folder may use together, for each kind of device.
        jobs: Most Slurm jobs of a study at once.
        time_seconds: Longest time of a study.
        trials: Most trials of a study.
        running: Most studies at once.
    """

    studies: Path
    models: tuple[Path, ...]
    slurm: tuple[Path, ...]
    this_machine: bool
    device_hours: Mapping[Device, float]
    jobs: int
    time_seconds: float
    trials: int
    running: int

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

    def options(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return the options of a request, with the path of its slurm.toml resolved.

        Raises:
            UsageError: One is not allowed.
        """
        options = dict(given)
        for name, value in options.items():
            if name not in _OPTIONS:
                raise UsageError(f"the setting {name!r} is not allowed here; {_allowed(_OPTIONS)}")
            for text in map(str, value if isinstance(value, list) else [value]):
                # A value such as @FILE or module:Name would read or run what is not allowed.
                if text.strip().startswith("@") or not text.isprintable():
                    raise UsageError(f"{name} is {text!r}; allowed is plain text without a file")
                if len(text) > _MOST_CHARACTERS:
                    raise UsageError(f"{name} has over {_MOST_CHARACTERS} characters; give fewer")
        for name, known in (("search", (AUTO, *SAMPLERS.built_in)), ("pruner", PRUNERS.built_in)):
            if name in options and options[name] not in known:
                raise UsageError(f"{name} is {options[name]!r}; {_allowed(known)}")
        if "slurm" in options:
            options["slurm"] = str(_resolved(Path(str(options["slurm"])), "slurm"))
        return options

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
        if settings.slurm is None and not self.this_machine:
            raise UsageError(f"slurm is not given; {_allowed(self.slurm)}")
        if settings.slurm is not None and Path(settings.slurm) not in self.slurm:
            raise UsageError(f"slurm is {settings.slurm!r}; {_allowed(self.slurm)}")
        jobs = settings.max_jobs if settings.slurm else 0
        for name, value, most in (
            ("trials", settings.trials, self.trials),
            ("timeout", settings.timeout_seconds, self.time_seconds),
            ("max-jobs", jobs, self.jobs),
        ):
            is_unlimited = value is None or (name == "timeout" and not value)  # 0 is "none"
            if is_unlimited or value > most:
                shown = "not given" if is_unlimited else f"{value:g}"
                unit = " seconds" * (name == "timeout")
                raise UsageError(f"{name} is {shown}; allowed is at most {most:g}{unit}")
        self._check_budget(settings.device_budget, committed)

    def _check_budget(self, budget: DeviceBudget | None, committed: Mapping[Device, float]) -> None:
        left = {
            device: max(0.0, hours - committed.get(device, 0.0))
            for device, hours in self.device_hours.items()
        }
        if budget is None or budget.hours > left.get(budget.device, -1.0):
            shown = "not given" if budget is None else str(budget)
            most = " or ".join(f"{hours:.6g}{device}-h" for device, hours in left.items())
            raise UsageError(f"budget is {shown}; at most {most} is left of the limits")


def settings_of_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options, as they are named on the command line, by the names of settings."""
    return {_SETTING_OF[name].name: value for name, value in options.items()}


def arguments_of(options: Mapping[str, Any]) -> list[str]:
    """Return options as arguments of a command, in an order that is always the same."""
    return [
        f"--{name}={value}"
        for name, values in sorted(options.items())
        for value in (values if isinstance(values, list) else [values])
    ]


def read_limits(file: Path) -> Limits:
    """Return the limits of a file.

    Raises:
        UsageError: It cannot be read, says something wrong, or an agent could write it.
    """
    path = _resolved(file, "--limits")
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(f"--limits is {file}, which cannot be read: {error}") from error
    if unknown := table.keys() - _READERS.keys():
        raise UsageError(f"{file} has {min(unknown)!r}; {_allowed(_READERS)}")
    found: dict[str, Any] = {}
    for name, (read, default) in _READERS.items():
        if (value := table.get(name, default)) is None:
            raise UsageError(f"{file} has no {name}; it is needed")
        try:
            found[name] = read(value, path.parent)
        except (ValueError, TypeError, AttributeError) as error:
            raise UsageError(f"{file} has {name} = {value!r}, which cannot be used") from error
    limits = Limits(
        studies=found["studies"],
        models=found["models"],
        slurm=found["slurm"],
        this_machine=found["this_machine"] or not found["slurm"],
        device_hours=found["device_hours"],
        jobs=found["jobs"],
        time_seconds=found["time"],
        trials=found["trials"],
        running=found["running"],
    )
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


def _allowed(names: Any) -> str:
    return f"allowed are {', '.join(map(str, names)) or 'none'}"


def _one_path(value: str, folder: Path) -> Path:
    return (folder / value).resolve()


def _paths(value: list[str], folder: Path) -> tuple[Path, ...]:
    if isinstance(value, str):
        raise TypeError
    return tuple(_one_path(each, folder) for each in value)


def _hours(value: list[str] | str, _: Path) -> dict[Device, float]:
    budgets = [read_budget(each) for each in ([value] if isinstance(value, str) else value)]
    return {each.device: each.hours for each in budgets}


def _count(value: int, _: Path) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError
    return value


def _true_or_false(value: bool, _: Path) -> bool:  # noqa: FBT001 - a value of the file
    if not isinstance(value, bool):
        raise TypeError
    return value


_READERS: dict[str, tuple[Callable[[Any, Path], Any], Any]] = {
    "models": (_paths, None),
    "studies": (_one_path, None),
    "slurm": (_paths, []),
    "this_machine": (_true_or_false, False),
    "device_hours": (_hours, None),
    "jobs": (_count, 0),
    "time": (lambda value, _: float(duration().read(value)), None),
    "trials": (_count, None),
    "running": (_count, 1),
}
"""The keys of a file of limits: how each is read, and its default; None if it is needed."""
