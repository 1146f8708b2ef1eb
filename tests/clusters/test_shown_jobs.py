"""Slurm jobs in `hptune status`."""

from __future__ import annotations

import time
from pathlib import Path

from hptune.clusters.shown_jobs import (
    jobs_json,
    jobs_line,
    jobs_text,
    states_line,
    watched_jobs_text,
)
from hptune_jobqueue.commands import Job, JobState, parse_squeue
from hptune_jobqueue.job_reports import Problem, ShownJobs, remove_jobs, write_jobs

# As squeue of release 22.05 prints them, with times in seconds.
SQUEUE = """\
11_0|hptune-x|PENDING|Resources|cpu||{later}|{soon}|{before}
9_1|hptune-x|PENDING|Priority|gpu||N/A|N/A|N/A
9_0|hptune-x|RUNNING|None|gpu|g1|{soon}|{before}|N/A
"""


def test_jobs_are_shown_with_slurms_reasons_and_expected_starts(tmp_path: Path) -> None:
    now = time.mktime((2026, 5, 4, 12, 0, 0, 0, 0, -1))
    assert jobs_text(tmp_path, now=now) == ""
    assert jobs_json(tmp_path) is None
    soon, later = int(now + 3600), int(now + 86400)
    jobs = parse_squeue(SQUEUE.format(before=int(now - 60), soon=soon, later=later))
    folder = tmp_path / "jobs"
    folder.mkdir()
    write_jobs(folder, ShownJobs(now - 8, tuple(jobs)))
    assert jobs_text(tmp_path, now=now).splitlines() == [
        "jobs     1 running, 2 pending, as Slurm showed them 8s ago",
        "         9_0  running in gpu on g1, until 13:00",
        "         9_1  pending in gpu: Priority",
        "         11_0  pending in cpu: Resources, expected to start at 13:00, submitted at 11:59",
    ]
    assert "expected" not in jobs_text(tmp_path, now=soon + 60.0)
    plain = jobs_json(tmp_path)
    assert plain is not None
    assert plain["at"] == now - 8
    problem = Problem("no job can be submitted to partition gpu now", now - 3600)
    write_jobs(folder, ShownJobs(now - 8, (), (problem,)))
    assert jobs_text(tmp_path, now=now).splitlines() == [
        "jobs     none, as Slurm showed them 8s ago",
        "         since 11:00: no job can be submitted to partition gpu now",
    ]
    line = "since 11:00: no job can be submitted to partition gpu now"
    assert watched_jobs_text(tmp_path, now=now) == f"{line} (as Slurm showed them 8s ago)"
    write_jobs(folder, ShownJobs(now - 8, tuple(jobs), (problem,)))
    shown = watched_jobs_text(tmp_path, now=now)
    assert shown.startswith("1 running on g1; 1 pending in ")
    assert shown.endswith(f"; {line} (as Slurm showed them 8s ago)")
    remove_jobs(folder)
    assert watched_jobs_text(tmp_path, now=now) == ""
    assert jobs_text(tmp_path, now=now) == ""


def test_the_jobs_in_one_line() -> None:
    now = time.mktime((2026, 5, 4, 12, 0, 0, 0, 0, -1))
    soon, later = int(now + 3600), int(now + 86400)
    some = SQUEUE.format(before=int(now - 60), soon=soon, later=later)
    more = "".join(f"12_{i}|hptune-x|PENDING|Priority|gpu||N/A|N/A|N/A\n" for i in range(3))
    assert jobs_line(parse_squeue(some + more), now=now) == (
        "1 running on g1; 4 pending in gpu: Priority; "
        "1 pending in cpu: Resources, expected to start at 13:00, submitted at 11:59"
    )
    assert jobs_line((), now=now) == ""


def test_their_states_without_times_and_without_jobs_that_slurm_has_not_shown() -> None:
    squeue = SQUEUE.format(before=1, soon=2, later=3)
    fresh = Job("13_0", "hptune-x", JobState.PENDING, "PENDING")
    assert states_line([*parse_squeue(squeue), fresh]) == (
        "1 running on g1; 1 pending in cpu: Resources; 1 pending in gpu: Priority"
    )
    assert states_line([fresh]) == ""


def test_jobs_that_wait_for_the_same_share_a_line_and_of_many_lines_the_first_are_shown(
    tmp_path: Path,
) -> None:
    (tmp_path / "jobs").mkdir()
    waiting = "".join(f"9_{i}|x|PENDING|Priority|gpu||N/A|N/A|N/A\n" for i in range(40))
    running = "".join(f"8_{i}|x|RUNNING|None|gpu|g{i}|N/A|N/A|N/A\n" for i in range(20))
    for squeue, expected in (
        (waiting, (2, "         9_0 and 39 others  pending in gpu: Priority")),
        (running + waiting, (14, "         and 48 others: hptune status --json")),
    ):
        write_jobs(tmp_path / "jobs", ShownJobs(time.time(), parse_squeue(squeue)))
        lines = jobs_text(tmp_path, now=time.time()).splitlines()
        assert (len(lines), lines[-1]) == expected
