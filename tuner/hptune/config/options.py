"""Options of a study: the table from which come the command line, arguments and the reference."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..core.attempt import MOST_COUNT, StopAt
from ..core.budget import read_budget
from ..core.data_parallel import DEFAULT_WARM_UP_EPOCHS, BatchRule, StrategyChoice
from ..core.failure_policy import CAUSES
from ..core.kinds import choice, whole_number
from ..core.pruner import HalvingMode
from ..core.table import Section, setting
from ..pruners.registry import PRUNERS
from ..registry import own_option
from ..samplers.registry import AUTO, SAMPLERS
from . import kinds
from .places import AUTO as ANY_PLACE
from .places import CLUSTERS, EXECUTORS

if TYPE_CHECKING:  # it imports NumPy, which a command's help does not need
    from ..core.space.user_priors import PriorSpec

DEFAULT_TRIALS = 50
DEFAULT_REPEATS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyOptions:
    """The options of a study; each is declared and explained only here."""

    entry: str = setting(
        kinds.text("NAME", "names of a function, class or instance in the model file"),
        Section.GOAL,
        "What to tune, if the model file has several of these: a function of hp that builds a "
        "model, a HyperModel (class or instance), or a function of hp and trial.",
        default="",
        default_text="found by name and form: objective, a HyperModel, build_model, or another one",
        is_rare=True,
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
        whole_number(0),
        Section.GOAL,
        "Train the best N configurations again at the end; the best mean wins.",
        default=0,
    )
    confirm_repeats: int | None = setting(
        whole_number(1, 1_000),
        Section.GOAL,
        "With --confirm: how often to train each of the best configurations again.",
        default=None,
        default_text=str(DEFAULT_REPEATS),
        is_rare=True,
    )

    search: str = setting(
        kinds.text("NAME", f"{', '.join(SAMPLERS.built_in)}, others installed, and module:Name"),
        Section.SEARCH,
        "Search method: one of those listed below, or module:Name for a class or function in a "
        "Python file beside the model file. In Python also the class, the function, or a sampler "
        "object of Optuna.",
        default=AUTO,
        resumable=False,
    )
    options: Mapping[str, Any] = setting(
        kinds.plug_in_options(),
        Section.SEARCH,
        "Option of a search method, pruner, cluster or executor that is not built in, such as "
        "search.population=8.",
        default={},
        flag="--option",
        argument="options",
        is_rare=True,
    )
    grid_resolution: int | None = own_option(
        "grid_resolution", SAMPLERS, Section.SEARCH, resumable=False
    )
    start_points: Sequence[Mapping[str, object]] = setting(
        kinds.start_points(),
        Section.SEARCH,
        'Configuration to try first (on resume: next), such as "lr=0.001,units=64", {"lr": '
        '0.001, "units": 64}, or "@FILE.csv" or "@FILE.json" with several. What it does not name '
        "takes the value that a search tries first. `hptune enqueue` adds one to a study that "
        "runs.",
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
        is_rare=True,
    )
    warm_start: Sequence[str] = setting(
        kinds.texts(
            "SOURCE", "directories of studies or of KerasTuner, Optuna storages, CSV files"
        ),
        Section.SEARCH,
        "Learn from earlier trials, and try their best configuration first: those of a study's "
        "directory, a KerasTuner project, an Optuna storage (file or URL), or a .csv or .json "
        "file. The search spaces may differ in part.",
        default=(),
        resumable=False,
    )
    seed: int | None = setting(
        whole_number(0),
        Section.SEARCH,
        "Seed of all random numbers: a run with the same seed repeats itself.",
        default=None,
        default_text="random",
        resumable=False,
    )

    trials: int | None = setting(
        whole_number(1),
        Section.AMOUNT,
        "Total number of trials.",
        default=None,
        default_text=f"{DEFAULT_TRIALS}; for a grid, all of it",
    )
    epochs: int | None = setting(
        whole_number(1, MOST_COUNT),
        Section.AMOUNT,
        "Largest number of epochs of a trial.",
        default=None,
        default_text="EPOCHS of the model file, or 10",
    )
    timeout_seconds: float | None = setting(
        kinds.duration(may_be_none=True),
        Section.AMOUNT,
        "Time that the study may run in total, such as 2h. Each run counts from the start of its "
        "command; pauses between runs do not count.",
        default=None,
        flag="--timeout",
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
    )
    trial_timeout_seconds: float | None = setting(
        kinds.duration(may_be_none=True),
        Section.AMOUNT,
        "Time that one trial may run, such as 30m; after an interruption it has all of it again. A "
        "trial that takes longer fails (see --on-failure).",
        default=None,
        flag="--trial-timeout",
    )

    pruner: str | None = setting(
        kinds.text("NAME", f"{', '.join(PRUNERS.built_in)}, others installed, and module:Name"),
        Section.PRUNING,
        "Method that stops poor trials early: one of those listed below, or module:Name as for "
        "--search. asha and hyperband also compare trials by several objectives.",
        default=None,
        default_text="none",
    )
    min_epochs: int | None = own_option("min_epochs", PRUNERS, Section.PRUNING, is_rare=False)
    reduction_factor: int | None = own_option("reduction_factor", PRUNERS, Section.PRUNING)
    brackets: int | None = own_option("brackets", PRUNERS, Section.PRUNING)
    pruner_mode: HalvingMode | None = own_option("pruner_mode", PRUNERS, Section.PRUNING)

    python: str = setting(
        kinds.text("PATH", "paths of a Python, and none", is_path=True, may_be_none=True),
        Section.PLACE,
        "Python that runs the trials of a model file, such as that of an environment with another "
        "framework; hptune must be installed there.",
        default="",
        default_text="that of the worker",
        is_rare=True,
    )
    workers: int | None = setting(
        whole_number(1),
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
        default_text="1 for each of its processes, or with GPUs their part of the cores, or with "
        "--workers all cores of a worker",
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
        kinds.or_auto(whole_number(1)),
        Section.PLACE,
        "Processes that train one model together. Its cores, GPUs and memory are divided equally "
        "among them. auto is as for --gpus-per-trial, of cores where there are no GPUs.",
        default=None,
        default_text="1, or with --nodes-per-trial 1 on each node",
        is_rare=True,
    )
    nodes_per_trial: int | None = setting(
        whole_number(1),
        Section.PLACE,
        "Nodes that the processes of a trial are divided among.",
        default=None,
        default_text="1",
        is_rare=True,
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
        choice("auto", "off"),
        Section.PLACE,
        "Whether trials share a core or a GPU, where --cpus-per-trial or --gpus-per-trial is not "
        "given: with auto, as many share one as their measured use allows; with off, none do.",
        default="auto",
        is_rare=True,
    )
    strategy: StrategyChoice = setting(
        choice(*StrategyChoice, make=StrategyChoice),
        Section.PLACE,
        "How a Keras trial with several GPUs or processes trains: data-parallel divides each "
        "batch, none leaves it to the model file; auto is data-parallel if there are several.",
        default=StrategyChoice.AUTO,
        is_rare=True,
    )
    batch_rule: BatchRule = setting(
        choice(*BatchRule, make=BatchRule),
        Section.PLACE,
        "What the batch size means in such a trial: that of all devices together (global), or of "
        "each, with a learning rate that is multiplied by their number (linear) or its square root "
        "(sqrt).",
        default=BatchRule.GLOBAL,
        resumable=False,
        is_rare=True,
    )
    warm_up_epochs: int = setting(
        whole_number(0),
        Section.PLACE,
        "With --batch-rule linear or sqrt: first epochs of a trial, in which its learning rate "
        "rises.",
        default=DEFAULT_WARM_UP_EPOCHS,
        resumable=False,
        is_rare=True,
    )
    cluster: str = setting(
        kinds.text("NAME", f"{', '.join(CLUSTERS.built_in)}, others installed, and module:Name"),
        Section.PLACE,
        "Where the workers come from: one of those listed below, or module:Name as for --search. "
        "--connect and --slurm choose theirs.",
        default=ANY_PLACE,
        is_rare=True,
    )
    connect: str | None = own_option(
        "connect", CLUSTERS, Section.PLACE, is_rare=False, stands_alone=True
    )
    certs: str | None = own_option("certs", CLUSTERS, Section.PLACE, stands_alone=True)
    insecure: bool | None = own_option("insecure", CLUSTERS, Section.PLACE, stands_alone=True)
    slurm: str | None = own_option(
        "slurm", CLUSTERS, Section.PLACE, is_rare=False, stands_alone=True
    )
    max_jobs: int | None = own_option(
        "max_jobs", CLUSTERS, Section.PLACE, is_rare=False, stands_alone=True
    )
    min_workers: int | None = own_option("min_workers", CLUSTERS, Section.PLACE, stands_alone=True)
    executor: str = setting(
        kinds.text("NAME", f"{', '.join(EXECUTORS.built_in)}, others installed, and module:Name"),
        Section.PLACE,
        "Library that runs the trials on the cores: one of those listed below, or module:Name as "
        "for --search.",
        default="dask",
        resumable=False,
        is_rare=True,
    )
    cache_data: bool | int | None = setting(
        kinds.switch_or_size(),
        Section.PLACE,
        "Call load_data once per node and share its arrays between the trials there. A size "
        "such as 20GB limits their space on each node.",
        default=None,
        default_text="CACHE_DATA of the model file, or on, up to half of the free space",
        is_rare=True,
    )
    file_limit_bytes: int = setting(
        kinds.size(),
        Section.PLACE,
        "Largest file of a trial, and largest checkpoint_dir, that travels over the connection. "
        "Only for workers of --connect or --slurm that do not see the study's directory.",
        default=10_000_000_000,
        default_text="10GB",
        flag="--file-limit",
        is_rare=True,
    )

    checkpoint_every: int | None = setting(
        whole_number(0),
        Section.CHECKPOINTS,
        "Epochs between two checkpoints of a Keras trial; 0 for no checkpoints.",
        default=None,
        default_text="as often as takes under 3 % of the time",
        is_rare=True,
    )
    keep_checkpoints: int = setting(
        whole_number(0),
        Section.CHECKPOINTS,
        "Number of best trials whose last checkpoint is kept, so that a larger --epochs on resume "
        "can train them on.",
        default=3,
        is_rare=True,
    )
    stop_at: StopAt = setting(
        choice(*StopAt, make=StopAt),
        Section.CHECKPOINTS,
        "When a Keras trial stops on request: at the end of its batch or of its epoch.",
        default=StopAt.BATCH,
        is_rare=True,
    )
    master_grace_seconds: float = setting(
        kinds.duration(may_be_zero=True),
        Section.CHECKPOINTS,
        "If hptune is killed: how long trials on workers of --connect or --slurm continue, if the "
        "workers see the study's directory. The next `hptune resume` uses what they did.",
        default=600.0,
        flag="--master-grace",
        is_rare=True,
    )

    on_failure: Sequence[str] = setting(
        kinds.failure_rules(),
        Section.FAILURES,
        "What to do after a failure: retry:N (retry means once), fail, prune, or stop (the whole "
        f"study). Causes: {', '.join(CAUSES)}.",
        default=(),
    )
    max_failures: int | None = setting(
        whole_number(0),
        Section.FAILURES,
        "Stop the study when more than N trials fail.",
        default=None,
        default_text="no limit",
    )
    first: int = setting(
        whole_number(0),
        Section.FAILURES,
        "Run N trials before all others, with --slurm on one job. The study stops if they all fail "
        "the same way. Not repeated on resume once a trial was complete.",
        default=0,
        default_text="none",
    )
    same_failure_limit: int = setting(
        whole_number(0),
        Section.FAILURES,
        "Stop the study when the first N trials all fail the same way; 0 for never.",
        default=3,
        flag="--same-failures",
        is_rare=True,
    )
    hang_timeout_seconds: float = setting(
        kinds.duration(may_be_zero=True),
        Section.FAILURES,
        "End a trial that reports nothing and computes nothing for this time; 0 for never.",
        default=600.0,
        flag="--hang-timeout",
        is_rare=True,
    )

    notify: str = setting(
        kinds.text("COMMAND", "command lines for the shell, and none", may_be_none=True),
        Section.NOTIFICATIONS,
        "Command that gets a JSON object on its standard input when the study starts, has its "
        "first failed trial, waits long for a job, stops, and ends; after a minute it is killed.",
        default="",
        is_rare=True,
    )
    notify_wait_seconds: float = setting(
        kinds.duration(),
        Section.NOTIFICATIONS,
        "With --notify: for how long a job of the study may wait before the command is called.",
        default=3600.0,
        flag="--notify-wait",
        is_rare=True,
    )
    mirror: str = setting(
        kinds.text("NAME", "wandb, mlflow, other exports and module:Name", may_be_none=True),
        Section.NOTIFICATIONS,
        "Send each trial that is over to this tool while the study runs, as hptune export --format "
        "NAME --follow does; none for no tool.",
        default="",
        is_rare=True,
    )
