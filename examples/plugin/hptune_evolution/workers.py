"""A cluster of one's own: it starts a scheduler, and `hptune worker` processes that join it.

    hptune run model.py --cluster processes --option cluster.count=2

In place of `subprocess`, submit jobs to your batch system, or ask your cloud for machines.
"""

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from hptune.clusters.base import SchedulerCluster
from hptune.config.settings import StudySettings
from hptune.core.resources import Resources
from hptune.errors import StudyError
from hptune.executors.base import RunContext
from hptune.security.certificates import Identity
from hptune.security.handshake import identity_for


class WorkerProcesses(SchedulerCluster):
    """Processes on this machine.

    Args:
        settings: What the user asked for.
        study: The study's directory.
        count: The largest number of workers.
        cores: Cores of each worker.
    """

    def __init__(
        self, settings: StudySettings, study: Path, *, count: int = 1, cores: int = 1
    ) -> None:
        del settings, study  # a cluster of jobs would name them after the study
        super().__init__(ends_workers=True)
        self._count, self._cores = count, cores
        self._address, self._certs = "", ""
        self._workers: list[subprocess.Popen[str]] = []

    @property
    def address(self) -> str:
        """The scheduler's address."""
        return self._address

    def identity(self) -> Identity | None:
        """Return the certificate that the run shows."""
        return identity_for(self._address, certs=self._certs)

    def open(self, run: RunContext) -> None:
        """Start the scheduler, and connect to it."""
        self._certs = tempfile.mkdtemp(prefix="hptune-example-")
        self._stack.callback(shutil.rmtree, self._certs, ignore_errors=True)
        scheduler = _start("scheduler", "--port", "0", "--certs", self._certs)
        self._stack.callback(_end, [scheduler])
        assert scheduler.stdout is not None
        self._address = scheduler.stdout.readline().rpartition(" ")[2].strip()
        if not self._address:
            raise StudyError("the scheduler has not started")
        super().open(run)

    def text(self, layout: object) -> str:
        """Return where the trials run."""
        del layout
        return f"on at most {self._count} workers of {self._cores} cores"

    def scale_up(self, resources: Resources, trials: int) -> None:
        """Start workers for the trials."""
        wanted = min(self._count, -(-trials * int(resources.cpus + 0.99) // self._cores))
        for _ in range(wanted - len(self._workers)):
            options = ("--cpus", str(self._cores), "--certs", self._certs)
            self._workers.append(_start("worker", self._address, *options))

    def scale_down(self) -> None:
        """End the workers."""
        _end(self._workers)
        self._workers.clear()

    def close(self, *, force: bool = False) -> None:
        """End the workers and the scheduler."""
        if not force:
            self.scale_down()
        super().close(force=force)


def _start(*arguments: str) -> "subprocess.Popen[str]":
    """Start a command of hptune, which Ctrl-C in the terminal of the study does not reach."""
    return subprocess.Popen(
        [sys.executable, "-m", "hptune", *arguments],
        stdout=subprocess.PIPE if arguments[0] == "scheduler" else subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
        text=True,
        start_new_session=True,
    )


def _end(processes: "list[subprocess.Popen[str]]") -> None:
    for each in processes:
        each.terminate()
    for each in processes:
        with contextlib.closing(each.stdout) if each.stdout else contextlib.nullcontext():
            each.wait()
