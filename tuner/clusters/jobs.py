"""Common parts of the clusters of Slurm jobs: names, errors and shutdown."""

from __future__ import annotations

import abc
import contextlib
import hashlib
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Generic, Protocol, TypeVar

from jobqueue.errors import JobQueueError, JobsFailError

from ..errors import StudyError, UsageError
from .base import RunContext, SchedulerCluster

COMMAND = "hptune worker"
"""What a job runs, as `python -m …`."""


class JobQueueCluster(Protocol):
    """Interface of `jobqueue` that is the same for jobs and for an allocation."""

    @property
    def address(self) -> str:
        """The address of the scheduler that the workers join."""

    def scale_down(self) -> None:
        """Stop the workers; may be repeated."""

    def close(self, *, force: bool = False) -> None:
        """Stop the workers and the scheduler; with `force`, only what takes no time."""


C = TypeVar("C", bound=JobQueueCluster)


class JobWorkers(SchedulerCluster, Generic[C]):
    """Workers that `jobqueue` starts, and the Dask scheduler in this process that they join."""

    def __init__(self) -> None:
        super().__init__(ends_workers=True)
        self._jobs: C | None = None

    @abc.abstractmethod
    def _make(self) -> C:
        """Return the cluster of `jobqueue`, whose scheduler listens."""

    @property
    def jobs(self) -> C:
        """The cluster of `jobqueue`; it is there once this cluster is open."""
        assert self._jobs is not None, "the cluster is not open"
        return self._jobs

    @property
    def address(self) -> str:
        """The address of the scheduler that the workers join."""
        return self.jobs.address

    def open(self, run: RunContext) -> None:
        """Start the scheduler and connect to it; no job is submitted yet.

        Raises:
            UsageError: The slurm.toml is wrong, or Slurm would refuse a job (in its words).
        """
        with translated_errors():
            self._jobs = self._make()
        self._stack.callback(self._jobs.close)
        super().open(run)

    def scale_down(self) -> None:
        """Stop the workers; may be repeated."""
        if self._jobs is not None:
            self._jobs.scale_down()

    def close(self, *, force: bool = False) -> None:
        """Stop the workers and the scheduler; with `force`, only what takes no time."""
        if force and self._jobs is not None:
            self._jobs.close(force=True)
        super().close(force=force)


def jobs_name(study: Path) -> str:
    """Return the name of a study's jobs: the same after each resume, and no other study's.

    >>> jobs_name(Path("/home/me/studies/digits-1"))
    'hptune-digits-1-8a6c0ac5'
    """
    path = study.absolute()
    digest = hashlib.sha256(os.fsencode(path)).hexdigest()[:8]
    return f"hptune-{re.sub(r'[^A-Za-z0-9.-]', '_', path.name)}-{digest}"


@contextlib.contextmanager
def translated_errors(*, is_running: bool = False) -> Iterator[None]:
    """Turn the errors of `jobqueue` into those of `tuner`.

    Args:
        is_running: Whether the study has begun: then the command is not to blame.

    Raises:
        UsageError: What was asked for cannot be had.
        StudyError: There are no workers any more; the study can be resumed.
    """
    try:
        yield
    except JobsFailError as error:
        message, _, output = str(error).partition("\n")
        raise StudyError(message, output) from error
    except JobQueueError as error:
        if is_running:
            raise StudyError(
                f"{error}. No job is left, so the study has stopped; nothing is lost. Continue "
                "with `hptune resume DIR` (and `--slurm`, for another slurm.toml)"
            ) from error
        raise UsageError(str(error)) from error
