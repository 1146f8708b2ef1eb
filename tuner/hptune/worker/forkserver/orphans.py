"""The processes that trials start, killed with them, whatever session or group they made.

- The fork server adopts the orphans of its trials, and waits for them, so that none stays
  as a zombie. Each process of a trial, direct child or not, has the trial's process id as a limit
  of file locks (`tag`), which Linux stores, hands on and never enforces. The fork server kills an
  orphan whose trial has ended (`trial_of`).
- If the fork server was killed, they are found by their environment, which names the
  fork server and its owner, the process that started it. A fork server started later kills what
  dead owners left on this machine. A job that a trial submitted may have the same environment but
  for its id, and is spared.

A resource tracker of Python's `multiprocessing` or of loky is spared for some seconds. It ends by
itself after the processes that it serves, and removes their semaphores and shared memory. A fork
server whose owner is dead is spared as well: it ends its trials, and removes its folder and the
data that they share.
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from ...core.clock import polls
from .. import devices
from ..process_ids import RLIMIT_LOCKS, adopt_orphans, began, children_of, place, trial_of

_MARK = "HPTUNE_FORK_SERVER"
END_SECONDS = 5.0
"""Seconds to wait for killed processes, of which one may hang in the file system."""

_POLL_SECONDS = 0.02


def tag() -> None:
    """Mark this process as a trial's, and all that it starts from now on."""
    own = os.getpid()
    with contextlib.suppress(OSError, ValueError):  # a hard limit below this number
        _, hard = resource.getrlimit(RLIMIT_LOCKS)
        resource.setrlimit(RLIMIT_LOCKS, (own, hard))
    # A sandbox with its own kernel may store no such limit, or not show it in /proc.
    if trial_of(own) != own:
        adopt_orphans()  # then its orphans end with it, and are zombies until then


def children() -> set[int]:
    """Return the children of this process, which has one thread."""
    return children_of(os.getpid())


def kill(pid: int, *, spares_trackers: bool) -> None:
    """Kill a process, unless it is a resource tracker that is to be spared."""
    with contextlib.suppress(OSError):
        if not (spares_trackers and _runs(pid, "resource_tracker")):
            os.kill(pid, signal.SIGKILL)


def environment(folder: Path) -> dict[str, str]:
    """Return what marks a fork server with this folder, and all that descends from it."""
    own = os.getpid()
    return {_MARK: f"{place()} {own} {began(own)} {_job(os.environ)} {folder}"}


def _job(environment: Mapping[str, str]) -> str:
    """Return the job that an environment is of, as one word. One that a trial submits differs."""
    return devices.batch_job(environment).replace(" ", "") or "-"


def kill_of_dead_owners() -> None:
    """Kill what is left of fork servers whose owners are dead, and wait until it is gone."""

    def is_left(owner: str, owner_began: str, _: str) -> bool:
        return began(int(owner)) != owner_began

    for _ in polls(END_SECONDS, _POLL_SECONDS):
        found = [*_marked(is_left)]
        if not any(_runs(pid, "worker.forkserver.server") for pid in found):
            break
    if found:
        _kill_marked(is_left)


def kill_of_dead_server(folder: Path) -> None:
    """Kill what is left of a fork server that is dead, and wait until it is gone."""
    _kill_marked(lambda _, __, of: of == str(folder))


def _kill_marked(is_left: Callable[[str, str, str], bool]) -> None:
    for is_last in polls(END_SECONDS, _POLL_SECONDS):
        found = [*_marked(is_left)]
        if not found:
            break
        for pid in found:
            kill(pid, spares_trackers=not is_last)


def _marked(is_left: Callable[[str, str, str], bool]) -> Iterator[int]:
    # A trial may start processes on other machines, and hand its environment on to them.
    here = f"{place()} "
    for process in Path("/proc").iterdir():
        # Others' processes cannot be read, and a zombie has no environment.
        with contextlib.suppress(OSError, ValueError):
            pid = int(process.name)
            contents = (process / "environ").read_bytes()
            if _MARK.encode() not in contents:
                continue
            entries = (each.partition("=") for each in os.fsdecode(contents).split("\0"))
            variables = {name: value for name, _, value in entries}
            mark = variables.get(_MARK, "")
            if mark.startswith(here) and pid != os.getpid():
                owner, owner_began, job, folder = mark[len(here) :].split(" ", 3)
                if job == _job(variables) and is_left(owner, owner_began, folder):
                    yield pid


def _runs(pid: int, module: str) -> bool:
    with contextlib.suppress(OSError):  # it is gone
        return module.encode() in Path(f"/proc/{pid}/cmdline").read_bytes()
    return False
