"""The job script, which dask-jobqueue writes from what a shape and a worker say."""

from __future__ import annotations

import re
import shlex
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .config import Shape
from .sizing import MEBIBYTE, WorkerShape

_PREFIX = "slurm-"
_OWN_PREFIX = "HPTUNE_"
WORKER_NAME = f"{_PREFIX}${{SLURM_ARRAY_JOB_ID}}_${{SLURM_ARRAY_TASK_ID}}"
"""The worker's name in Dask has the job's id as squeue shows it, also after a requeue.

(The id alone would not do: Dask reads 1_0 as the number 10.)
"""

GANG_WORKER_NAME = f"{WORKER_NAME}.${{SLURM_PROCID}}"
"""The same of the workers of one job of several nodes; srun numbers them."""

ENDS_AT = "HPTUNE_WORKER_ENDS_AT"
"""The variable that tells a worker when its job must end, in seconds since the epoch."""

MASTER_NOTICE = "HPTUNE_MASTER_NOTICE"
"""The variable that tells a master that it is a job, and how long before its end it hears of it."""

GANG = "HPTUNE_WORKER_GANG"
"""The variable that tells a worker with which others it was granted: all that have the same."""

WHOLE_NODE = ("--overlap", "--mem=0", "--cpu-bind=none")
"""Options of an srun whose tasks have all that the job has on their nodes.

Another step may have it too: ours, or an salloc's shell.
"""

ON_ALL_NODES = (
    *WHOLE_NODE,
    # Workers that go, or a node that fails, are no reason to end the others.
    "--no-kill",
    "--kill-on-bad-exit=0",
    "--wait=0",
    "--label",
)
"""Options of an srun whose tasks have the whole job, and outlive each other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerCommand:
    """What a job runs: `python -m MODULE ADDRESS --name … --nthreads … --memory-limit … ARGUMENTS`.

    Attributes:
        address: Of the Dask scheduler, or what else the module takes in its place.
        module: The Python module, which may be followed by a subcommand.
        arguments: Further arguments.
    """

    address: str
    module: str = "distributed.cli.dask_worker"
    arguments: tuple[str, ...] = ()


def job_of(worker_name: object) -> str | None:
    """The id of the job whose worker has this name in Dask; None if it is no job's.

    >>> job_of("slurm-12_0"), job_of("slurm-12_0.3"), job_of(3)
    ('12_0', '12_0', None)
    """
    name = str(worker_name)
    return name.removeprefix(_PREFIX).partition(".")[0] if name.startswith(_PREFIX) else None


def job_script(
    shape: Shape, worker: WorkerShape, command: WorkerCommand, *, job_name: str, logs: Path
) -> str:
    """The whole text of the script for one kind of job.

    It is an array of one job, so that `sbatch --array=0-9` submits ten of them. Python takes the
    shell's place (`exec`), so that the worker hears Slurm's signals. Where a job has several nodes,
    srun does, which runs the rest of the script on each of them.

    Args:
        shape: What is particular to this kind of job.
        worker: What the job asks for.
        command: What it runs.
        job_name: The name of all such jobs.
        logs: Where their output goes, unless the shape says otherwise.
    """
    directives = _directives(shape, worker, Path(shape.log_directory or logs))
    prologue = [*_prologue(shape, worker), *_worker_variables(shape)]
    script = _rendered(
        shape, worker, command, job_name=job_name, directives=directives, prologue=prologue
    )
    return script if shape.nodes == 1 else _on_all_nodes(script, shape.nodes)


def _rendered(
    shape: Shape,
    worker: WorkerShape,
    command: WorkerCommand,
    *,
    job_name: str,
    directives: list[str],
    prologue: list[str],
) -> str:
    skipped = [] if worker.memory_bytes else ["--mem="]
    if shape.nodes > 1:
        skipped.append("-n 1")
    job: Any = _job_class()(
        scheduler=shlex.quote(command.address),
        name=WORKER_NAME if shape.nodes == 1 else GANG_WORKER_NAME,
        job_name=job_name,
        queue=shape.partition,
        account=shape.account,
        walltime=shape.walltime,
        cores=worker.cpus,
        processes=1,
        memory=f"{worker.memory_bytes}B",
        job_mem=f"{worker.memory_bytes // MEBIBYTE}M",
        job_directives_skip=skipped,
        job_extra_directives=directives,
        job_script_prologue=prologue,
        python=f"exec {_python(shape, worker)}",
        worker_command=command.module,
        worker_extra_args=list(command.arguments),
        interface=shape.interface,
        local_directory=shape.scratch,
        death_timeout=shape.grace_seconds,
        shebang="#!/usr/bin/env bash",
    )
    script: str = job.job_script()
    return script


def _on_all_nodes(script: str, nodes: int) -> str:
    """The same script, but with all that the shape's author says run on each node."""
    lines = script.splitlines()
    start = next(i for i, line in enumerate(lines) if line and not line.startswith("#"))
    ours = [line for line in lines[start:] if line.startswith(f"export {_OWN_PREFIX}")]
    theirs = "\n".join(line for line in lines[start:] if line not in ours)
    tasks = f"--nodes={nodes} --ntasks={nodes} --ntasks-per-node=1"
    srun = f"exec srun {tasks} {' '.join(ON_ALL_NODES)} bash -c {shlex.quote(theirs)}"
    return "\n".join([*lines[:start], *ours, srun, ""])


def _job_class() -> Any:
    """dask-jobqueue's description of a Slurm job; loads Dask, so not at the top."""
    before = signal.getsignal(signal.SIGINT)
    from dask_jobqueue.slurm import SLURMJob

    # Its import has Ctrl-C end the process at once, with nothing cleaned up and exit status 0.
    if signal.getsignal(signal.SIGINT) is not before:
        signal.signal(signal.SIGINT, before)
    return SLURMJob


def with_command(script: str, shape: Shape, worker: WorkerShape, command: str) -> str:
    """The script of the same job, but with other work for its Python.

    Args:
        script: What `job_script` made of this shape and worker.
        shape: What is particular to this kind of job.
        worker: What the job asks for.
        command: What follows `python` there, as the shell takes it.
    """
    before = script.rpartition("\nexec ")[0]
    return f"{before}\nexec {_python(shape, worker)} {command}\n"


def master_script(shape: Shape, lines: Sequence[str], *, job_name: str, log: Path) -> str:
    """The script of one job that may run again and again: Slurm can requeue it.

    It hears of its end by SIGUSR1, since SIGTERM means that somebody else ends it.

    Args:
        shape: What the job asks for.
        lines: What it runs, as shell lines; `python` begins those that the shape's Python runs.
        job_name: Its name.
        log: Where all of its runs write.
    """
    worker = WorkerShape(shape.cpus or 1, 0, shape.memory or 0, 0)
    directives = [
        "--nodes=1",
        f"--output={_file_name(log)}",
        "--open-mode=append",
        "--requeue",
        f"--signal=B:USR1@{shape.notice_seconds}",
        *([f"--qos={shape.qos}"] if shape.qos else []),
        *shape.directives,
    ]
    nothing = WorkerCommand(address="nobody")
    script = _rendered(
        shape,
        worker,
        nothing,
        job_name=job_name,
        directives=directives,
        prologue=[
            *_prologue(shape, worker),
            f"export {MASTER_NOTICE}={shape.notice_seconds}",
        ],
    )
    before = script.rpartition("\nexec ")[0]
    python = _python(shape, worker)
    said = [f"exec {python}{line.removeprefix('python')}" if line.startswith("python ") else line
            for line in lines]  # fmt: skip
    return "\n".join([before, *said, ""])


def _directives(shape: Shape, worker: WorkerShape, logs: Path) -> list[str]:
    # The worker is the batch script itself, or on each node a task.
    whom = "B:" if shape.nodes == 1 else ""
    lines = [
        f"--nodes={shape.nodes}",
        "--array=0",
        f"--output={_file_name(logs, '%x-%A_%a.log')}",
        # A requeued job goes on in the same file.
        "--open-mode=append",
        f"--signal={whom}TERM@{shape.notice_seconds}",
    ]
    if shape.nodes > 1:
        # A node that fails does not end the others.
        lines += [f"--ntasks={shape.nodes}", "--ntasks-per-node=1", "--no-kill"]
    if worker.gpus:
        kind = f"{shape.gpu_type}:" if shape.gpu_type else ""
        lines.append(f"--gres=gpu:{kind}{worker.gpus}")
    if shape.qos:
        lines.append(f"--qos={shape.qos}")
    if shape.exclusive:
        lines.append("--exclusive")
    return [*lines, *shape.directives]


def _file_name(path: Path, pattern: str = "") -> str:
    """A path in a directive, and a name in it that Slurm fills in.

    sbatch knows quotes and backslashes there as a shell does (but `#` begins a comment even
    between quotes where it is old), and takes what begins with a `%` for its own.
    """
    whole = "/".join(filter(None, (str(path).replace("%", "%%"), pattern)))
    plain = re.fullmatch(r"[^\s\"'#\\]*", whole)
    return whole if plain else '"' + re.sub(r"([\"#\\])", r"\\\1", whole) + '"'


def _prologue(shape: Shape, worker: WorkerShape) -> list[str]:
    lines = [f"module load {shlex.quote(each)}" for each in shape.modules]
    lines += [f"export {name}={shlex.quote(value)}" for name, value in shape.environment]
    lines += shape.prologue
    if not worker.gpus:
        # Where Slurm confines nobody, a job without GPUs would see those of its neighbours.
        lines.append("export CUDA_VISIBLE_DEVICES=")
    return lines


def _worker_variables(shape: Shape) -> list[str]:
    """What a worker is to know of its job."""
    # Slurm tells the end of the job itself from release 23.02 on.
    ask = "SLURM_TIME_FORMAT=%s squeue --noheader --job $SLURM_JOB_ID --format %e"
    lines = [f"export {ENDS_AT}=${{SLURM_JOB_END_TIME:-$({ask})}}"]
    if shape.nodes > 1:
        lines.append(f"export {GANG}=${{SLURM_ARRAY_JOB_ID}}_${{SLURM_ARRAY_TASK_ID}}")
    return lines


def _python(shape: Shape, worker: WorkerShape) -> str:
    if shape.container:
        devices = " --nv" if worker.gpus else ""
        return f"apptainer exec{devices} {shlex.quote(shape.container)} python3"
    python = shlex.quote(shape.python or sys.executable)
    return f"{shape.launcher} {python}" if shape.launcher else python
