"""The job of a detached master: its whole script, and its resources."""

from __future__ import annotations

from pathlib import Path

import pytest

from commands import Commands
from hptune_jobqueue.config import parse_config
from hptune_jobqueue.errors import ConfigError, SubmissionError
from hptune_jobqueue.master import (
    MasterOrder,
    RequeueInquiry,
    RequeueOutcome,
    master_shape,
    submit_master,
)
from hptune_jobqueue.nodes import parse_sinfo
from hptune_jobqueue.script import master_script
from real_runs import wait_for

PARTITIONS = parse_sinfo(
    "gpu|up|1-00:00:00|8|64000|gpu:2|2|idle\ncpu*|up|infinite|8|64000|(null)|2|idle\n"
    "short|up|00:01:00|8|64000|(null)|2|idle"
)
TOP = 'partition = "gpu"\nwalltime = "1:00:00"\naccount = "mine"\nqos = "gpus"\n'

SCRIPT = """\
#!/usr/bin/env bash

#SBATCH -J hptune-a.master
#SBATCH -p cpu
#SBATCH -A mine
#SBATCH -n 1
#SBATCH --cpus-per-task=1
#SBATCH --mem=1907M
#SBATCH -t 7-00:00:00
#SBATCH --nodes=1
#SBATCH --output=/study/jobs/master.log
#SBATCH --open-mode=append
#SBATCH --requeue
#SBATCH --signal=B:USR1@120
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
hptune_load python
export CUDA_VISIBLE_DEVICES= HPTUNE_WORKER_DEVICES=
export HPTUNE_MASTER_NOTICE=120
cd /home/me || exit
exec /opt/python -P -m hptune resume /study
"""


def test_it_asks_for_little_and_for_as_long_as_it_may(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.executable", "/opt/python")
    config = parse_config(TOP + 'modules = ["python"]\nimage = "image.sif"')
    shape = master_shape(config, PARTITIONS)
    lines = ["cd /home/me || exit", "python -m hptune resume /study"]
    script = master_script(
        shape, lines, job_name="hptune-a.master", log=Path("/study/jobs/master.log")
    )
    assert script == SCRIPT


def test_its_log_may_lie_anywhere() -> None:
    shape = master_shape(parse_config(TOP), PARTITIONS)
    script = master_script(shape, [], job_name="a.master", log=Path('/my "10 %j" #1/master.log'))
    assert '\n#SBATCH --output="/my \\"10 %%j\\" \\#1/master.log"\n' in script


def test_where_the_site_chooses_partitions_it_names_none() -> None:
    shape = master_shape(parse_config(TOP.replace('"gpu"', '"*"')), PARTITIONS)
    script = master_script(shape, [], job_name="a.master", log=Path("/study/jobs/master.log"))
    assert "SBATCH -p" not in script
    assert "#SBATCH -t 7-00:00:00" in script


def test_what_is_said_of_it_counts() -> None:
    config = parse_config(f'{TOP}[master]\npartition = "gpu"\nqos = "long"\naccount = "other"')
    shape = master_shape(config, PARTITIONS)
    said = (shape.partition, shape.walltime, shape.qos, shape.account)
    assert said == ("gpu", "1-00:00:00", "long", "other")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            'partition = "gup"',
            r"\[master\]: there is no partition 'gup'; Slurm has cpu, gpu, short",
        ),
        ('partition = "short"', r"\[master\]: notice_seconds is 120, but a job ends after 60 s"),
        (
            'partition = "gpu"\nwalltime = "2-0"',
            r"\[master\]: walltime is 2-0, but partition gpu allows 1-00:00:00 at most",
        ),
    ],
)
def test_what_cannot_be_is_said(text: str, said: str) -> None:
    config = parse_config(f"{TOP}[master]\n{text}")
    with pytest.raises(ConfigError, match=said):
        master_shape(config, PARTITIONS)


def test_a_refusal_says_that_it_is_the_masters_job(commands: Commands, tmp_path: Path) -> None:
    commands.make("sinfo", "echo 'cpu*|up|infinite|8|64000|(null)|2|idle'")
    commands.make("squeue", "")
    commands.make("sbatch", "echo 'sbatch: error: Invalid qos specification' >&2; exit 1")
    config = parse_config('partition = "cpu"\nwalltime = "1:00:00"\n[master]\nqos = "lnog"')
    order = MasterOrder(config=config, study="a", directory=tmp_path / "jobs", lines=[])
    with pytest.raises(SubmissionError, match=r"the master's job \(\[master\] in .*Invalid qos"):
        submit_master(order)
    assert not order.directory.exists()


def test_only_what_makes_sense_for_it_can_be_said() -> None:
    with pytest.raises(ConfigError, match=r"\[master\]: unknown key 'gpus'"):
        parse_config(f"{TOP}[master]\ngpus = 1")
    with pytest.raises(ConfigError, match="begin it with"):
        parse_config(f"master = 1\n{TOP}")


JOB = {"SLURM_JOB_ID": "7", "SLURM_RESTART_COUNT": "1"}
SILENT = "sleep 0.1; echo 'squeue: error: Unable to contact slurm controller' >&2; exit 1"


@pytest.fixture
def squeue(commands: Commands, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a squeue that answers each call with the next line of the returned file.

    It waits for the file `go` beside it.
    """
    monkeypatch.setattr("hptune_jobqueue.master._PAUSE_SECONDS", 0.01)
    answers = tmp_path / "answers"
    commands.make(
        "squeue",
        f"until [ -e {tmp_path}/go ]; do sleep 0.02; done\n"
        f'line=$(head -n 1 {answers}); sed -i 1d {answers}; eval "$line"',
    )
    commands.make("scontrol", f'echo "$@" >> {tmp_path}/requeued')
    return answers


def outcome(squeue: Path, seconds: float = 60.0) -> RequeueOutcome:
    answer = asked(squeue, seconds).answer
    assert answer is not None
    return answer


def asked(squeue: Path, seconds: float = 60.0) -> RequeueInquiry:
    go = squeue.with_name("go")
    go.unlink(missing_ok=True)
    inquiry = RequeueInquiry(seconds, JOB)
    at_once = inquiry.answer
    assert at_once is None, "the loop continues meanwhile"
    go.touch()
    wait_for(lambda: inquiry.answer, "Slurm's answer")
    return inquiry


@pytest.mark.parametrize(
    ("said", "expected"),
    [("2 COMPLETING", RequeueOutcome.REQUEUED), ("1 COMPLETING", RequeueOutcome.ENDS)],
)
def test_a_slurm_that_is_silent_for_a_while_is_asked_again(
    squeue: Path, said: str, expected: RequeueOutcome
) -> None:
    squeue.write_text(f"{SILENT}\n{SILENT}\necho '{said}'\n")
    assert outcome(squeue) is expected
    assert not (squeue.parent / "requeued").exists()


def test_a_job_whose_end_is_only_near_is_requeued(squeue: Path) -> None:
    squeue.write_text("echo '1 RUNNING'\n")
    assert outcome(squeue) is RequeueOutcome.REQUEUED
    assert (squeue.parent / "requeued").read_text() == "requeue 7\n"


def test_a_job_that_slurm_refuses_to_requeue_ends_and_says_why(
    squeue: Path, commands: Commands
) -> None:
    refused = "echo 'Requested operation is presently disabled for job 7' >&2; exit 1"
    commands.make("scontrol", refused)
    squeue.write_text("echo '1 RUNNING'\n" * 2)
    inquiry = asked(squeue)
    assert inquiry.answer is RequeueOutcome.ENDS
    assert inquiry.refusal == (
        "Slurm refuses to requeue job 7: Requested operation is presently disabled for job 7"
    )
    # One that was cancelled, or is requeued already, cannot be requeued either.
    squeue.write_text("echo '1 RUNNING'\necho '2 COMPLETING'\n")
    inquiry = asked(squeue)
    assert (inquiry.answer, inquiry.refusal) == (RequeueOutcome.REQUEUED, "")


@pytest.mark.parametrize(
    "silence",
    [
        SILENT,
        "echo 'slurm_requeue error: Message send failure' >&2; exit 1",
        "echo 'slurm_requeue error: Protocol authentication error' >&2; exit 1",
        "echo 'slurm_requeue error: Rate limit exceeded, please retry momentarily' >&2; exit 1",
    ],
)
def test_a_requeue_that_nobody_hears_is_asked_for_again(
    squeue: Path, commands: Commands, silence: str
) -> None:
    commands.make("scontrol", silence)
    squeue.write_text("echo '1 RUNNING'\n" * 1000)
    assert outcome(squeue, seconds=1.5) is RequeueOutcome.UNKNOWN


@pytest.mark.parametrize("silence", [SILENT, "exec sleep 60"])
def test_nobody_knows_what_becomes_of_a_job_while_slurm_is_silent(
    squeue: Path, silence: str
) -> None:
    squeue.write_text(f"{silence}\n" * 1000)
    assert outcome(squeue, seconds=0.5) is RequeueOutcome.UNKNOWN
