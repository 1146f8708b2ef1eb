"""Settings of a study: one table, from which come options, checks, arguments and the reference."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from ..core.attempt import StopAt
from ..core.budget import DeviceBudget, read_budget
from ..core.data_parallel import DEFAULT_WARM_UP_EPOCHS, BatchRule, StrategyChoice
from ..core.failure_policy import CAUSES, FailureRule, read_failure_rule
from ..core.pruner import HalvingMode
from ..core.trial import Direction
from ..errors import UsageError
from ..samplers.registry import AUTO, SEARCH_SUMMARIES
from . import kinds
from .model_file import ObjectiveSource, SourceKind
from .objectives import check_objectives
from .table import Section, rows, setting

if TYPE_CHECKING:  # it imports NumPy, which a command's help does not need
    from ..core.space.user_priors import PriorSpec

DEFAULT_TRIALS = 50
DEFAULT_REPEATS = 2
_HALVING = ("asha", "hyperband")
_WORKER_SOURCES = ("workers", "connect", "slurm")


def _check_address(text: str) -> None:
    if not kinds.is_scheduler_address(text):
        raise ValueError


@dataclass(frozen=True, slots=True, kw_only=True)
class StudySettings:
    """Settings of a study as the user gave them; each is declared and explained only here.

    Attributes:
        source: Where the user's code is.
        working_directory: Directory in which relative paths of the user's code start.
    """

    source: ObjectiveSource
    working_directory: str

    entry: str = setting(
        kinds.text("NAME", "names of a function, class or instance in the model file"),
        Section.GOAL,
        "What to tune, if the model file has several of these: a function of hp that builds a "
        "model, a HyperModel (class or instance), or a function of hp and trial.",
        default="",
        default_text="found by name and form: objective, a HyperModel, build_model, or another one",
    )
    objectives: tuple[str, ...] = setting(
        kinds.objectives(),
        Section.GOAL,
        "Metric to optimise, such as val_loss. auc:max or cost:min says which values are better, "
        "if the name does not. With several metrics, the result is each trial that no other one "
        "beats in all of them (the Pareto front).",
        default=(),
        flag="--objective",
        default_text="OBJECTIVE of the model file, or val_accuracy or val_loss of a Keras model",
        resumable=False,
    )
    direction: Direction | None = setting(
        kinds.choice(*Direction, make=Direction),
        Section.GOAL,
        "Whether a larger or a smaller value of the only objective is better.",
        default=None,
        default_text="what the metric's name says",
        resumable=False,
    )
    constraints: tuple[str, ...] = setting(
        kinds.texts("METRIC<NUMBER", "texts such as 'params<2e6', with <, <=, > or >="),
        Section.GOAL,
        "Condition that the best trial must meet, such as 'params<2e6'; with <, <=, > or >=.",
        default=(),
        flag="--constraint",
        argument="constraints",
        default_text="CONSTRAINTS of the model file",
        resumable=False,
    )
    confirm: int = setting(
        kinds.whole_number(0),
        Section.GOAL,
        "Train the best N configurations again at the end; the best mean wins.",
        default=0,
    )
    confirm_repeats: int | None = setting(
        kinds.whole_number(1),
        Section.GOAL,
        "With --confirm: how often to train each of them again.",
        default=None,
        default_text=str(DEFAULT_REPEATS),
    )

    search: str = setting(
        kinds.text("NAME", "the search methods, which `hptune run --help` lists"),
        Section.SEARCH,
        f"Search method: {', '.join(SEARCH_SUMMARIES)}.",
        default=AUTO,
        resumable=False,
    )
    surrogate: str | None = setting(
        kinds.text("MODEL", "gp, forest, extra-trees and gbrt"),
        Section.SEARCH,
        "With --search skopt: its model, one of gp, forest, extra-trees and gbrt.",
        default=None,
        default_text="gp",
        resumable=False,
    )
    grid_resolution: int | None = setting(
        kinds.whole_number(2),
        Section.SEARCH,
        "With --search grid: number of values of each continuous hyperparameter.",
        default=None,
        flag="--grid-points",
        default_text="10",
        resumable=False,
    )
    start_points: Sequence[Mapping[str, object]] = setting(
        kinds.start_points(),
        Section.SEARCH,
        'Configuration to try first (on resume: next), such as "lr=0.001,units=64", or @FILE.json '
        "or @FILE.csv with several. What it does not name takes the value that a search tries "
        "first.",
        in_python='Configuration to try first (on resume: next), such as {"lr": 0.001, "units": '
        '64}, or "@known.csv" for those in a file. What it does not name takes the value that a '
        "search tries first.",
        default=(),
        flag="--try",
        argument="start_points",
    )
    priors: Mapping[str, PriorSpec] = setting(
        kinds.priors(),
        Section.SEARCH,
        'Where good values are expected: "lr~lognormal(0.001,0.5)", "units~normal(128,64)", or '
        'weights of choices, "act~{relu:3,tanh:1}".',
        default={},
        flag="--prior",
        argument="priors",
        resumable=False,
    )
    warm_start: Sequence[str] = setting(
        kinds.texts(
            "SOURCE", "directories of studies or of KerasTuner, Optuna storages, CSV files"
        ),
        Section.SEARCH,
        "Learn from earlier trials, and try the best configuration first: those of a study's "
        "directory, a KerasTuner project, an Optuna storage (file or URL), or a .csv or .json "
        "file. The search spaces may differ in part.",
        default=(),
        resumable=False,
    )
    seed: int | None = setting(
        kinds.whole_number(0),
        Section.SEARCH,
        "Seed of all random numbers: a run with the same seed repeats itself.",
        default=None,
        default_text="random",
        resumable=False,
    )

    trials: int | None = setting(
        kinds.whole_number(1),
        Section.AMOUNT,
        "Total number of trials.",
        default=None,
        default_text=f"{DEFAULT_TRIALS}; for a grid, all of it",
    )
    epochs: int | None = setting(
        kinds.whole_number(1),
        Section.AMOUNT,
        "Largest number of epochs of a trial.",
        default=None,
        default_text="EPOCHS of the model file, or 10",
    )
    timeout_seconds: float | None = setting(
        kinds.duration(may_be_none=True),
        Section.AMOUNT,
        "Time that the study may run in total, such as 2h. Pauses between runs do not count.",
        default=None,
        flag="--timeout",
        default_text="none",
    )
    budget: str = setting(
        kinds.text(
            "HOURS",
            "hours such as 100gpu-h or 40core-h, and none",
            check=read_budget,
            may_be_none=True,
        ),
        Section.AMOUNT,
        "GPU hours or core hours that all trials together may use, such as 100gpu-h or 40core-h; "
        "none for no limit.",
        default="",
        default_text="none",
    )
    trial_timeout_seconds: float | None = setting(
        kinds.duration(may_be_none=True),
        Section.AMOUNT,
        "Time that one trial may run, such as 30m. A trial that takes longer fails (see "
        "--on-failure).",
        default=None,
        flag="--trial-timeout",
        default_text="none",
    )

    pruner: str | None = setting(
        kinds.text("NAME", "none, asha, hyperband and median"),
        Section.PRUNING,
        "Method that stops poor trials early: asha, hyperband, median or none.",
        default=None,
        default_text="none",
    )
    min_epochs: int | None = setting(
        kinds.whole_number(1),
        Section.PRUNING,
        "no trial is stopped before this epoch.",
        default=None,
        default_text="a twentieth of the epochs",
        pruners=(*_HALVING, "median"),
    )
    reduction_factor: int | None = setting(
        kinds.whole_number(2),
        Section.PRUNING,
        "at each rung, one trial in N continues.",
        default=None,
        default_text="3",
        pruners=_HALVING,
    )
    brackets: int | None = setting(
        kinds.whole_number(1),
        Section.PRUNING,
        "number of brackets.",
        default=None,
        default_text="as many as the epochs allow",
        pruners=("hyperband",),
    )
    pruner_mode: HalvingMode | None = setting(
        kinds.choice(*HalvingMode, make=HalvingMode),
        Section.PRUNING,
        "poor trials stop for good (stop), or pause and may continue later from their checkpoints "
        "(promote).",
        default=None,
        default_text="stop",
        pruners=_HALVING,
    )

    python: str = setting(
        kinds.text("PATH", "paths of a Python", is_path=True, may_be_none=True),
        Section.PLACE,
        "Python that runs the trials of a model file, such as that of an environment with another "
        "framework; hptune must be installed there.",
        default="",
        default_text="that of the worker",
    )
    workers: int | None = setting(
        kinds.whole_number(1),
        Section.PLACE,
        "Number of workers on this machine. Each gets an equal part of the cores, and runs one "
        "trial at a time on all of them; with --cpus-per-trial, several.",
        default=None,
        default_text="one worker, which begins with a trial on each core",
    )
    cpus_per_trial: float | None = setting(
        kinds.devices("core", fewest=1),
        Section.PLACE,
        "CPU cores of a trial, or a part of one, such as 0.5.",
        default=None,
        default_text="1 for each of its processes, or with --workers all cores of a worker",
    )
    gpus_per_trial: float | str | None = setting(
        kinds.or_auto(kinds.devices("GPU", fewest=0)),
        Section.PLACE,
        "GPUs of a trial, or a part of one, such as 0.5; auto measures the model's steps first, "
        "and takes as many as end the study soonest, with a process for each.",
        default=None,
        default_text="1 for each of its processes, on workers with GPUs",
    )
    processes_per_trial: int | str | None = setting(
        kinds.or_auto(kinds.whole_number(1)),
        Section.PLACE,
        "Processes that train one model together. Its cores, GPUs and memory are divided equally "
        "among them. auto is as for --gpus-per-trial, of cores where there are no GPUs.",
        default=None,
        default_text="1, or with --nodes-per-trial 1 on each node",
    )
    nodes_per_trial: int | None = setting(
        kinds.whole_number(1),
        Section.PLACE,
        "Nodes that the processes of a trial are divided among.",
        default=None,
        default_text="1",
    )
    memory_per_trial_bytes: int = setting(
        kinds.size(),
        Section.PLACE,
        "Main memory of a trial, such as 4GB.",
        default=0,
        flag="--memory-per-trial",
        default_text="as measured",
    )
    pack: str = setting(
        kinds.choice("auto", "off"),
        Section.PLACE,
        "Whether trials share a core or a GPU, where --cpus-per-trial or --gpus-per-trial is not "
        "given: with auto, as many share one as their measured use allows; with off, none do.",
        default="auto",
    )
    strategy: StrategyChoice = setting(
        kinds.choice(*StrategyChoice, make=StrategyChoice),
        Section.PLACE,
        "How a Keras trial with several GPUs or processes trains: data-parallel divides each "
        "batch, none leaves it to the model file; auto is data-parallel if there are several.",
        default=StrategyChoice.AUTO,
    )
    batch_rule: BatchRule = setting(
        kinds.choice(*BatchRule, make=BatchRule),
        Section.PLACE,
        "What the batch size means in such a trial: that of all devices together (global), or of "
        "each, with a learning rate that is multiplied by their number (linear) or its square root "
        "(sqrt).",
        default=BatchRule.GLOBAL,
        resumable=False,
    )
    warm_up_epochs: int = setting(
        kinds.whole_number(0),
        Section.PLACE,
        "With --batch-rule linear or sqrt: epochs in which the learning rate rises.",
        default=DEFAULT_WARM_UP_EPOCHS,
        resumable=False,
    )
    connect: str = setting(
        kinds.text(
            "ADDRESS",
            "an address such as tls://node1:8786, the path of a scheduler file, and none",
            check=_check_address,
            is_path=True,
            may_be_none=True,
        ),
        Section.PLACE,
        "Use the workers at this scheduler (see `hptune scheduler`), given by its address or its "
        "scheduler file; none for workers on this machine.",
        default="",
        default_text="none",
    )
    certs: str = setting(
        kinds.text(
            "FILE",
            "paths of a file of certificates or of their folder, and none",
            is_path=True,
            may_be_none=True,
        ),
        Section.PLACE,
        "The certificate to show to a scheduler, a copy of its worker.pem (see `hptune certs`).",
        default="",
        default_text="worker.pem in ~/.config/hptune/certs",
    )
    insecure: bool = setting(
        kinds.flag(),
        Section.PLACE,
        "With --connect or --slurm: use no certificates. Anyone who reaches the scheduler or a "
        "worker over the network can then run code as you.",
        default=False,
        default_text="off",
    )
    slurm: str = setting(
        kinds.text("SLURM_TOML", "paths of a slurm.toml, and none", is_path=True, may_be_none=True),
        Section.PLACE,
        "Run the workers in Slurm jobs as this file describes them (see `hptune slurm init`), or "
        "none.",
        default="",
        default_text="none",
    )
    max_jobs: int | None = setting(
        kinds.whole_number(1),
        Section.PLACE,
        "With --slurm: largest number of jobs at once.",
        default=None,
        default_text="10",
    )
    min_workers: int = setting(
        kinds.whole_number(0),
        Section.PLACE,
        "With --slurm: wait for N workers before the first trial.",
        default=0,
        default_text="1",
    )
    executor: str = setting(
        kinds.choice("dask", "joblib"),
        Section.PLACE,
        "Library that runs the trials on the cores.",
        default="dask",
        resumable=False,
    )
    cache_data: bool | int | None = setting(
        kinds.switch_or_size(),
        Section.PLACE,
        "Call load_data once per node and share its arrays between the trials there. A size "
        "such as 20GB limits their space on each node.",
        default=None,
        default_text="CACHE_DATA of the model file, or on, up to half of the free space",
    )

    file_limit_bytes: int = setting(
        kinds.size(),
        Section.PLACE,
        "Largest file of a trial, and largest checkpoint_dir, that travels over the connection. "
        "Only for workers of --connect or --slurm that do not see the study directory.",
        default=10_000_000_000,
        default_text="10GB",
        flag="--file-limit",
    )

    checkpoint_every: int | None = setting(
        kinds.whole_number(0),
        Section.CHECKPOINTS,
        "Epochs between two checkpoints of a Keras trial; 0 for no checkpoints.",
        default=None,
        default_text="as often as takes under 3 % of the time",
    )
    keep_checkpoints: int = setting(
        kinds.whole_number(0),
        Section.CHECKPOINTS,
        "Number of best trials whose last checkpoint is kept, so that a larger --epochs on resume "
        "can train them on.",
        default=3,
    )
    stop_at: StopAt = setting(
        kinds.choice(*StopAt, make=StopAt),
        Section.CHECKPOINTS,
        "When a Keras trial stops on request: at the end of its batch or of its epoch.",
        default=StopAt.BATCH,
    )
    master_grace_seconds: float = setting(
        kinds.duration(may_be_zero=True),
        Section.CHECKPOINTS,
        "If hptune is killed: how long trials on workers of --connect or --slurm continue, if the "
        "workers see the study directory. The next `hptune resume` uses what they did.",
        default=600.0,
        flag="--master-grace",
    )

    on_failure: Sequence[str] = setting(
        kinds.texts("CAUSE=ACTION", "texts such as memory=retry:3", check=read_failure_rule),
        Section.FAILURES,
        "What to do after a failure: retry:N (retry means once), fail, prune, or stop (the whole "
        f"study). Causes: {', '.join(CAUSES)}.",
        default=(),
    )
    max_failures: int | None = setting(
        kinds.whole_number(0),
        Section.FAILURES,
        "Stop the study when more than N trials fail.",
        default=None,
        default_text="no limit",
    )
    same_failure_limit: int = setting(
        kinds.whole_number(0),
        Section.FAILURES,
        "Stop the study when the first N trials all fail the same way; 0 for never.",
        default=3,
        flag="--same-failures",
    )
    hang_timeout_seconds: float = setting(
        kinds.duration(may_be_zero=True),
        Section.FAILURES,
        "End a trial that reports nothing and computes nothing for this time; 0 for never.",
        default=600.0,
        flag="--hang-timeout",
    )

    def __post_init__(self) -> None:
        for each in SETTINGS:
            # The dataclass is frozen; what was given as text is replaced by its value once.
            object.__setattr__(self, each.name, each.read(getattr(self, each.name)))
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
        given = [name for name in ("connect", "slurm", "workers") if getattr(self, name)]
        if self.executor == "joblib" and (self.connect or self.slurm):
            given.append("executor")
        if len(given) > 1:
            one, other = given[:2]
            raise UsageError(
                f"{option(one)} is {getattr(self, one)!r} and {option(other)} is "
                f"{getattr(self, other)!r}, but workers come from one place; give one of them"
            )

    def _check_split(self) -> None:
        """Check that nothing else says how many devices a trial has if they are chosen."""
        if not self.chooses_split:
            return
        others = ("gpus_per_trial", "processes_per_trial", "nodes_per_trial")
        wrong = [each for each in others if getattr(self, each) not in (None, 0, kinds.AUTO)]
        if self.cpus_per_trial is not None and self.cpus_per_trial < 1:
            wrong.append("cpus_per_trial")
        if self.executor != "dask":
            wrong.append("executor")
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
        source = next((name for name in _WORKER_SOURCES if changes.get(name)), None)
        if source is not None:
            nothing = {"workers": None, "connect": "", "slurm": "", "certs": "", "insecure": False}
            changes = nothing | changes
            if source != "workers":
                changes.setdefault("executor", "dask")
        if "pruner" in changes:
            pruner = changes["pruner"]
            unused = [each for each in SETTINGS if each.pruners and pruner not in each.pruners]
            changes = {each.name: None for each in unused} | changes
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
    def repeats(self) -> int:
        """How often each of the best configurations is trained again."""
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
        if self.trials is None and self.search != "grid":
            return DEFAULT_TRIALS
        return self.trials


SETTINGS = rows(StudySettings)
BY_NAME = {each.name: each for each in SETTINGS}


def option(name: str) -> str:
    """Return the command-line option of a field of `StudySettings`.

    >>> option("min_epochs"), option("timeout_seconds")
    ('--min-epochs', '--timeout')
    """
    return BY_NAME[name].flag
