"""Settings of a study: the values of its options, how they fit together, and what follows."""

from __future__ import annotations

import enum
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Self

from ..core.budget import DeviceBudget, read_budget
from ..core.failure_policy import FailureRule, read_failure_rule
from ..core.table import rows
from ..errors import without_passwords
from ..pruners.registry import PRUNERS
from ..samplers.registry import is_listed
from ..user_code.source import ObjectiveSource, SourceKind
from . import kinds
from .options import DEFAULT_REPEATS, DEFAULT_TRIALS, StudyOptions
from .places import AUTO, CLUSTERS, EXECUTORS

_CLUSTER_OF = {row.chosen_by: row.name for row in CLUSTERS.built_in.values() if row.chosen_by}
SOURCES = tuple(_CLUSTER_OF)
"""Options that choose the cluster."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StudySettings(StudyOptions):
    """Settings of a study as the user gave them.

    Attributes:
        source: Where the user's code is.
        working_directory: Directory in which relative paths of the user's code start, by default
            that of this process.
    """

    source: ObjectiveSource
    working_directory: str = field(default_factory=os.getcwd)

    def __post_init__(self) -> None:
        for each in SETTINGS:
            # The dataclass is frozen; what was given as text is replaced by its value once.
            value = each.read(getattr(self, each.name))
            is_none = (value == "" or value is False) and each.owner == CLUSTERS.what
            object.__setattr__(self, each.name, None if is_none else value)
        given = {name: getattr(self, name) for name in ("entry", "python", "working_directory")}
        object.__setattr__(self, "source", replace(self.source, **given))

    @property
    def chooses_split(self) -> bool:
        """Whether hptune measures how many devices each trial gets."""
        return kinds.AUTO in (self.gpus_per_trial, self.processes_per_trial)

    @property
    def splitting_option(self) -> str:
        """The option that leaves the number of devices to hptune."""
        is_of_gpus = self.gpus_per_trial == kinds.AUTO
        return option("gpus_per_trial" if is_of_gpus else "processes_per_trial")

    @property
    def fixed_gpus(self) -> float | None:
        """GPUs of a trial as the user gave them; None if they did not."""
        return None if isinstance(self.gpus_per_trial, str) else self.gpus_per_trial

    @property
    def fixed_processes(self) -> int | None:
        """Processes of a trial as the user gave them; None if they did not."""
        return None if isinstance(self.processes_per_trial, str) else self.processes_per_trial

    def changed(self, changes: Mapping[str, Any]) -> Self:
        """Return these settings with some changed.

        Code that was moved or replaced keeps its backend of Keras. A new source of workers replaces
        the former one, and its certificates. Settings that a new pruner or source does not have are
        dropped, and the number of repeats where nothing is confirmed any more.
        """
        changes = {
            name: BY_NAME[name].read(value) if name in BY_NAME else value
            for name, value in changes.items()
        }
        replaced = set[str]()
        source = next((n for n in ("workers", "cluster", *SOURCES) if changes.get(n)), None)
        if source is not None:
            reset = ("connect", "slurm", "certs", "insecure", "workers")
            changes = {"cluster": AUTO, **dict.fromkeys(reset), **changes}
            replaced.add(CLUSTERS.what)
            row = CLUSTERS.built_in.get(str(changes["cluster"]))
            if source in SOURCES or row is None or not row.is_local:
                changes = {"executor": BY_NAME["executor"].default} | changes
            if changes.get("executor", self.executor) != self.executor:
                replaced.add(EXECUTORS.what)
        if source is not None or not changes.keys().isdisjoint(SOURCES):  # or one given as none
            chosen = (n for n in SOURCES if changes.get(n, getattr(self, n)))
            name = _CLUSTER_OF.get(next(chosen, "")) or changes.get("cluster", self.cluster)
            changes = dict.fromkeys(_unused(CLUSTERS.what, name)) | changes
        if (pruner := changes.get("pruner")) is not None:
            replaced |= {PRUNERS.what} if pruner != self.pruner else set()
            changes = dict.fromkeys(_unused(PRUNERS.what, pruner)) | changes
        if (code := changes.get("source")) is not None:
            changes["source"] = replace(code, backend=code.backend or self.source.backend)
            if code.kind is SourceKind.PICKLE:  # these are of a model file
                changes = {"entry": "", "python": "", **changes}
        if changes.get("confirm") == 0:
            changes.setdefault("confirm_repeats", None)
        kept = {n: v for n, v in self.options.items() if n.partition(".")[0] not in replaced}
        kept |= changes.get("options") or {}
        return replace(self, **{**changes, "options": kept})

    def to_json(self) -> dict[str, Any]:
        """Return plain values, for the ledger, which has no passwords."""
        return {**asdict(self), "warm_start": [*map(without_passwords, self.warm_start)]}

    @classmethod
    def from_json(cls, plain: Mapping[str, Any]) -> Self:
        """Return the settings that `to_json` wrote; a KERAS_BACKEND that is set now counts more."""
        source = plain["source"]
        backend = os.environ.get("KERAS_BACKEND") or source.get("backend", "")
        code = ObjectiveSource(SourceKind(source["kind"]), source["path"], backend=backend)
        return cls(**{**plain, "source": code})

    def found_in(self, directory: Path) -> Self:
        """Return the settings of a study that lies here now, with the code that is stored in it.

        Where its working directory is gone, as that of a project that was moved, it is this one.
        """
        source, start, code = self.source, self.working_directory, Path(self.source.path)
        path = directory / code.name  # as of --command; another study may be where it was
        is_gone = not os.access(code, os.F_OK) or os.access(code.parent / "study.db", os.F_OK)
        if source.kind is SourceKind.PICKLE or (is_gone and os.path.isfile(path)):  # noqa: PTH113
            source = replace(source, path=str(path))
        start = start if os.access(start, os.X_OK) else str(Path.cwd())
        return replace(self, source=source, working_directory=start)

    @property
    def device_budget(self) -> DeviceBudget | None:
        """The budget in device hours; None for no limit."""
        return read_budget(self.budget) if self.budget else None

    @property
    def failure_rules(self) -> tuple[FailureRule, ...]:
        """What is done about failures, by one rule for each cause at most."""
        return tuple(map(read_failure_rule, self.on_failure))

    @property
    def confirm_times(self) -> int:
        """How often each of the best configurations is trained again to confirm it."""
        return DEFAULT_REPEATS if self.confirm_repeats is None else self.confirm_repeats

    @property
    def cache_bytes(self) -> int | None:
        """Limit of the data cache on each node; None for half of the free space, 0 for no cache."""
        return None if self.cache_data in (None, True) else int(self.cache_data)

    @property
    def wants_cache(self) -> bool:
        """Whether the user asked for the data cache, whatever the model file says."""
        return bool(self.cache_data)

    @property
    def budget_trials(self) -> int | None:
        """The total number of trials; None for the whole grid."""
        if self.trials is not None:
            return self.trials
        return None if is_listed(self.search) else DEFAULT_TRIALS

    def own_options(self, owner: str) -> dict[str, Any]:
        """Return the options given to what `owner` names, such as "search", as plain values."""
        given = {each.name: getattr(self, each.name) for each in SETTINGS if each.owner == owner}
        begin = f"{owner}."
        others = {n.removeprefix(begin): v for n, v in self.options.items() if n.startswith(begin)}
        plain = {name: str(value) if isinstance(value, enum.Enum) else value
                 for name, value in given.items() if value is not None}  # fmt: skip
        return plain | others


def _unused(owner: str, name: str) -> list[str]:
    """Return the settings of pruners, or of clusters, that the one of this name does not have."""
    return [each.name for each in SETTINGS if each.owner == owner and name not in each.owners]


SETTINGS = rows(StudySettings)
BY_NAME = {each.name: each for each in SETTINGS}
FIELDS = {each.argument: each.name for each in SETTINGS}
"""The fields of `StudySettings`, by the arguments of `Tuner`."""


def option(name: str) -> str:
    """Return the command-line option of a field of `StudySettings`.

    >>> option("min_epochs"), option("timeout_seconds")
    ('--min-epochs', '--timeout')
    """
    return BY_NAME[name].flag
