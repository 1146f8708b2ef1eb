"""Detached masters whose jobs wait in Slurm: what the commands say of their studies."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from commands import Commands
from fake_study import GOALS, trial
from hptune.clusters.jobs import jobs_name
from hptune.clusters.slurm_jobs import SlurmWorkers
from hptune.clusters.slurm_master import Masters, handover
from hptune.core.messages import StudyOpened, UserRequested
from hptune.core.study_config import StudyConfig
from hptune.core.user_requests import UserAction
from hptune.reporting.html.folder import Folder, FolderPage
from hptune.reporting.html.report import head_lines
from hptune.storage.lease import STALE_SECONDS
from hptune.study.study import Study, listed
from hptune_jobqueue.commands import Job, JobState
from hptune_jobqueue.job_reports import ShownJobs, write_jobs
from hptune_jobqueue.script import MASTER_NOTICE
from in_process import InProcess
from real_runs import wait_for
from stored_study import stored, typical

REASON = "Slurm starts the master's job 7 again, and it continues the study by itself"
HANDED_OVER = {"finish_reason": "handed over", "reason": REASON}


def shown(commands: Commands, study: Path, state: str = "") -> None:
    """Have squeue show the job of the study's master in a state, or no job."""
    line = f"7|{jobs_name(study)}.master|{state}|BeginTime|main||N/A|N/A|N/A" if state else ""
    commands.make("squeue", f"echo '{line}'")
    commands.make("scancel", f"echo $* >> {commands.folder}/cancelled")


def detached(cli: InProcess) -> Path:
    jobs = cli.study() / "jobs"
    jobs.mkdir(parents=True)
    (jobs / "master.sbatch").touch()
    return cli.study()


def handed_over(cli: InProcess) -> Path:
    study = detached(cli)
    typical(study, ended=HANDED_OVER)
    return study


def state_in(status: str) -> str:
    return status.partition("state    ")[2].partition("\n")[0]


STOPPED = {"finish_reason": "interrupted", "reason": "stopped by ada"}


def in_list(cli: InProcess) -> str:
    (study,) = json.loads(cli("list", ".", "--json").out)["studies"]
    return str(study["state"])


def in_status(cli: InProcess) -> str:
    return str(json.loads(cli("status", "study", "--json").out)["state"])


def in_page_of_folder(cli: InProcess) -> str:
    (row,) = json.loads(folder_page_of(cli.study()).state({}))["rows"]
    return str(row["state"])


def folder_page_of(study: Path) -> FolderPage:
    masters = Masters()
    folder = Folder(
        str(study.parent),
        lambda: [study],
        stamp=lambda _: "the ledger stays as it is",
        listed=lambda path: listed(path, masters.job_of),
        facts=lambda _: {},
        page=Mock(),
    )
    return FolderPage(folder)


@pytest.mark.parametrize("look", [in_list, in_status, in_page_of_folder])
@pytest.mark.parametrize(
    ("ended", "slurm_shows", "state"),
    [
        (HANDED_OVER, "PENDING", "queued"),
        (HANDED_OVER, "RUNNING", "queued"),  # it reads the model now
        (HANDED_OVER, "", "master gone"),
        (STOPPED, "PENDING", "queued"),  # after `hptune resume --detach`
        (STOPPED, "", "stopped"),
        (None, "PENDING", "queued"),  # after its node failed
        (None, "RUNNING", "queued"),  # and Slurm has started it again
        (None, "COMPLETING", "queued"),  # or is about to put it into the queue
        (None, "", "master gone"),
        (HANDED_OVER, None, "queued"),
        (STOPPED, None, "stopped"),
    ],
)
def test_every_look_has_what_slurm_shows_of_the_master(
    cli: InProcess,
    commands: Commands,
    look: Callable[[InProcess], str],
    *,
    ended: Mapping[str, str] | None,
    slurm_shows: str | None,
    state: str,
) -> None:
    typical(detached(cli), ended=ended)
    if slurm_shows is None:
        commands.make("squeue", "exit 1")
    else:
        shown(commands, cli.study(), slurm_shows)
    assert look(cli) == state


def in_python(cli: InProcess) -> str:
    return str(Study(cli.study()).view().state)


def in_report(cli: InProcess) -> str:
    assert cli("report", "study", "--format", "html", "-o", "page.html").code == 0
    page = (cli.directory / "page.html").read_text()
    return "queued" if " · queued: the master" in page else page


@pytest.mark.parametrize("look", [in_list, in_status, in_page_of_folder, in_python, in_report])
@pytest.mark.parametrize("slurm_shows", ["PENDING", "RUNNING", None])
def test_a_job_that_has_yet_to_write_continues_the_study(
    cli: InProcess, commands: Commands, look: Callable[[InProcess], str], slurm_shows: str | None
) -> None:
    """As after `hptune resume --detach`, until the master has the lock."""
    typical(detached(cli), ended=STOPPED, submitted=True)
    if slurm_shows is None:
        commands.make("squeue", "exit 1")
    else:
        shown(commands, cli.study(), slurm_shows)
    assert look(cli) == "queued"


def test_a_job_that_was_cancelled_before_it_began_is_waited_for_no_more(
    cli: InProcess, commands: Commands
) -> None:
    done = {"finish_reason": "done", "reason": ""}
    stored(detached(cli), ended=done, submitted=True)
    shown(commands, cli.study(), "PENDING")
    assert in_python(cli) == "queued"
    assert cli("stop", "study").code == 0
    assert in_python(cli) == "done", "as it was"


@pytest.mark.parametrize(
    ("is_resumed", "said"),
    [
        (False, "; paused by ada (hptune pause): no trial starts until hptune resume "),
        (True, "; nothing to do"),  # the next master is a new job, which resumes it
    ],
)
def test_a_pause_lasts_while_the_same_job_waits_again(
    cli: InProcess, commands: Commands, *, is_resumed: bool, said: str
) -> None:
    opened = StudyOpened(1000.0, StudyConfig(trials=10, goals=GOALS, seed=1))
    pause = UserRequested(1001.0, "r", UserAction.PAUSE, "ada (hptune pause)")
    stored(
        detached(cli),
        [trial(0, value=0.5)],
        events=[opened, pause],
        ended=HANDED_OVER,
        submitted=is_resumed,
    )
    shown(commands, cli.study(), "PENDING")
    state = f"queued: {REASON}{said}"
    assert state_in(cli("status", "study").out).startswith(state)
    assert head_lines(Study(cli.study()).view(), 0.0)[2].startswith(state)
    paused_by = json.loads(cli("status", "study", "--json").out)["paused_by"]
    assert paused_by == (None if is_resumed else "ada (hptune pause)")


def test_a_study_is_listed_as_soon_as_its_master_is_submitted(
    cli: InProcess, commands: Commands
) -> None:
    detached(cli)
    shown(commands, cli.study(), "PENDING")
    assert in_list(cli) == "starting"
    assert in_page_of_folder(cli) == "starting"
    shown(commands, cli.study())
    assert in_list(cli) == "unreadable"
    assert "if it is gone, run the same `hptune run` again" in cli("list", ".").out


def test_a_study_that_is_to_have_more_trials_waits_for_its_master(
    cli: InProcess, commands: Commands
) -> None:
    """As after `hptune resume --trials 20 --detach` of a study that is done."""
    done = {"finish_reason": "done", "reason": ""}
    stored(detached(cli), [trial(number, value=0.5) for number in range(10)], ended=done)
    shown(commands, cli.study(), "PENDING")
    assert [in_list(cli), in_status(cli)] == ["queued"] * 2
    shown(commands, cli.study())
    assert [in_list(cli), in_status(cli)] == ["done"] * 2


@pytest.mark.parametrize(
    ("ended", "slurm_shows", "submitted", "code"),
    [
        ("none yet", "PENDING", False, 4),
        ("none yet", "RUNNING", False, 4),  # it reads the model now
        ("none yet", None, False, 4),
        ("none yet", "", False, 2),
        (STOPPED, "PENDING", True, 4),  # after `hptune resume --detach`
        (STOPPED, "PENDING", False, 4),
        (STOPPED, "RUNNING", True, 4),
        (STOPPED, "RUNNING", False, 0),  # it has ended, and its job ends
        (STOPPED, "", True, 0),
        (STOPPED, None, True, 4),
        (STOPPED, None, False, 0),  # also of a copied study, whose script may be its newest file
        (None, "RUNNING", False, 4),  # started again after its node failed
        (None, "", False, 0),
    ],
)
def test_wait_waits_for_a_master_in_the_queue(
    cli: InProcess,
    commands: Commands,
    *,
    ended: Any,
    slurm_shows: str | None,
    submitted: bool,
    code: int,
) -> None:
    study = detached(cli)
    if slurm_shows is None:
        commands.make("squeue", "exit 1")
    else:
        shown(commands, study, slurm_shows)
    if ended != "none yet":
        typical(study, ended=ended, submitted=submitted)
        (study / "jobs" / "master.sbatch").touch()
    assert cli("wait", study, "--timeout", "0.1s").code == code


def test_slurm_is_asked_once_for_all_studies(cli: InProcess, commands: Commands) -> None:
    for name in ("one", "two", "three"):
        study = cli.directory / "studies" / name
        (study / "jobs").mkdir(parents=True)
        (study / "jobs" / "master.sbatch").touch()
        typical(study, ended=HANDED_OVER)
    commands.make("squeue", f"echo asked >> {commands.folder}/asked")
    assert cli("list").out.count("master gone") == 3
    assert (commands.folder / "asked").read_text() == "asked\n"


@pytest.mark.parametrize("look", [in_list, in_status])
def test_a_look_does_not_wait_for_a_slurm_that_hangs(
    cli: InProcess,
    commands: Commands,
    look: Callable[[InProcess], str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("hptune.clusters.slurm_master._PATIENCE_SECONDS", 0.2)
    handed_over(cli)
    commands.make("squeue", "exec sleep 20")
    began = time.monotonic()
    assert look(cli) == "queued"
    assert time.monotonic() - began < 20


def test_an_open_page_sees_that_a_waiting_master_was_cancelled(
    cli: InProcess, commands: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hptune.clusters.slurm_master._SELDOM_SECONDS", 0.0)
    monkeypatch.setattr("hptune.reporting.html.folder._SECONDS", 0.0)
    study = handed_over(cli)
    shown(commands, study, "PENDING")
    page = folder_page_of(study)
    assert [row["state"] for row in json.loads(page.state({}))["rows"]] == ["queued"]
    shown(commands, study)
    wait_for(
        lambda: json.loads(page.state({}))["rows"][0]["state"] == "master gone", "what Slurm shows"
    )


def test_slurm_is_asked_at_once_for_a_master_that_was_just_submitted(
    cli: InProcess, commands: Commands
) -> None:
    study = detached(cli)
    typical(study, ended=STOPPED)
    shown(commands, study)
    masters = Masters()

    def states() -> list[str]:
        view = listed(study, masters.job_of).view
        return [] if view is None else [str(view.state)]

    assert states() == ["stopped"]
    shown(commands, study, "PENDING")
    assert states() == ["stopped"], "Slurm is asked seldom"
    later = time.time() + 1.0
    os.utime(study / "jobs" / "master.sbatch", (later, later))  # `hptune resume --detach` writes it
    assert states() == ["queued"]


def test_slurm_is_not_asked_for_the_master_of_another_user(
    cli: InProcess, commands: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A squeue shows nobody else's jobs, which says nothing of them."""
    study = handed_over(cli)
    shown(commands, study)
    monkeypatch.setattr("os.getuid", lambda: study.stat().st_uid + 1)
    assert in_list(cli) == "queued"


def test_a_study_whose_master_is_requeued_needs_nothing(cli: InProcess, commands: Commands) -> None:
    study = handed_over(cli)
    shown(commands, study, "PENDING")
    status = cli("status", "study").out
    assert state_in(status) == f"queued: {REASON}; nothing to do"
    assert "trial 5 continues when that job runs" in status
    assert "hptune resume" not in status
    assert "The master is Slurm job 7 (pending in main: BeginTime)" in status
    assert json.loads(cli("status", "study", "--json").out)["state"] == "queued"
    (_, row) = cli("list", ".").out.splitlines()
    assert "queued" in row
    assert f"queued: {REASON}; nothing to do" in head_lines(Study(study).view(), 0.0)


def test_a_study_whose_resumed_master_waits_needs_nothing(
    cli: InProcess, commands: Commands
) -> None:
    """As after `hptune resume --detach`."""
    study = detached(cli)
    typical(study)
    shown(commands, study, "PENDING")
    waits = "the master's job waits in Slurm, and it continues the study by itself"
    assert state_in(cli("status", "study").out) == f"queued: {waits}; nothing to do"


def test_a_master_whose_requeued_job_is_gone_is_gone(cli: InProcess, commands: Commands) -> None:
    study = handed_over(cli)
    shown(commands, study)
    state = state_in(cli("status", "study").out)
    assert state.startswith("not running: the master is gone")


def test_a_second_master_is_refused_while_a_job_waits_to_be_it(
    cli: InProcess, commands: Commands
) -> None:
    study = handed_over(cli)
    shown(commands, study, "PENDING")
    ended = cli("resume", "study")
    said = " ".join(ended.err.split())
    assert ended.code == 1
    assert (
        "is Slurm job 7 (pending in main: BeginTime), which continues the study by itself" in said
    )
    assert "cancel that job first with `hptune stop" in said


def test_a_master_is_not_kept_off_by_its_own_job(
    cli: InProcess, commands: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some sites keep squeue's answers for a while: it may still show the job as pending."""
    study = detached(cli)
    stored(study, ended=HANDED_OVER)
    shown(commands, study, "PENDING")
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    ended = cli("resume", "study")
    assert (ended.code, "the model file" in ended.err) == (2, True), "there is none"


@pytest.mark.parametrize("ended_by", [HANDED_OVER, None])
@pytest.mark.parametrize("seems_to_run", [False, True])
def test_a_study_that_was_stopped_while_its_master_waits_is_not_queued(
    cli: InProcess, commands: Commands, ended_by: Mapping[str, str] | None, seems_to_run: bool
) -> None:
    study = detached(cli)
    typical(study, ended=ended_by)
    shown(commands, study, "PENDING")
    if seems_to_run:  # another machine's heartbeat counts for a minute
        lease = {"host": "n7", "pid": 4711, "since": 1.7e9, "boot": "other", "token": "t"}
        (study / "lease").write_text(json.dumps(lease))
        beat = time.time() - STALE_SECONDS + 1.0
        os.utime(study / "lease", (beat, beat))
    ended = cli("stop", "study")
    assert (ended.code, "Continue with: hptune resume" in ended.out) == (0, True)
    assert (commands.folder / "cancelled").read_text() == "--quiet 7\n"
    shown(commands, study)
    state = Study(study).view().last_finish
    if ended_by is None:
        assert state is None
    else:
        assert state is not None
        assert (str(state.finish_reason), state.reason.partition(" ")[0]) == (
            "interrupted",
            "stopped",
        )


def test_a_detached_study_can_be_stopped_before_there_is_one(
    cli: InProcess, commands: Commands
) -> None:
    study = detached(cli)
    shown(commands, study, "PENDING")
    waits = "queued: the master's job waits in Slurm, and makes the study when it starts"
    assert state_in(cli("status", "study").out) == waits
    assert in_status(cli) == in_list(cli) == "starting"
    shown(commands, study, "RUNNING")
    begins = "starting: the master reads the model and makes the study"
    assert state_in(cli("status", "study").out) == begins
    ended = cli("stop", "study")
    again = "No study was made yet; to start it, run the same `hptune run` again"
    assert (ended.code, again in ended.out) == (0, True)
    shown(commands, study)
    assert "run the same `hptune run` again" in state_in(cli("status", "study").out)
    assert json.loads(cli("status", "study", "--json").out)["state"] is None
    resumed = cli("resume", "study")
    assert resumed.code == 2
    assert "has not made it" in " ".join(resumed.err.split())


def test_a_killed_master_leaves_jobs_that_hold_their_cores(
    cli: InProcess, commands: Commands
) -> None:
    study = detached(cli)
    typical(study)
    shown(commands, study)
    left = Job("8_0", "a-cpu", JobState.RUNNING, "RUNNING", partition="main", node="n1")
    write_jobs(study / "jobs", ShownJobs(0.0, (left,)))
    status = " ".join(cli("status", "study").out.split())
    assert "8_0 running in main on n1" in status
    assert "hold their cores until --master-grace ends" in status
    assert "hptune stop study cancels them" in status
    stopped = cli("stop", "study", "--trial", 5)
    assert (stopped.code, "`hptune stop" in stopped.err) == (1, True)


@pytest.mark.parametrize(
    ("given", "was_requeued"),
    [
        ({}, False),
        ({"SLURM_RESTART_COUNT": "1"}, False),  # a run in a job of the user's
        ({MASTER_NOTICE: "60"}, False),  # after `hptune resume --detach`
        ({MASTER_NOTICE: "60", "SLURM_RESTART_COUNT": "1"}, True),
    ],
)
def test_a_master_knows_whether_slurm_has_started_it_again(
    monkeypatch: pytest.MonkeyPatch, given: Mapping[str, str], *, was_requeued: bool
) -> None:
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    assert SlurmWorkers.was_requeued.fget(Mock()) is was_requeued  # type: ignore[attr-defined]


def test_a_hand_over_names_the_job_that_continues(
    commands: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(MASTER_NOTICE, "60")
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    commands.make("squeue", "echo '0 RUNNING'")
    commands.make("scontrol", "exit 0")
    successors: list[str] = []
    may_stop = handover(lambda _: None, give_back=lambda: None, end=successors.append)
    assert may_stop is not None
    wait_for(lambda: may_stop(signal.SIGUSR1) or successors, "the end")
    assert successors[0] == "Slurm starts the master's job 7 again"
