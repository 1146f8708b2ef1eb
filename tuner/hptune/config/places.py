"""Where trials run: executors and clusters by name. What makes one is imported when it is made."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ..core.kinds import flag, whole_number
from ..core.table import option
from ..registry import Registry, Row, Target
from . import kinds

AUTO = "auto"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutorRow(Row):
    """An executor that can be chosen, for workers on this machine.

    `factory(run, cores, gpus, **options)` makes it: from the facts of a run
    (`executors.base.RunContext`), the core ids of each worker, and the GPUs that they share out.

    Attributes:
        shares_workers: Whether a worker holds several trials, of any sizes. If not, each holds one,
            all trials are of one size, and workers start only when it is known.
        chooses_gpus: Whether its workers use only the GPUs that it is given; if not, they use all
            of the machine.
        elsewhere: Whether clusters of other machines may have it run trials on their workers.
    """

    shares_workers: bool = False
    chooses_gpus: bool = False
    elsewhere: bool = False

    what: ClassVar[str] = "executor"
    group: ClassVar[str] = "hptune.executors"
    arguments: ClassVar[tuple[str, ...]] = ("run", "cores", "gpus")


EXECUTORS = Registry(
    ExecutorRow,
    (
        ExecutorRow(
            name="dask",
            summary="Dask workers, on this machine and others; trials share a worker",
            factory="hptune.executors.dask:DaskExecutor",
            shares_workers=True,
            chooses_gpus=True,
            elsewhere=True,
        ),
        ExecutorRow(
            name="joblib",
            summary="the active backend of joblib, on this machine; one trial for each worker",
            factory="hptune.executors.joblib:JoblibExecutor",
        ),
    ),
)
"""Values of `--executor`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterRow(Row):
    """A source of workers that can be chosen.

    `factory(settings, study, **options)` makes a `clusters.base.Cluster`: from the settings
    (`config.settings.StudySettings`) and the path of the study's directory. `--workers` and
    executors that run only here are for clusters that are local.

    Attributes:
        chosen_by: The option that it needs; empty for none. That of a built-in one chooses it.
        is_local: Whether its workers find the programs and files that this process finds.
        pauses: What becomes of its workers while the study is paused; empty if they stay.
        detaches: Submits the master to where the workers come from: called with the settings
            (`config.asked.Asked`), the study's directory, the arguments of `hptune`, what reads
            the user's code here and raises an error if it cannot be used, and what takes a line
            for the user; it returns a text for
            the user. None if there is no such place.
        queues: Whether workers may wait in a queue for any time.
        takes_over: Whether it uses the workers that an earlier master of the study has left.
    """

    chosen_by: str = ""
    is_local: bool = False
    pauses: str = ""
    detaches: Target | None = None
    queues: bool = False
    takes_over: bool = False

    what: ClassVar[str] = "cluster"
    group: ClassVar[str] = "hptune.clusters"
    arguments: ClassVar[tuple[str, ...]] = ("settings", "study")

    @property
    def choice(self) -> str:
        """What a user gives to choose it: an option, or else its name."""
        flags = {each.name: each.flag for each in self.options}
        return flags.get(self.chosen_by, self.chosen_by) or self.name


_INSECURE = option(
    "insecure",
    flag(),
    "With workers on other machines: use no certificates. Anyone who reaches the scheduler or a "
    "worker over the network can then run code as you.",
    default_text="off",
    flag="--insecure",
)

_MAX_JOBS = option(
    "max_jobs",
    whole_number(1),
    "With --slurm or another batch system (--cluster sge, pbs, lsf, htcondor, oar): largest number "
    "of jobs at once. With --slurm, each job that ends in a few minutes is replaced beside it, so "
    "there may be twice as many for that time.",
    default_text="10",
    flag="--max-jobs",
)


def _batch_row(name: str, title: str) -> ClusterRow:
    return ClusterRow(
        name=name,
        summary=f"{title} jobs, as dask-jobqueue's configuration describes them",
        factory="hptune.clusters.batch_jobs:BatchWorkers",
        options=(_MAX_JOBS, _INSECURE),
        pauses=f"{title} jobs are cancelled when no trial runs on them",
        queues=True,
    )


CLUSTERS = Registry(
    ClusterRow,
    (
        ClusterRow(
            name=AUTO,
            summary="the cluster of --connect or --slurm; else the nodes of the Slurm job that "
            "hptune runs in, or this machine",
            factory="hptune.clusters.local:here",
            options=(_INSECURE,),
            is_local=True,
        ),
        ClusterRow(
            name="local",
            summary="processes on this machine",
            factory="hptune.clusters.local:LocalWorkers",
            is_local=True,
        ),
        ClusterRow(
            name="scheduler",
            summary="workers that join the Dask scheduler of --connect",
            factory="hptune.clusters.existing:at_scheduler",
            options=(
                option(
                    "connect",
                    kinds.scheduler_address(),
                    "Use the workers at this scheduler (see `hptune scheduler`), given by its "
                    "address or its scheduler file; none for workers on this machine.",
                    flag="--connect",
                ),
                option(
                    "certs",
                    kinds.text(
                        "FILE",
                        "paths of a file of certificates or of their folder, and none",
                        is_path=True,
                        may_be_none=True,
                    ),
                    "The certificate to show to a scheduler, a copy of its worker.pem (see `hptune "
                    "certs`).",
                    default_text="worker.pem in ~/.config/hptune/certs",
                    flag="--certs",
                ),
                _INSECURE,
            ),
            chosen_by="connect",
        ),
        ClusterRow(
            name="slurm",
            summary="Slurm jobs, as the slurm.toml of --slurm describes them",
            factory="hptune.clusters.slurm_jobs:SlurmWorkers",
            options=(
                option(
                    "slurm",
                    kinds.text(
                        "SLURM_TOML", "paths of a slurm.toml, and none", is_path=True,
                        may_be_none=True,
                    ),
                    "Run the workers in Slurm jobs as this file describes them (see `hptune slurm "
                    "init`), or none.",
                    flag="--slurm",
                ),
                _MAX_JOBS,
                option(
                    "min_workers",
                    whole_number(0),
                    "With --slurm: wait for N workers before the first trial.",
                    default_text="1",
                    flag="--min-workers",
                ),
                _INSECURE,
            ),
            chosen_by="slurm",
            pauses="Slurm jobs are cancelled when no trial runs on them",
            detaches="hptune.clusters.slurm_submission:submit",
            queues=True,
            takes_over=True,
        ),
        ClusterRow(
            name="allocation",
            summary="the nodes of the Slurm job that hptune runs in",
            factory="hptune.clusters.slurm_allocation:in_this_job",
            options=(_INSECURE,),
        ),
        _batch_row("sge", "Grid Engine"),
        _batch_row("pbs", "PBS"),
        _batch_row("lsf", "LSF"),
        _batch_row("htcondor", "HTCondor"),
        _batch_row("oar", "OAR"),
    ),
)  # fmt: skip
"""Values of `--cluster`."""
