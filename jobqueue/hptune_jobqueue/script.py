"""The job script, which dask-jobqueue renders from a shape and a worker."""

from __future__ import annotations

import importlib
import math
import re
import shlex
import signal
import sys
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .config import ANY_PARTITION, Shape
from .image import NO_SRUN_OPTIONS, is_run_by_srun, prepare_lines, python_command
from .sizing import MEBIBYTE, WorkerShape
from .values import expanded, gres_of

_PREFIX = "slurm-"
_OWN_PREFIX = "HPTUNE_"
_JOB = "${SLURM_ARRAY_JOB_ID}_${SLURM_ARRAY_TASK_ID}"
"""The job's id as squeue shows it, also after a requeue. SLURM_JOB_ID may be that of the array."""

WORKER_NAME = f"{_PREFIX}{_JOB}"
"""The worker's name in Dask. The id alone would not do: Dask reads 1_0 as the number 10."""

GANG_WORKER_NAME = f"{WORKER_NAME}.${{SLURM_PROCID}}"
"""The same for the workers of one job of several nodes, which srun numbers."""

ENDS_AT = "HPTUNE_WORKER_ENDS_AT"
"""Environment variable with the end of a worker's job, in seconds since the epoch."""

NOTICE = "HPTUNE_WORKER_NOTICE"
"""Environment variable of a worker: the seconds before its job's end at which it must leave."""

MASTER_NOTICE = "HPTUNE_MASTER_NOTICE"
"""Environment variable of a master that is a job: the seconds between its notice and end."""

SETUP_FAILED = "hptune: setup failed: "
"""Beginning of the line that a job writes for a module or a line of the prologue that fails."""

_TRAP = (
    "hptune_depth=${#BASH_SOURCE[@]}",
    # Lines of files that the prologue sources are not reported. $0 is a file, unless srun runs
    # the lines on several nodes.
    (
        "trap 'hptune_status=$?; "
        '[ ${#BASH_SOURCE[@]} -gt "$hptune_depth" ] || '
        f'echo "{SETUP_FAILED}$(sed -n "${{LINENO}}p" "$0" 2> /dev/null || echo "$BASH_COMMAND")'
        " (status $hptune_status)\" >&2' ERR"
    ),
)
"""Shell lines that report each failing line after them; the job continues."""

_LOAD_MODULE = (
    "hptune_load() {",
    "  local status before=$LOADEDMODULES",
    '  module load "$1"; status=$?',
    '  case ":$LOADEDMODULES:" in *":$1:"* | *":$1/"*) return ;; esac',
    "  if [ $status = 0 ]; then",
    "    # An alias is listed by another name, and not every `module` keeps the list.",
    '    [ -z "${LOADEDMODULES+set}" ] || [ "$LOADEDMODULES" != "$before" ] && return',
    "  fi",
    f'  echo "{SETUP_FAILED}module load $1 (status $status, and it is not loaded)" >&2',
    "  [ $status = 0 ] || exit 1",
    "}",
)
"""Shell function that loads a module, and ends the job if that fails.

The status alone does not tell: some modules return one although they are loaded, and old releases
of Environment Modules return 0 in any case. LOADEDMODULES lists what is loaded.
"""

_UNSEEN_SECONDS = 30
"""How long a node may take to see a file that another machine wrote before."""

DEVICES = "HPTUNE_WORKER_DEVICES"
"""Environment variable of a worker: the GPUs that it may use; if unset, those that it finds."""

GPUS = "HPTUNE_WORKER_GPUS"
"""Environment variable with the number of GPUs that a worker's job asked for on its node."""

GANG = "HPTUNE_WORKER_GANG"
"""Environment variable with the gang of a worker: workers of one job have the same value."""

WHOLE_NODE = ("--overlap", "--mem=0", "--cpu-bind=none", "--export=ALL")
"""Options of an srun whose tasks use all that the job has on their nodes, and have its environment.

Other steps may use it too, such as another worker or the shell of salloc.
"""

_WITHOUT_EFFECT = ("log-directory", "extra", "job-extra", "env-extra", "header-skip")
"""Keys of dask-jobqueue's configuration that count beside what a job is made with; the last four
are former names."""

ON_ALL_NODES = (*WHOLE_NODE, "--wait=0", "--label")
"""Options of an srun whose tasks use the whole job."""

_APART = ("--no-kill", "--kill-on-bad-exit=0")
"""Options by which the other tasks continue when one ends, or when a node fails."""

_TOGETHER = ("--kill-on-bad-exit=1",)
"""Options by which they end: trials that need all of the nodes cannot run there any more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerCommand:
    """Command of a job: `python -m MODULE ADDRESS --name … --nthreads … ARGUMENTS`.

    Attributes:
        address: The address of the Dask scheduler, or what the module takes instead of it.
        module: The Python module, perhaps with a subcommand.
        arguments: Further arguments.
    """

    address: str
    module: str = "distributed.cli.dask_worker"
    arguments: tuple[str, ...] = ()


def job_of(worker_name: object) -> str | None:
    """Return the id of the job whose worker has this name in Dask; None if it is no job's.

    >>> job_of("slurm-12_0"), job_of("slurm-12_0.3"), job_of(3)
    ('12_0', '12_0', None)
    """
    name = str(worker_name)
    return name.removeprefix(_PREFIX).partition(".")[0] if name.startswith(_PREFIX) else None


def job_script(
    shape: Shape,
    worker: WorkerShape,
    command: WorkerCommand,
    *,
    job_name: str,
    logs: Path,
    ends_whole: bool = False,
) -> str:
    """Return the whole text of the script for one kind of job.

    It is an array of one job, so that `sbatch --array=0-9` submits ten of them. Python replaces
    the shell (`exec`), so that the worker receives Slurm's signals. In a job of several nodes,
    srun replaces the shell, and runs the rest of the script on each node.

    Args:
        shape: The kind of job.
        worker: What the job asks for.
        command: The command that it runs.
        job_name: The name of all such jobs.
        logs: Where their output goes, unless the shape says otherwise.
        ends_whole: Whether a job of several nodes ends when one of them or its worker fails.
    """
    directives = _directives(shape, worker, Path(shape.log_directory or logs))
    if shape.nodes > 1 and not ends_whole:
        directives.append("--no-kill")
    prologue = [*_prologue(shape, worker), *_worker_variables(shape, worker)]
    if "://" not in command.address:
        prologue.append(_ends_unless_seen(command.address))
    script = _rendered(
        shape, worker, command, job_name=job_name, directives=directives, prologue=prologue
    )
    how = _TOGETHER if ends_whole else _APART
    return script if shape.nodes == 1 else _on_all_nodes(script, shape.nodes, how)


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
    make = job_class()
    import dask

    # The output and the size of a job are ours, whatever dask-jobqueue's configuration says.
    ours = dict.fromkeys(f"jobqueue.slurm.{key}" for key in _WITHOUT_EFFECT)
    with dask.config.set(ours), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # on `project`, the former name of `account`
        job: Any = make(
            scheduler=shlex.quote(command.address),
            name=WORKER_NAME if shape.nodes == 1 else GANG_WORKER_NAME,
            job_name=job_name,
            queue=None if shape.partition == ANY_PARTITION else shape.partition,
            account=shape.account,
            walltime=shape.walltime,
            cores=worker.cpus,
            job_cpu=worker.cpus,
            processes=1,
            memory=f"{worker.for_trials_bytes}B",
            job_mem=f"{worker.memory_bytes // MEBIBYTE}M",
            job_directives_skip=skipped,
            job_extra_directives=directives,
            job_script_prologue=prologue,
            python=f"exec {_python(shape, worker)}",
            worker_command=command.module,
            worker_extra_args=[shlex.quote(argument) for argument in command.arguments],
            interface=shape.interface,
            local_directory=expanded(shape.scratch) if shape.scratch else None,
            death_timeout=shape.grace_seconds,
            shebang="#!/usr/bin/env bash",
        )
    script: str = job.job_script()
    return script


def _on_all_nodes(script: str, nodes: int, how: Sequence[str]) -> str:
    """Return the script with all commands of the shape run on each node."""
    lines = script.splitlines()
    start = next(i for i, line in enumerate(lines) if line and not line.startswith("#"))
    ours = [line for line in lines[start:] if line.startswith(f"export {_OWN_PREFIX}")]
    theirs = "\n".join(line for line in lines[start:] if line not in ours)
    tasks = f"--nodes={nodes} --ntasks={nodes} --ntasks-per-node=1"
    options = " ".join((*ON_ALL_NODES, *how))
    srun = f"exec srun {tasks} {options} bash -c {shlex.quote(theirs)}"
    return "\n".join([*lines[:start], NO_SRUN_OPTIONS, *ours, srun, ""])


def job_class(target: str = "slurm:SLURMJob") -> Any:
    """Return dask-jobqueue's class for jobs, MODULE:NAME; imported here because it loads Dask.

    Its scripts have the memory in MiB, rounded up: in dask-jobqueue's own form, which may lack
    5 GiB of a TiB, the last trial would not fit.
    """
    before = signal.getsignal(signal.SIGINT)
    module, _, name = target.partition(":")
    found = getattr(importlib.import_module(f"dask_jobqueue.{module}"), name)
    # The import installs a handler on which Ctrl-C ends the process with exit status 0.
    if signal.getsignal(signal.SIGINT) is not before:
        signal.signal(signal.SIGINT, before)
    memory = property(lambda job: f"{math.ceil(job.worker_memory / MEBIBYTE)}MiB")
    return type(found.__name__, (found,), {"worker_process_memory": memory})


def with_command(script: str, shape: Shape, worker: WorkerShape, command: str) -> str:
    """Return the script of the same job with another command for its Python.

    Args:
        script: The script that `job_script` returned for this shape and worker.
        shape: The kind of job.
        worker: What the job asks for.
        command: The arguments of `python`, as shell text.
    """
    before = script.rpartition("\nexec ")[0]
    return f"{before}\nexec {_python(shape, worker)} {command}\n"


def master_script(shape: Shape, lines: Sequence[str], *, job_name: str, log: Path) -> str:
    """Return the script of one job that Slurm can requeue any number of times.

    SIGUSR1 announces the end of its time, because SIGTERM means that it is cancelled.

    Args:
        shape: What the job asks for.
        lines: The shell lines that it runs; those that the shape's Python runs begin with `python`.
        job_name: Its name.
        log: The file that all of its runs write.
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
    nothing = WorkerCommand(address="none")
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
    commands = [re.sub(r"^python(?= )", lambda _: f"exec {python}", line) for line in lines]
    return "\n".join([before, *commands, ""])


def _directives(shape: Shape, worker: WorkerShape, logs: Path) -> list[str]:
    # Signals go to the batch script, which is the worker, or to the tasks of srun.
    recipient = "B:" if shape.nodes == 1 and not is_run_by_srun(shape) else ""
    lines = [
        f"--nodes={shape.nodes}",
        "--array=0",
        f"--output={_file_name(logs, '%x-%A_%a.log')}",
        # A requeued job appends to the same file.
        "--open-mode=append",
        f"--signal={recipient}TERM@{shape.notice_seconds}",
    ]
    if shape.nodes > 1:
        lines += [f"--ntasks={shape.nodes}", "--ntasks-per-node=1"]
    # In one directive, because sbatch obeys only the last one of its kind.
    others = [gres_of(directive) for directive in shape.directives]
    kind = f"{shape.gpu_type}:" if shape.gpu_type else ""
    gres = [f"gpu:{kind}{worker.gpus}"] if worker.gpus else []
    if gres := [*gres, *filter(None, others)]:
        lines.append(f"--gres={','.join(gres)}")
    if shape.qos:
        lines.append(f"--qos={shape.qos}")
    if shape.exclusive:
        lines.append("--exclusive")
    return [*lines, *(each for each, it in zip(shape.directives, others, strict=True) if not it)]


def _file_name(path: Path, pattern: str = "") -> str:
    """Return a path in a directive, with a file name that Slurm fills in.

    sbatch treats quotes and backslashes there as a shell does (but in old releases `#` begins a
    comment even between quotes), and replaces what begins with a `%`.
    """
    whole = "/".join(filter(None, (str(path).replace("%", "%%"), pattern)))
    plain = re.fullmatch(r"[^\s\"'#\\]*", whole)
    return whole if plain else '"' + re.sub(r"([\"#\\])", r"\\\1", whole) + '"'


def _prologue(shape: Shape, worker: WorkerShape) -> list[str]:
    lines = [*prepare_lines(shape), *(_LOAD_MODULE if shape.modules else ())]
    lines += [f"hptune_load {shlex.quote(module)}" for module in shape.modules]
    lines += [f"export {name}={expanded(value)}" for name, value in shape.environment]
    if shape.prologue:
        lines += [*_TRAP, *shape.prologue, "trap - ERR"]
    if not worker.gpus:
        # Without device cgroups, a job without GPUs would see those of other jobs.
        lines.append(f"export CUDA_VISIBLE_DEVICES= {DEVICES}=")
    return lines


def _worker_variables(shape: Shape, worker: WorkerShape) -> list[str]:
    """Return the lines that export what a worker needs to know of its job."""
    # From release 23.02 on, Slurm sets the end of the job itself. Older ones are asked, because the
    # node's clock may be wrong.
    asked = f"SLURM_TIME_FORMAT=%s squeue --noheader --job {_JOB} --format %e"
    lines = [
        f"export {ENDS_AT}=${{SLURM_JOB_END_TIME:-$({asked})}}",
        f"export {NOTICE}={shape.notice_seconds}",
    ]
    if worker.gpus:
        lines.append(f"export {GPUS}={worker.gpus}")
    if shape.nodes > 1:
        lines.append(f"export {GANG}={_JOB}")
    return lines


def _ends_unless_seen(file: str) -> str:
    """Return a shell line that ends the job if its node does not see a file."""
    word = shlex.quote(file)
    why = shlex.quote(
        f" does not see {file}; put studies into a directory that all nodes see (--study)"
    )
    return (
        f"for _ in {{1..{_UNSEEN_SECONDS}}}; do [ -e {word} ] && break; sleep 1; done; "
        f'[ -e {word} ] || {{ echo "hptune: node $SLURMD_NODENAME"{why} >&2; exit 1; }}'
    )


def _python(shape: Shape, worker: WorkerShape) -> str:
    # -P: a file in the job's directory must not hide a module of the same name.
    if shape.image:
        return python_command(shape, shape.image, has_gpus=worker.gpus > 0)
    python = f"{shlex.quote(shape.python or sys.executable)} -P"
    return f"{shape.launcher} {python}" if shape.launcher else python
