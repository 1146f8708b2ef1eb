"""Job scripts as whole texts, and the meaning of squeue's answers."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import dask
import pytest
from dask.utils import parse_bytes

from hptune_jobqueue.commands import JobState, parse_squeue
from hptune_jobqueue.config import parse_config
from hptune_jobqueue.job_reports import Output
from hptune_jobqueue.nodes import NodeShape
from hptune_jobqueue.script import WorkerCommand, job_script
from hptune_jobqueue.sizing import Need, WorkerShape, size_worker

GIBIBYTE = 2**30

THREE_LINES = """\
#!/usr/bin/env bash

#SBATCH -J hptune-1a2b-workers
#SBATCH -p gpu
#SBATCH -A project
#SBATCH -n 1
#SBATCH --cpus-per-task=8
#SBATCH --mem=65536M
#SBATCH -t 04:00:00
#SBATCH --nodes=1
#SBATCH --array=0
#SBATCH --output=/study/jobs/%x-%A_%a.log
#SBATCH --open-mode=append
#SBATCH --signal=B:TERM@120
#SBATCH --gres=gpu:2
export HPTUNE_WORKER_ENDS_AT=${SLURM_JOB_END_TIME:-$(SLURM_TIME_FORMAT=%s squeue --noheader --job ${SLURM_ARRAY_JOB_ID}_${SLURM_ARRAY_TASK_ID} --format %e)}
export HPTUNE_WORKER_NOTICE=120
export HPTUNE_WORKER_GPUS=2
exec /opt/python/bin/python -P -m distributed.cli.dask_worker tcp://login:8786 --name slurm-${SLURM_ARRAY_JOB_ID}_${SLURM_ARRAY_TASK_ID} --nthreads 8 --memory-limit 64512MiB --nanny --death-timeout 600
"""  # noqa: E501 - a golden file has the lines that it has

EVERYTHING = """\
#!/usr/bin/env bash

#SBATCH -J hptune-1a2b-small
#SBATCH -p cpu,long
#SBATCH -n 1
#SBATCH --cpus-per-task=2
#SBATCH -t 1-00:00:00
#SBATCH --nodes=1
#SBATCH --array=0
#SBATCH --output=/logs/%x-%A_%a.log
#SBATCH --open-mode=append
#SBATCH --signal=B:TERM@300
#SBATCH --gres=nvme:1
#SBATCH --qos=low
#SBATCH --exclusive
#SBATCH --constraint=skylake
#SBATCH --time-min=60
unset PYTHONPATH PYTHONHOME
export PYTHONNOUSERSITE=1
mkdir -p /scratch
hptune_load() {
  local status before=$LOADEDMODULES
  module load "$1"; status=$?
  case ":$LOADEDMODULES:" in *":$1:"* | *":$1/"*) return ;; esac
  if [ $status = 0 ]; then
    # An alias is listed by another name, and not every `module` keeps the list.
    [ -z "${LOADEDMODULES+set}" ] || [ "$LOADEDMODULES" != "$before" ] && return
  fi
  echo "hptune: setup failed: module load $1 (status $status, and it is not loaded)" >&2
  [ $status = 0 ] || exit 1
}
hptune_load gcc/12
hptune_load python/3.11
export DATA='/data/my set'
hptune_depth=${#BASH_SOURCE[@]}
trap 'hptune_status=$?; [ ${#BASH_SOURCE[@]} -gt "$hptune_depth" ] || echo "hptune: setup failed: $(sed -n "${LINENO}p" "$0" 2> /dev/null || echo "$BASH_COMMAND") (status $hptune_status)" >&2' ERR
ulimit -n 65536
trap - ERR
export CUDA_VISIBLE_DEVICES= HPTUNE_WORKER_DEVICES=
export HPTUNE_WORKER_ENDS_AT=${SLURM_JOB_END_TIME:-$(SLURM_TIME_FORMAT=%s squeue --noheader --job ${SLURM_ARRAY_JOB_ID}_${SLURM_ARRAY_TASK_ID} --format %e)}
export HPTUNE_WORKER_NOTICE=300
exec apptainer exec --bind /data --bind /scratch --bind "${TMPDIR:-/tmp}" '/images/my tf.sif' python3 -P -m hptune worker tcp://login:8786 --name slurm-${SLURM_ARRAY_JOB_ID}_${SLURM_ARRAY_TASK_ID} --nthreads 2 --memory-limit 0MiB --death-timeout 600 --local-directory /scratch --quiet --interface ib0
"""  # noqa: E501 - a golden file has the lines that it has


FOUR_NODES = """\
#!/usr/bin/env bash

#SBATCH -J hptune-1a2b-workers
#SBATCH -p gpu
#SBATCH --cpus-per-task=8
#SBATCH --mem=65536M
#SBATCH -t 04:00:00
#SBATCH --nodes=4
#SBATCH --array=0
#SBATCH --output=/study/jobs/%x-%A_%a.log
#SBATCH --open-mode=append
#SBATCH --signal=TERM@300
#SBATCH --ntasks=4
#SBATCH --ntasks-per-node=1
#SBATCH --gres=gpu:2
#SBATCH --no-kill
unset ${!SRUN_*}
export HPTUNE_WORKER_ENDS_AT=${SLURM_JOB_END_TIME:-$(SLURM_TIME_FORMAT=%s squeue --noheader --job ${SLURM_ARRAY_JOB_ID}_${SLURM_ARRAY_TASK_ID} --format %e)}
export HPTUNE_WORKER_NOTICE=300
export HPTUNE_WORKER_GPUS=2
export HPTUNE_WORKER_GANG=${SLURM_ARRAY_JOB_ID}_${SLURM_ARRAY_TASK_ID}
exec srun --nodes=4 --ntasks=4 --ntasks-per-node=1 --overlap --mem=0 --cpu-bind=none --export=ALL --wait=0 --label --no-kill --kill-on-bad-exit=0 bash -c 'hptune_load() {
  local status before=$LOADEDMODULES
  module load "$1"; status=$?
  case ":$LOADEDMODULES:" in *":$1:"* | *":$1/"*) return ;; esac
  if [ $status = 0 ]; then
    # An alias is listed by another name, and not every `module` keeps the list.
    [ -z "${LOADEDMODULES+set}" ] || [ "$LOADEDMODULES" != "$before" ] && return
  fi
  echo "hptune: setup failed: module load $1 (status $status, and it is not loaded)" >&2
  [ $status = 0 ] || exit 1
}
hptune_load cuda/12
export DATA='"'"'/my data'"'"'
for _ in {1..30}; do [ -e /study/jobs/scheduler.json ] && break; sleep 1; done; [ -e /study/jobs/scheduler.json ] || { echo "hptune: node $SLURMD_NODENAME"'"'"' does not see /study/jobs/scheduler.json; put studies into a directory that all nodes see (--study)'"'"' >&2; exit 1; }
exec /opt/python/bin/python -P -m hptune worker /study/jobs/scheduler.json --name slurm-${SLURM_ARRAY_JOB_ID}_${SLURM_ARRAY_TASK_ID}.${SLURM_PROCID} --nthreads 8 --memory-limit 64512MiB --death-timeout 600'
"""  # noqa: E501 - a golden file has the lines that it has


def test_the_script_of_three_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.executable", "/opt/python/bin/python")
    text = 'partition = "gpu"\nwalltime = "04:00:00"\naccount = "project"\n'
    script = job_script(
        parse_config(text).shapes[0],
        WorkerShape(cpus=8, gpus=2, memory_bytes=64 * GIBIBYTE, trials=2),
        WorkerCommand(address="tcp://login:8786"),
        job_name="hptune-1a2b-workers",
        logs=Path("/study/jobs"),
    )
    assert script == THREE_LINES


def test_the_script_of_all_that_can_be_said() -> None:
    config = parse_config(
        """
        name = "small"
        partition = "cpu,long"
        walltime = "1-00:00:00"
        qos = "low"
        exclusive = true
        memory = 0
        directives = ["#SBATCH --constraint=skylake", "--gres nvme:1", "--time-min=60"]
        modules = ["gcc/12", "python/3.11"]
        environment = { DATA = "/data/my set" }
        prologue = ["ulimit -n 65536"]
        image = "/images/my tf.sif"
        mounts = ["/data"]
        interface = "ib0"
        scratch = "/scratch"
        log_directory = "/logs"
        notice_seconds = 300
        """
    )
    script = job_script(
        config.shapes[0],
        WorkerShape(cpus=2, gpus=0, memory_bytes=0, trials=2),
        WorkerCommand(address="tcp://login:8786", module="hptune worker", arguments=("--quiet",)),
        job_name="hptune-1a2b-small",
        logs=Path("/study/jobs"),
    )
    assert script == EVERYTHING


def test_a_job_of_several_nodes_runs_what_was_said_on_each(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.executable", "/opt/python/bin/python")
    text = """
        partition = "gpu"
        walltime = "04:00:00"
        nodes = 4
        modules = ["cuda/12"]
        environment = { DATA = "/my data" }
        notice_seconds = 300
    """
    script = job_script(
        parse_config(text).shapes[0],
        WorkerShape(cpus=8, gpus=2, memory_bytes=64 * GIBIBYTE, trials=2),
        WorkerCommand(address="/study/jobs/scheduler.json", module="hptune worker"),
        job_name="hptune-1a2b-workers",
        logs=Path("/study/jobs"),
    )
    assert script == FOUR_NODES


def test_a_configuration_of_dask_jobqueue_changes_neither_size_nor_output(tmp_path: Path) -> None:
    (shape,) = parse_config('partition = "gpu"\nwalltime = "04:00:00"').shapes
    site: dict[str, object] = {"log-directory": str(tmp_path / "site"), "job-cpu": 7}
    site |= {"account": "site", "interface": "ib9", "local-directory": "/site"}
    site |= dict.fromkeys(("python", "queue", "walltime", "job-mem", "shebang"), "no-effect")
    lists = ("job-script-prologue", "job-extra-directives", "worker-extra-args")
    former = ("extra", "job-extra", "env-extra")  # on which dask-jobqueue warns
    site |= {name: ["no-effect"] for name in (*lists, *former)}
    site |= {"header-skip": ["--mem"], "project": "former"}
    with dask.config.set({f"jobqueue.slurm.{key}": value for key, value in site.items()}):
        script = job_script(
            shape, WorkerShape(4, 0, 2**30, 4), WorkerCommand(address="f"), job_name="a",
            logs=Path("/logs"),
        )  # fmt: skip
    assert "#SBATCH --cpus-per-task=4\n" in script
    assert str(tmp_path) not in script
    assert not list(tmp_path.iterdir()), "dask-jobqueue makes the folder"
    assert "#SBATCH -A site\n" in script
    assert "--local-directory /site --interface ib9\n" in script
    assert "no-effect" not in script
    assert "#SBATCH --mem=1024M\n" in script


def test_a_job_asks_for_memory_once() -> None:
    text = 'partition = "gpu"\nwalltime = "04:00:00"\ndirectives = ["--mem=8G"]'
    (shape,) = parse_config(text).shapes
    worker = size_worker(NodeShape(8, 64 * GIBIBYTE, (("", 2),)), Need(gpus=1), shape)
    script = job_script(shape, worker, WorkerCommand(address="f"), job_name="a", logs=Path("/logs"))
    assert [line for line in script.splitlines() if "#SBATCH --mem" in line] == ["#SBATCH --mem=8G"]


@pytest.mark.parametrize(("trials", "gigabytes"), [(1, 0.6), (2, 3), (1, 995), (12, 100)])
def test_a_worker_is_granted_the_memory_of_its_trials(trials: int, gigabytes: float) -> None:
    (shape,) = parse_config('partition = "gpu"\nwalltime = "04:00:00"').shapes
    need = Need(memory_bytes=int(gigabytes * 10**9))
    worker = size_worker(NodeShape(trials, 4 * 10**12), need, shape)
    script = job_script(shape, worker, WorkerCommand(address="f"), job_name="a", logs=Path("/logs"))
    granted = parse_bytes(script.partition(" --memory-limit ")[2].split()[0])
    assert worker.trials * need.memory_bytes <= granted <= worker.memory_bytes


def test_gpus_of_a_type_a_launcher_and_another_python() -> None:
    config = parse_config(
        """
        partition = "gpu"
        walltime = "30"
        gpu_type = "a100"
        launcher = "srun --ntasks=1 nice"
        python = "/env/bin/python"
        """
    )
    script = job_script(
        config.shapes[0],
        WorkerShape(cpus=2, gpus=1, memory_bytes=GIBIBYTE, trials=1),
        WorkerCommand(address="tcp://login:8786"),
        job_name="j",
        logs=Path("/logs"),
    )
    assert "#SBATCH --gres=gpu:a100:1\n" in script
    assert "\nexec srun --ntasks=1 nice /env/bin/python -P -m distributed" in script


def run_by_bash(
    tmp_path: Path,
    toml: str,
    *,
    nodes: int = 1,
    module: str = "{ local inner; false; return 3; }",
    address: str = "tcp://login:8786",
) -> tuple[int, str]:
    """Run the script of a job; returns its status and what it writes into the job's log."""
    text = f'partition = "gpu"\nwalltime = "30"\nnodes = {nodes}\npython = "echo"\n{toml}'
    script = job_script(
        parse_config(text).shapes[0],
        WorkerShape(cpus=2, gpus=0, memory_bytes=GIBIBYTE, trials=1),
        WorkerCommand(address=address),
        job_name="j",
        logs=Path("/logs"),
    )
    file = tmp_path / "script"
    file.write_text(script)
    # Environment modules are a function of the shell; srun is one here.
    srun = '() { while [ "$1" != bash ]; do shift; done; "$@"; }'
    functions = {
        "BASH_FUNC_module%%": f"() {module}",
        "BASH_FUNC_srun%%": srun,
        "BASH_FUNC_sleep%%": "() { echo waits >> slept; }",
    }
    file.write_text(script.replace("exec srun", "srun"))
    done = subprocess.run(
        ["bash", str(file)],
        env={**os.environ, **functions, "SLURM_JOB_END_TIME": "1", "SLURMD_NODENAME": "n1"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stderr


@pytest.mark.parametrize("nodes", [1, 2])
@pytest.mark.parametrize(
    ("value", "seen"),
    [
        ("$TMPDIR/x", "/node's tmp/x"),
        ("${TMPDIR}_x", "/node's tmp_x"),
        ("/opt:$NOT_THERE", "/opt:"),
        ('5$ `id` $(id) \\ " $TMPDIR', "5$ `id` $(id) \\ \" /node's tmp"),
        ('"it\'s 5$"', '"it\'s 5$"'),
    ],
)
def test_variables_in_the_environment_of_a_job_are_those_of_its_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: str, seen: str, nodes: int
) -> None:
    monkeypatch.setenv("TMPDIR", "/node's tmp")
    toml = f"environment = {{ X = '''{value}''' }}\nprologue = ['printenv X >&2']"
    assert run_by_bash(tmp_path, toml, nodes=nodes) == (0, f"{seen}\n")


def test_a_job_ends_whose_node_lacks_the_variable_of_a_path(tmp_path: Path) -> None:
    code, said = run_by_bash(tmp_path, 'environment = { X = "$NOT_THERE/x" }')
    assert code != 0
    assert "NOT_THERE: parameter null or not set" in said


@pytest.mark.parametrize("nodes", [1, 2])
def test_a_job_whose_node_does_not_see_the_study_ends_and_says_so(
    tmp_path: Path, nodes: int
) -> None:
    file = tmp_path / "the study" / "scheduler.json"
    said = f"hptune: node n1 does not see {file}; put studies into a directory that all nodes see"
    assert run_by_bash(tmp_path, "", nodes=nodes, address=str(file)) == (
        1,
        f"{said} (--study)\n",
    )
    assert (tmp_path / "slept").read_text().count("waits") == 30
    file.parent.mkdir()
    file.touch()
    assert run_by_bash(tmp_path, "", nodes=nodes, address=str(file)) == (0, "")


@pytest.mark.parametrize("nodes", [1, 2])
def test_a_job_whose_module_cannot_be_loaded_ends_and_says_so(tmp_path: Path, nodes: int) -> None:
    status, said = run_by_bash(tmp_path, "modules = ['cuda/99']", nodes=nodes)
    line = "hptune: setup failed: module load cuda/99 (status 3, and it is not loaded)\n"
    assert (status, said) == (1, line)


@pytest.mark.parametrize(
    "module",
    [
        "{ LOADEDMODULES=gcc/12:cuda/12.4; return 3; }",  # it warns, and is loaded
        "{ LOADEDMODULES=gcc/12:cuda; return 3; }",
        "{ LOADEDMODULES=nvidia/550; return 0; }",  # an alias
        "{ return 0; }",  # one that keeps no list
    ],
)
def test_a_module_that_is_loaded_is_no_failure(
    tmp_path: Path, module: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("LOADEDMODULES", raising=False)
    assert run_by_bash(tmp_path, "modules = ['cuda']", module=module) == (0, "")


def test_a_module_that_is_missing_is_told_although_the_status_is_0(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in Environment Modules 3."""
    monkeypatch.setenv("LOADEDMODULES", "gcc/12")
    status, said = run_by_bash(tmp_path, "modules = ['cuda']", module="{ return 0; }")
    line = "hptune: setup failed: module load cuda (status 0, and it is not loaded)\n"
    assert (status, said) == (0, line)


def test_a_line_of_the_prologue_that_fails_is_reported_and_the_job_continues(
    tmp_path: Path,
) -> None:
    (tmp_path / "sourced").write_text("false\ntrue\n")
    lines = ["module load cuda/99", "[ -e /nowhere ] && true", f"source {tmp_path}/sourced"]
    status, said = run_by_bash(tmp_path, f"prologue = {lines!r}")
    assert (status, said) == (0, "hptune: setup failed: module load cuda/99 (status 3)\n")
    output = Output(tmp_path, f"0: {said}joined\n")
    assert output.setup_failures == ["hptune: setup failed: module load cuda/99 (status 3)"]
    status, said = run_by_bash(tmp_path, "prologue = ['ls /nowhere']", nodes=2)
    assert (status, said.splitlines()[-1]) == (0, "hptune: setup failed: ls /nowhere (status 2)")


SQUEUE = """\
5_0|hptune-x|PENDING|Resources|gpu||1795275307|1795271707|1795271700
5_1|hptune-x|RUNNING|None|gpu|n1|1795275307|1795271707|1795271700
5_2|hptune-x|COMPLETING|None|gpu|n1|NONE|N/A|1795271700
6_0|hptune-x|TIMEOUT|TimeLimit|gpu|n2|1795275009|1795271409|1795271700
7_0|hptune-x|PENDING|PartitionTimeLimit|gpu||N/A|N/A|N/A
8_0|hptune-x|PENDING|launch failed requeued held|gpu||N/A|N/A|N/A
9_0|hptune-x|PENDING|PartitionInactive|gpu||N/A|N/A|N/A
slurm_load_jobs error: something else
"""


def test_squeue_is_understood() -> None:
    jobs = {job.id: job for job in parse_squeue(SQUEUE)}
    assert [job.state for job in jobs.values()] == [
        JobState.PENDING,
        JobState.RUNNING,
        JobState.ENDING,
        JobState.OVER,
        JobState.PENDING,
        JobState.PENDING,
        JobState.PENDING,
    ]
    assert jobs["5_0"].reason == "Resources"
    assert (jobs["5_0"].submitted_at, jobs["7_0"].submitted_at) == (1795271700.0, None)
    assert (jobs["5_1"].reason, jobs["5_1"].node, jobs["5_1"].ends_at) == ("", "n1", 1795275307.0)
    assert jobs["6_0"].slurm_state == "TIMEOUT"
    assert [job.id for job in jobs.values() if job.is_hopeless] == ["7_0"]
    assert [job.id for job in jobs.values() if job.is_held] == ["8_0"]


@pytest.mark.parametrize(
    ("word", "state"),
    [
        ("STOPPED", JobState.RUNNING),
        ("RESIZING", JobState.RUNNING),
        ("REQUEUE_FED", JobState.PENDING),
        ("RESV_DEL_HOLD", JobState.PENDING),
        ("OUT_OF_MEMORY", JobState.OVER),
    ],
)
def test_a_job_that_holds_its_place_or_can_start_again_is_not_over(
    word: str, state: JobState
) -> None:
    (job,) = parse_squeue(f"5_1|hptune-x|{word}|None|gpu|n1|1795275307|1795271707|1795271700")
    assert job.state is state


def test_ctrl_c_means_what_it_meant_before() -> None:
    script = """
import signal
from pathlib import Path
from hptune_jobqueue import script, sizing, config
shape = config.Shape(name="a", partition="b", walltime="1")
worker = sizing.WorkerShape(1, 0, 0, 1)
command = script.WorkerCommand(address="tcp://a:1")
script.job_script(shape, worker, command, job_name="c", logs=Path("/d"))
assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
"""
    done = subprocess.run(
        ["env", "--default-signal=INT", sys.executable, "-c", script], check=False
    )
    assert done.returncode == 0


@pytest.mark.parametrize(
    ("scratch", "said"),
    [("/my disk", "'/my disk'"), ("$TMPDIR/a b", '"${TMPDIR:?}/a b"'), ("/a;b", "'/a;b'")],
)
@pytest.mark.parametrize("image", ["", 'image = "/a.sif"'])
def test_a_scratch_directory_is_one_word_of_the_shell(scratch: str, said: str, image: str) -> None:
    lines = f'partition = "p"\nwalltime = "1:00:00"\nscratch = "{scratch}"\n{image}'
    worker, command = WorkerShape(1, 0, 0, 1), WorkerCommand(address="tcp://login:8786")
    shape = parse_config(lines).shapes[0]
    script = job_script(shape, worker, command, job_name="a", logs=Path("/logs"))
    assert f"--local-directory {said}\n" in script
    assert (f"mkdir -p {said}\n" in script, f" --bind {said} " in script) == (bool(image),) * 2
