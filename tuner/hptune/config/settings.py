"""Settings of a study: the values of its options, how they fit together, and what follows."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Self

from ..core.budget import DeviceBudget, read_budget
from ..core.data_parallel import StrategyChoice
from ..core.failure_policy import FailureRule, read_failure_rule
from ..core.table import rows
from ..errors import UsageError
from ..pruners.registry import PRUNERS
from ..registry import shown_name
from ..samplers.registry import is_listed
from ..user_code.model_file import ObjectiveSource, SourceKind
from . import kinds
from .objectives import check_objectives
from .options import DEFAULT_REPEATS, DEFAULT_TRIALS, StudyOptions
from .places import AUTO, CLUSTERS

_SOURCES = tuple(each.chosen_by for each in CLUSTERS.built_in.values() if each.chosen_by)
"""Options that choose the cluster."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StudySettings(StudyOptions):
    """Settings of a study as the user gave them.

    Attributes:
        source: Where the user's code is.
        working_directory: Directory in which relative paths of the user's code start.
    """

    source: ObjectiveSource
    working_directory: str

    def __post_init__(self) -> None:
        for each in SETTINGS:
            # The dataclass is frozen; what was given as text is replaced by its value once.
            value = each.read(getattr(self, each.name))
            is_none = value == "" and each.owner == CLUSTERS.what
            object.__setattr__(self, each.name, None if is_none else value)
        for name in ("entry", "python"):
            if (value := getattr(self, name)) and self.source.kind is SourceKind.PICKLE:
                raise UsageError(
                    f"{option(name)} is {value!r}, but it needs a model file, and Tuner is given "
                    "what to tune; leave it out"
                )
        source = replace(self.source, entry=self.entry, python=self.python)
        object.__setattr__(self, "source", source)
        check_objectives(self.objectives, self.constraints, self.direction)
        if self.confirm_repeats is not None and not self.confirm:
            raise UsageError(
                f"--confirm-repeats is {self.confirm_repeats}, but --confirm is not given; say "
                "with --confirm how many of the best configurations to train again"
            )
        self._check_worker_source()
        self._check_split()

    def _check_worker_source(self) -> None:
        if self.certs and not self.connect:
            raise UsageError(
                f"--certs is {self.certs!r}, which is shown to a scheduler, but --connect is not "
                "given; add it, or leave out --certs"
            )
        row = CLUSTERS.built_in.get(self.cluster)
        given = [name for name in (*_SOURCES, "workers") if getattr(self, name)]
        if self.cluster != AUTO:  # one of the user's own is checked when it is found
            allowed = ("workers",) if row is None or row.is_local else (row.chosen_by,)
            given = ["cluster", *(name for name in given if name not in allowed)]
        if len(given) > 1:
            raise UsageError(self.one_place(*given[:2]))

    def one_place(self, one: str, other: str) -> str:
        """Return why two settings do not fit together that both say where workers are."""
        shown = []
        for name in (one, other):
            value = getattr(self, name)
            shown_value = shown_name(value) if isinstance(value, str) else value
            shown.append(f"{option(name)} is {shown_value!r}")
        return f"{' and '.join(shown)}, but workers come from one place; give one of them"

    def _check_split(self) -> None:
        """Check that nothing else says how many devices a trial has if they are chosen."""
        if not self.chooses_split:
            return
        others = ("gpus_per_trial", "processes_per_trial", "nodes_per_trial")
        wrong = [each for each in others if getattr(self, each) not in (None, 0, kinds.AUTO)]
        if self.cpus_per_trial is not None and self.cpus_per_trial < 1:
            wrong.append("cpus_per_trial")
        if self.strategy is StrategyChoice.NONE:
            wrong.append("strategy")
        if self.fixed_processes == 1:
            raise UsageError(
                "--gpus-per-trial is auto, which gives each GPU a process of its own, and "
                "--processes-per-trial is 1; leave that out, or measure one process by `hptune "
                "scaling --one-process` and give its number of GPUs"
            )
        if wrong:
            raise UsageError(
                f"{self.splitting_option} is auto, which chooses the devices of each trial, and "
                f"{option(wrong[0])} is {getattr(self, wrong[0])}; leave one of them out"
            )

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
        given = self.gpus_per_trial
        return None if given is None or isinstance(given, str) else given

    @property
    def fixed_processes(self) -> int | None:
        """Processes of a trial as the user gave them; None if they did not."""
        given = self.processes_per_trial
        return None if given is None or isinstance(given, str) else given

    def changed(self, changes: Mapping[str, Any]) -> Self:
        """Return these settings with some changed.

        A new source of workers replaces the former one, and its certificates. Settings that a new
        pruner does not have are dropped, and the number of repeats where nothing is confirmed any
        more.
        """
        changes = {
            name: BY_NAME[name].read(value) if name in BY_NAME else value
            for name, value in changes.items()
        }
        source = next((n for n in ("workers", "cluster", *_SOURCES) if changes.get(n)), None)
        if source is not None:
            reset = ("connect", "slurm", "certs", "insecure", "workers")
            nothing: dict[str, Any] = {"cluster": AUTO, "cluster_options": {}}
            changes = nothing | dict.fromkeys(reset) | dict(changes)
            row = CLUSTERS.built_in.get(str(changes["cluster"]))
            if source in _SOURCES or row is None or not row.is_local:
                changes = {"executor": BY_NAME["executor"].default} | changes
            if changes.get("executor", self.executor) != self.executor:
                changes.setdefault("executor_options", {})
        elif "connect" in changes:  # given as none
            changes.setdefault("certs", None)
        if (pruner := changes.get("pruner")) is not None:
            others = {} if pruner != self.pruner else self.pruner_options
            own = [each for each in SETTINGS if each.owner == PRUNERS.what]
            unused = [each.name for each in own if pruner not in each.owners]
            changes = dict.fromkeys(unused) | {"pruner_options": others} | changes
        if changes.get("confirm") == 0:
            changes.setdefault("confirm_repeats", None)
        return replace(self, **changes)

    def to_json(self) -> dict[str, Any]:
        """Return plain values, for the ledger."""
        return asdict(self)

    @classmethod
    def from_json(cls, plain: Mapping[str, Any]) -> Self:
        """Return the settings that `to_json` wrote."""
        source = plain["source"]
        code = ObjectiveSource(SourceKind(source["kind"]), source["path"])
        return cls(**{**plain, "source": code})

    def found_in(self, directory: Path) -> Self:
        """Return the settings of a study that lies here now, with what Tuner stored in it."""
        if self.source.kind is not SourceKind.PICKLE:
            return self
        path = directory / Path(self.source.path).name
        return replace(self, source=ObjectiveSource(SourceKind.PICKLE, str(path)))

    @property
    def device_budget(self) -> DeviceBudget | None:
        """The budget in device hours; None for no limit."""
        return read_budget(self.budget) if self.budget else None

    @property
    def failure_rules(self) -> tuple[FailureRule, ...]:
        """What is done about failures; of two answers to one cause, the last one counts."""
        return tuple(read_failure_rule(each) for each in reversed(self.on_failure))

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
        others: Mapping[str, Any] = getattr(self, f"{owner}_options")
        plain = {name: str(value) if isinstance(value, enum.Enum) else value
                 for name, value in given.items() if value is not None}  # fmt: skip
        return plain | dict(others)


SETTINGS = rows(StudySettings)
BY_NAME = {each.name: each for each in SETTINGS}


def option(name: str) -> str:
    """Return the command-line option of a field of `StudySettings`.

    >>> option("min_epochs"), option("timeout_seconds")
    ('--min-epochs', '--timeout')
    """
    return BY_NAME[name].flag
