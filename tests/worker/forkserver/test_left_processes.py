"""Which processes count as left by a fork server that is dead."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hptune.worker import process_ids
from hptune.worker.forkserver import orphans

Start = Callable[..., "subprocess.Popen[bytes]"]


@pytest.fixture
def start() -> Iterator[Start]:
    """Return what starts a process with a mark."""
    started = []

    def start(mark: str, **others: str) -> subprocess.Popen[bytes]:
        sleep = [sys.executable, "-S", "-c", "print(flush=True); import time; time.sleep(600)"]
        process = subprocess.Popen(
            sleep, env={"HPTUNE_FORK_SERVER": mark} | others, stdout=subprocess.PIPE
        )
        assert process.stdout is not None
        process.stdout.readline()
        started.append(process)
        return process

    yield start
    for each in started:
        each.kill()
        with each:
            pass


def test_what_dead_owners_of_this_machine_left_is_killed(start: Start) -> None:
    mark = orphans.environment(Path("/nowhere"))["HPTUNE_FORK_SERVER"]
    place = process_ids.place()
    own = f"{os.getpid()} {process_ids.began(os.getpid())}"
    assert mark == f"{place} {own} - /nowhere"
    dead = f"{os.getpid()} 1 - /nowhere"
    batch_systems = ("SLURM_JOB_ID", "JOB_ID", "PBS_JOBID", "LSB_JOBID", "OAR_JOB_ID")
    jobs_of_a_trial = [start(f"{place} {dead}", **{name: "7"}) for name in batch_systems]
    living, left, elsewhere = start(mark), start(f"{place} {dead}"), start(f"x{place} {dead}")
    orphans.kill_of_dead_owners()
    assert left.wait() == -9
    # Process ids of another machine mean nothing here, although its outermost container has the
    # same number: a trial may start processes on several machines.
    assert (living.poll(), elsewhere.poll()) == (None, None)
    assert [each.poll() for each in jobs_of_a_trial] == [None] * len(batch_systems)


@pytest.mark.parametrize("is_shown", [True, False])
def test_a_trial_adopts_its_orphans_where_the_kernel_shows_no_tag(
    monkeypatch: pytest.MonkeyPatch, is_shown: bool
) -> None:
    before = resource.getrlimit(process_ids.RLIMIT_LOCKS)
    adopted = []
    monkeypatch.setattr(orphans, "adopt_orphans", lambda: adopted.append(True))
    if not is_shown:
        monkeypatch.setattr(orphans, "trial_of", lambda _: None)
    try:
        orphans.tag()
        assert process_ids.trial_of(os.getpid()) == os.getpid()
    finally:
        resource.setrlimit(process_ids.RLIMIT_LOCKS, before)
    assert bool(adopted) is not is_shown


def test_what_a_dead_server_left_is_killed(start: Start) -> None:
    folders = Path("/with a space"), Path("/with a space/and more")
    left, other = (start(orphans.environment(each)["HPTUNE_FORK_SERVER"]) for each in folders)
    orphans.kill_of_dead_server(folders[0])
    assert left.wait() == -9
    assert other.poll() is None
