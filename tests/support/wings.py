"""The package's kernel, and the wings that hang on it.

The kernel is what a study on one machine with Keras needs. It imports a wing through the wing's
doors only.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Wing:
    """A part of the package that a study on one machine with Keras does without.

    Attributes:
        modules: Its modules and folders.
        doors: The modules of the kernel that import it, inside functions, each with the reason.
        open_doors: Doors that import it at once, when they are loaded themselves.
        uses: Other wings that it may import.
    """

    modules: tuple[str, ...]
    doors: dict[str, str] = field(default_factory=dict)
    open_doors: dict[str, str] = field(default_factory=dict)
    uses: tuple[str, ...] = ()


WINGS = {
    "pages": Wing(
        (
            "hptune.reporting.html",
            "hptune.reporting.exports",
            "hptune.reporting.results.answers",
            "hptune.reporting.results.edges",
            "hptune.reporting.results.failures",
            "hptune.reporting.results.importance",
            "hptune.reporting.results.rungs",
            "hptune.cli.exporting",
            "hptune.cli.dashboard",
            "hptune.study.dashboard",
        ),
        doors={
            "hptune.reporting.results.summary": "the status and the end of a run advise",
            "hptune.cli.reading": "show says how others did where a trial was pruned",
            "hptune.master.mirror": "the name of a mirror is checked before the study is made",
            "hptune.study.view_reading": "advice needs the last values of some trials",
        },
        open_doors={"hptune.study.study": "figures, reports and exports are methods of Study"},
        uses=("remote", "other tools", "notes", "slurm"),
    ),
    "notes": Wing(
        ("hptune.cli.noting", "hptune.storage.notes", "hptune.reporting.results.notes"),
        doors={"hptune.study.study": "Study.note writes one"},
        open_doors={
            "hptune.reporting.results.export": "a trial is exported with its notes",
            "hptune.reporting.results.summary": "status shows those on the study",
            "hptune.reporting.results.trials": "trials and show those on trials",
        },
    ),
    "ask and tell": Wing(
        ("hptune.ask_tell", "hptune.cli.telling"),
        doors={
            "hptune.cli.running": "`hptune resume` opens a study without code to programs",
            "hptune.cli.asking": "`hptune stop` ends a study that programs have open",
        },
        uses=("programs", "slurm"),
    ),
    "agents": Wing(("hptune.agents", "hptune.cli.mcp"), uses=("slurm", "other tools")),
    "optuna": Wing(("hptune.optuna",), uses=("ask and tell", "other tools", "programs")),
    "parallel": Wing(
        (
            "hptune.executors.parallel",
            "hptune.executors.parallel_state",
            "hptune.training.parallel",
            "hptune.training.strategies",
            "hptune.worker.forkserver.rank",
        ),
        doors={
            "hptune.worker.forkserver.attempt": "a process becomes a rank, by its strategy",
            "hptune.training.keras.objective": "model.fit trains by the strategy",
        },
        open_doors={
            "hptune.master.run": (
                "each run takes over ranks that a dead master left, whatever its own trials have"
            )
        },
    ),
    "scaling": Wing(
        (
            "hptune.scaling",
            "hptune.cli.scaling",
            "hptune.master.chosen_split",
            "hptune.master.scaling",
            "hptune.training.keras.step_times",
        ),
        doors={
            "hptune.master.run": "--gpus-per-trial auto measures before the first trial",
            "hptune.study.study": "the report shows what was measured",
            "hptune.worker.forkserver.attempt": "an order to measure is carried out here",
        },
        uses=("pages", "parallel"),
    ),
    "slurm": Wing(
        (
            "hptune_jobqueue",
            "hptune.cli.slurm",
            "hptune.clusters.jobs",
            "hptune.clusters.shown_jobs",
            "hptune.clusters.slurm_allocation",
            "hptune.clusters.slurm_jobs",
            "hptune.clusters.slurm_master",
            "hptune.clusters.slurm_submission",
            "hptune.clusters.slurm_usage",
            "hptune.master.detached",
        ),
        doors={
            "hptune.clusters.local": "a run inside of a Slurm job uses the job's nodes",
            "hptune.master.run": "a run cancels the jobs that an earlier master left",
            "hptune.cli.running": "--detach of `hptune run` and `hptune resume`",
            "hptune.cli.asking": "`hptune stop` cancels the jobs of a dead master",
            "hptune.cli.reading": "`hptune status` shows jobs",
        },
    ),
    "remote": Wing(
        (
            "hptune.cli.joining",
            "hptune.clusters.existing",
            "hptune.clusters.running_studies",
            "hptune.clusters.scheduler",
            "hptune.executors.file_exchange",
            "hptune.executors.file_pieces",
            "hptune.executors.file_reception",
            "hptune.worker.transport",
        ),
        doors={"hptune.clusters.choice": "a client of the user's has workers elsewhere"},
        open_doors={
            "hptune.executors.dask": "file exchange shares the executor's messages and threads",
            "hptune.worker.dask.plugin": "its worker may see the study's directory or not",
            "hptune.worker.dask.plugin_state": "a worker's studies end with their files",
            "hptune.worker.dask.study_attempts": "attempts wait for their files",
            "hptune.worker.dask.study_access": "says which files go to a worker that does not",
        },
        uses=("slurm",),
    ),
    "other GPUs": Wing(
        ("hptune.worker.gpus.sysfs",),
        open_doors={"hptune.worker.gpus.machine": "AMD and Intel are rows of the table of vendors"},
    ),
    "batch systems": Wing(
        ("hptune.clusters.batch_jobs", "hptune.clusters.batch_systems"), uses=("slurm",)
    ),
    "doctor": Wing(("hptune.doctor", "hptune.cli.doctor"), uses=("remote", "slurm")),
    "other tools": Wing(
        (
            "hptune.config.other_tuners",
            "hptune.keras_tuner",
            "hptune.master.earlier",
            "hptune.samplers.adapters",
            "hptune.samplers.wrappers.warm_start",
            "hptune.user_code.scripts",
        ),
        doors={
            "hptune.cli.running": "`hptune run` knows a script of KerasTuner",
            "hptune.cli.programs": "and runs it",
            "hptune.master.plan": "--warm-start reads earlier studies, also of other tuners",
            "hptune.samplers.registry": "a study that is started warm wraps its sampler",
        },
        open_doors={
            "hptune.user_code.model_file": "a model file that searches by itself is refused",
            "hptune.user_code.source_checks": "so is a script of another tuner",
            "hptune.cli": "options of other tuners are answered with ours",
            "hptune.tuner": "names of other tuners are answered with ours",
            "hptune.study.study": "so are those of their results",
        },
        uses=("search methods",),
    ),
    "hydra": Wing(
        ("hptune.hydra", "hydra_plugins"),
        doors={"hptune.cli.running": "`hptune resume` writes the results of a multirun"},
        uses=("other tools",),
    ),
    "programs": Wing(
        (
            "hptune.user_code.programs",
            "hptune.user_code.space_tables",
            "hptune.training.program",
        ),
        doors={"hptune.cli.programs": "--command tunes any program"},
        open_doors={
            "hptune.user_code.user_errors": "errors leave out the file that --command writes",
        },
    ),
    "data cache": Wing(
        ("hptune.training.data_cache",),
        doors={
            "hptune.worker.forkserver.attempt": "an attempt measures what its data took",
            "hptune.worker.forkserver.questions": "a question builds the model from cached data",
        },
        open_doors={
            "hptune.training.keras.objective": "load_data is called through the cache",
            "hptune.worker.forkserver.server": "a fork server joins and leaves a study's cache",
        },
    ),
    "packing": Wing(
        ("hptune.core.packing",),
        open_doors={
            "hptune.core.engine.dispatch": "asks how many trials share a core or a GPU",
            "hptune.master.loop": "decides it from measurements",
        },
    ),
    "search methods": Wing(
        (
            "hptune.samplers.common.encoding",
            "hptune.samplers.common.observations",
            "hptune.samplers.common.learning",
            "hptune.samplers.common.one_thread",
            "hptune.samplers.common.pareto",
            "hptune.samplers.gp",
            "hptune.samplers.grid",
            "hptune.samplers.sobol",
            "hptune.samplers.tpe",
        )
    ),
    "replay": Wing(
        ("hptune.master.replay",), doors={"hptune.cli.reading": "the command `hptune replay`"}
    ),
    "watching": Wing(
        ("hptune.reporting.terminal.watch",),
        doors={"hptune.cli.reading": "`hptune status --watch`"},
    ),
    "guide": Wing(("hptune.cli.guide",)),
    "optimizers": Wing(("hptune.optimizers",)),
    "testing": Wing(("hptune.testing",)),
}
"""Certificates (`security`) are the kernel's: they keep other users of this machine out."""


def wing(module: str) -> str:
    """Return the wing of a module; empty for the kernel."""
    for name, each in WINGS.items():
        if any(module == own or module.startswith(f"{own}.") for own in each.modules):
            return name
    return ""


def may_import(importer: str, imported: str, *, in_function: bool) -> bool:
    """Return whether the rules of the wings let a module import another."""
    ours, theirs = wing(importer), wing(imported)
    if not theirs or ours == theirs:
        return True
    if ours:
        return theirs in WINGS[ours].uses
    return importer in WINGS[theirs].open_doors or (in_function and importer in WINGS[theirs].doors)
