"""What the user asked for, and what follows from it: the epochs and the pruner."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Self

from ..core.budget import DeviceBudget, read_budget
from ..core.failure_policy import Answer, read_answer
from ..core.pruner import HalvingMode, PrunerSettings
from ..core.space.user_priors import Belief
from ..core.trial import Direction, StopAt
from ..errors import UsageError
from ..samplers.registry import AUTO
from ..storage.directory import whole_path
from . import validation as checks
from .model_file import Found, ObjectiveSource, SourceKind
from .objectives import check
from .validation import check_scheduler_address, option

DEFAULT_TRIALS = 50
DEFAULT_EPOCHS = 10
DEFAULT_REPEATS = 2
EXECUTORS = ("dask", "joblib")
PACKING = ("auto", "off")


_LEAST: Mapping[str, int] = {
    "trials": 1,
    "epochs": 1,
    "workers": 1,
    "memory_per_trial_bytes": 0,
    "seed": 0,
    "max_failures": 0,
    "same_failure_limit": 0,
    "checkpoint_every": 0,
    "keep_checkpoints": 0,
    "grid_resolution": 2,
    "confirm": 0,
    "confirm_repeats": 1,
    "reduction_factor": 2,
    "min_epochs": 1,
    "brackets": 1,
    "max_jobs": 1,
    "min_workers": 0,
}
_CHOICES: Mapping[str, Sequence[str]] = {
    "stop_at": tuple(StopAt),
    "pack": PACKING,
    "executor": EXECUTORS,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class StudySettings:
    """What the user asked for. None where they said nothing.

    Attributes:
        source: Where the user's code is.
        working_directory: Where relative paths in the user's code start.
        search: The sampler's name; "auto" until a study has begun, which settles it for good.
        grid_resolution: How many values the grid takes of a continuous parameter.
        surrogate: The model of `skopt`.
        pruner: The name of the pruner, which stops or pauses poor trials early.
        reduction_factor: For asha and hyperband: at each rung, no more than about one trial in
            so many goes on.
        min_epochs: No trial is judged before this epoch.
        brackets: For hyperband: how many brackets at most.
        pruner_mode: For asha and hyperband: whether the trials that do not go on at a rung stop for
            good ("stop"), or pause and may go on later from their checkpoints ("promote").
        start_points: What to try first: mappings of hyperparameters to values. One that is not
            named takes its default, or the middle of its range if it has none.
        warm_start: Directories of earlier studies to learn from.
        priors: What is believed of hyperparameters, such as `{"lr": "lognormal(0.001, 0.5)",
            "activation": {"relu": 3, "tanh": 1}}`; see `core.beliefs`.
        trials: The total number of trials; None for the default (the whole grid for `grid`).
        epochs: How many epochs a trial trains at most.
        objectives: What to optimise, each a metric or `metric:min` or `metric:max`.
        constraints: What to keep to, each such as `params<2e6`.
        direction: Which values of the only objective are better.
        confirm: How many of the best configurations to train again in the end.
        confirm_repeats: How often to train each of them again; None for `DEFAULT_REPEATS`.
        seed: The study's seed; None for a random one.
        timeout_seconds: How long the study may work; the time while it is down does not count.
        trial_timeout_seconds: How long an attempt may run.
        budget: How long cores or GPUs may be held over all attempts, such as "100gpu-h" or
            "40core-h"; "none" or nothing for as long as it takes.
        workers: How many workers to start on this machine, which share its cores evenly.
        cpus_per_trial: Cores of a trial, whole ones or a part of one; None for 1, or for all of a
            worker's where `workers` is given.
        gpus_per_trial: GPUs of a trial, whole ones or a part of one; None for one where a worker
            has any.
        memory_per_trial_bytes: Host memory of a trial; 0 where nobody said.
        pack: Whether trials are given, of what is not said of them, what others of the study were
            measured to use ("auto"), or not ("off").
        executor: "dask" or "joblib".
        connect: The address of the Dask scheduler whose workers to use, or the path of its
            scheduler file; empty or "none" for workers on this machine.
        slurm: The slurm.toml of the jobs that the workers are to run in; empty or "none" for
            workers elsewhere.
        max_jobs: How many Slurm jobs there may be at once; None for a default.
        min_workers: How many workers in Slurm jobs to wait for before the first trial.
        max_failures: The study stops when more trials than this failed.
        same_failure_limit: The study stops when so many first trials failed the same way; 0 for
            never.
        checkpoint_every: After how many epochs each a Keras trial keeps a checkpoint; None for as
            often as costs little, 0 for never.
        hang_timeout_seconds: An attempt that reports nothing and computes nothing for longer is
            ended; 0 for never.
        on_failure: What is done about attempts that end badly, each such as "memory=retry:3",
            "timeout=prune" or "exception=stop"; see `core.answers`.
        master_grace_seconds: How long the trials on workers that are not the master's own go on
            when it is lost; 0 for not at all.
        keep_checkpoints: Of how many of the best complete trials the last checkpoint is kept, so
            that more epochs can be given to them.
        cache_data: Whether the trials on a node share the arrays of one call of `load_data`. True
            lets them take up to half of the free space on the node, a number limits them to that
            many bytes. With False, each trial calls `load_data`.
        stop_at: When a Keras trial that is told to stop does so: "batch" or "epoch".
    """

    source: ObjectiveSource
    working_directory: str
    search: str = AUTO
    grid_resolution: int | None = None
    surrogate: str | None = None
    pruner: str | None = None
    reduction_factor: int | None = None
    min_epochs: int | None = None
    brackets: int | None = None
    pruner_mode: str | None = None
    start_points: Sequence[Mapping[str, object]] = ()
    warm_start: Sequence[str] = ()
    priors: Mapping[str, Belief] = field(default_factory=dict)
    trials: int | None = None
    epochs: int | None = None
    objectives: tuple[str, ...] = ()
    constraints: tuple[str, ...] = ()
    direction: Direction | None = None
    confirm: int = 0
    confirm_repeats: int | None = None
    seed: int | None = None
    timeout_seconds: float | None = None
    trial_timeout_seconds: float | None = None
    budget: str = ""
    workers: int | None = None
    cpus_per_trial: float | None = None
    gpus_per_trial: float | None = None
    memory_per_trial_bytes: int = 0
    pack: str = "auto"
    executor: str = "dask"
    connect: str = ""
    slurm: str = ""
    max_jobs: int | None = None
    min_workers: int = 0
    max_failures: int | None = None
    same_failure_limit: int = 3
    checkpoint_every: int | None = None
    keep_checkpoints: int = 3
    stop_at: StopAt = StopAt.BATCH
    hang_timeout_seconds: float = 600.0
    on_failure: Sequence[str] = ()
    cache_data: bool | int = True
    master_grace_seconds: float = 600.0

    @property
    def device_budget(self) -> DeviceBudget | None:
        """The budget in device hours, if there is one."""
        if self.budget in ("", "none"):
            return None
        with checks.reading("budget"):
            return read_budget(self.budget)

    @property
    def answers(self) -> tuple[Answer, ...]:
        """What is done about attempts that end badly; of two about one cause, the last counts."""
        with checks.reading("on_failure"):
            return tuple(read_answer(each) for each in reversed(self.on_failure))

    def __post_init__(self) -> None:
        for name, least in _LEAST.items():
            checks.whole_number(name, getattr(self, name), least=least)
        for name in ("timeout_seconds", "trial_timeout_seconds"):
            if getattr(self, name) is not None:
                checks.seconds(name, getattr(self, name), may_be_zero=False)
        for name in ("hang_timeout_seconds", "master_grace_seconds"):
            checks.seconds(name, getattr(self, name), may_be_zero=True)
        for name, allowed in _CHOICES.items():
            checks.one_of(name, getattr(self, name), allowed)
        if self.pruner_mode is not None:
            checks.one_of("pruner_mode", self.pruner_mode, tuple(HalvingMode))
        checks.devices("cpus_per_trial", self.cpus_per_trial, device="core", fewest=1)
        checks.devices("gpus_per_trial", self.gpus_per_trial, device="GPU", fewest=0)
        checks.switch_or_bytes("cache_data", self.cache_data)
        check(self.objectives, self.constraints, self.direction)
        if self.confirm_repeats is not None and not self.confirm:
            raise UsageError(
                f"--confirm-repeats is {self.confirm_repeats}, but nothing is to be confirmed; say "
                "with --confirm how many of the best configurations are"
            )
        self._keep(
            stop_at=StopAt(self.stop_at),
            start_points=checks.points("start_points", self.start_points),
            warm_start=checks.several("warm_start", self.warm_start),
            priors=checks.beliefs("priors", self.priors),
            on_failure=tuple(checks.several("on_failure", self.on_failure)),
            connect="" if self.connect == "none" else self.connect,
            slurm="" if self.slurm == "none" else self.slurm,
        )
        _ = self.device_budget, self.answers  # raises what is wrong with them
        if self.connect:
            self._check_connect()
        if self.slurm:
            self._check_slurm()

    def _keep(self, **values: object) -> None:
        """Keep these instead of what was given."""
        for name, value in values.items():
            object.__setattr__(self, name, value)

    def changed(self, changes: Mapping[str, Any]) -> Self:
        """These settings with some changed; asking for other workers takes back the former wish."""
        changes = dict(changes)
        if changes.get("connect"):
            changes.setdefault("workers", None)
            changes.setdefault("executor", "dask")
            changes.setdefault("slurm", "")
        elif changes.get("slurm"):
            changes.setdefault("workers", None)
            changes.setdefault("executor", "dask")
            changes.setdefault("connect", "")
        elif changes.get("workers"):
            changes.setdefault("connect", "")
            changes.setdefault("slurm", "")
        return replace(self, **changes)

    def _check_connect(self) -> None:
        check_scheduler_address("connect", self.connect)
        if "://" not in self.connect:
            object.__setattr__(self, "connect", str(whole_path(self.connect)))
        for name, given in (("workers", self.workers), ("executor", self.executor == "joblib")):
            if given:
                raise UsageError(
                    f"{name} is {getattr(self, name)!r} with connect {self.connect!r}: the one "
                    "asks for workers on this machine, the other for those at a scheduler; give "
                    "one of them"
                )

    def _check_slurm(self) -> None:
        object.__setattr__(self, "slurm", str(whole_path(self.slurm)))
        for name, given in (
            ("workers", self.workers),
            ("connect", self.connect),
            ("executor", self.executor == "joblib"),
        ):
            if given:
                raise UsageError(
                    f"{option(name)} is {getattr(self, name)!r} with --slurm {self.slurm!r}: each "
                    "of them says where the workers come from; give one of them"
                )

    def to_json(self) -> dict[str, Any]:
        """As plain values, for the ledger."""
        return asdict(self)

    @classmethod
    def from_json(cls, plain: Mapping[str, Any]) -> Self:
        """What `to_json` gave."""
        values = dict(plain)
        source = values.pop("source")
        direction = values.pop("direction")
        metric = values.pop("metric", None)  # the only objective, before there were several
        if not values.get("confirm"):
            values["confirm_repeats"] = None  # once it was never silent
        objectives = values.pop("objectives", () if metric is None else (metric,))
        return cls(
            source=ObjectiveSource(SourceKind(source["kind"]), source["path"]),
            direction=None if direction is None else Direction(direction),
            objectives=tuple(objectives),
            constraints=tuple(values.pop("constraints", ())),
            **values,
        )

    def found_in(self, directory: Path) -> Self:
        """The settings of a study that lies here now: what Tuner stored in it lies here too."""
        if self.source.kind is not SourceKind.PICKLE:
            return self
        beside = directory / Path(self.source.path).name
        return replace(self, source=ObjectiveSource(SourceKind.PICKLE, str(beside)))

    @property
    def repeats(self) -> int:
        """How often each of the best configurations is trained again."""
        return DEFAULT_REPEATS if self.confirm_repeats is None else self.confirm_repeats

    @property
    def cache_bytes(self) -> int | None:
        """Limit of the data cache on each node; None for half of the free space, 0 for no cache."""
        if self.cache_data is True:
            return None
        return int(self.cache_data)

    @property
    def budget_trials(self) -> int | None:
        """The total number of trials; None for the whole grid."""
        if self.trials is None and self.search != "grid":
            return DEFAULT_TRIALS
        return self.trials


def resolve_epochs(settings: StudySettings, found: Found) -> int | None:
    """How many epochs a Keras trial trains; None for an objective function that was told none."""
    said = settings.epochs or found.constants.get("EPOCHS")
    if said is not None:
        epochs = int(str(said))
        if epochs < 1:
            raise UsageError(f"EPOCHS is {epochs}; allowed are whole numbers from 1 on")
        return epochs
    return DEFAULT_EPOCHS if found.is_keras else None


_PRUNERS_HEED = {
    "reduction_factor": ("asha", "hyperband"),
    "min_epochs": ("asha", "hyperband", "median"),
    "brackets": ("hyperband",),
    "pruner_mode": ("asha", "hyperband"),
}


def pruner_settings(settings: StudySettings, epochs: int | None) -> PrunerSettings:
    """How to prune.

    Args:
        settings: What the user asked for.
        epochs: The full training of a trial; None where nobody said.

    Raises:
        UsageError: A setting means nothing to the pruner.
    """
    name = settings.pruner or "none"
    said = {}
    for setting, heed in _PRUNERS_HEED.items():
        value = getattr(settings, setting)
        if value is None:
            continue
        if name not in heed:
            raise UsageError(
                f"{option(setting)} means nothing to --pruner {name}; it is for "
                f"{' and '.join(heed)}"
            )
        said[setting.removeprefix("pruner_")] = value
    if "mode" in said:
        said["mode"] = HalvingMode(said["mode"])
    return PrunerSettings(name=name, epochs=epochs, **said)
