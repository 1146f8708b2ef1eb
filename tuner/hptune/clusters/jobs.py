"""Common parts of the clusters of Slurm jobs: names, errors and shutdown."""

from __future__ import annotations

import abc
import contextlib
import hashlib
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from hptune_jobqueue.errors import (
    JobQueueError,
    JobsFailError,
    ShapesFailError,
    SlurmUnavailableError,
)

from ..errors import StudyError, UsageError
from ..executors.base import RunContext
from ..security.certificates import ENDING_DAYS, WORKER, Identity, ensure, read
from ..security.handshake import INSECURE
from ..worker.private_folder import server_folder
from .base import SchedulerCluster

COMMAND = "hptune worker"
"""What a job runs, as `python -m …`."""


class JobQueueCluster(Protocol):
    """Interface of `hptune_jobqueue` that is the same for jobs and for an allocation."""

    @property
    def address(self) -> str:
        """The address of the scheduler that the workers join."""

    def scale_down(self) -> None:
        """Stop the workers; may be repeated."""

    def close(self, *, force: bool = False) -> None:
        """Stop the workers and the scheduler; with `force`, only what takes no time."""


C = TypeVar("C", bound=JobQueueCluster)


class JobWorkers(SchedulerCluster, Generic[C]):
    """Workers that `hptune_jobqueue` starts, and the Dask scheduler in this process that they join.

    Args:
        study: The study's directory, which every node must see.
        insecure: Whether scheduler and workers use no certificates.
    """

    def __init__(self, study: Path, *, insecure: bool) -> None:
        super().__init__(ends_workers=True)
        self._study = study
        self._insecure = insecure
        self._cluster: C | None = None

    @abc.abstractmethod
    def _make(self, security: Any) -> C:
        """Return the cluster of `hptune_jobqueue`, whose scheduler listens.

        Args:
            security: Dask's object with the scheduler's certificate; None for no encryption.
        """

    def identity(self) -> Identity | None:
        """Return the certificate that the run shows to its own scheduler."""
        return None if self._insecure else read(certificates_folder(self._study))

    @property
    def notes(self) -> tuple[str, ...]:
        """A warning if there is no encryption."""
        return (INSECURE,) if self._insecure else ()

    @property
    def cluster(self) -> C:
        """The cluster of `hptune_jobqueue`; it is there once this cluster is open."""
        assert self._cluster is not None, "the cluster is not open"
        return self._cluster

    @property
    def address(self) -> str:
        """The address of the scheduler that the workers join."""
        return self.cluster.address

    def open(self, run: RunContext) -> None:
        """Start the scheduler and connect to it; no job is submitted yet.

        Raises:
            UsageError: The slurm.toml is wrong, or Slurm would refuse a job (in its words).
        """
        from ..worker.dask.connection_limit import limit_at_scheduler
        from ..worker.dask.dask_settings import quiet_servers, silence
        from ..worker.dask.encryption import security

        folder, scheduler = certificates_folder(self._study), None
        if not self._insecure:
            # The jobs read them when they join, so new ones need not be copied.
            self._stack.callback(self._forget)
            scheduler = ensure(folder, days=ENDING_DAYS)
        # A folder that the next run removes if this process is killed.
        scratch = self._stack.enter_context(server_folder())
        silence()
        with translated_errors(), quiet_servers(scratch):
            self._cluster = self._make(security(scheduler))
        self._stack.callback(self._cluster.close)
        super().open(run)
        self._client.run_on_scheduler(limit_at_scheduler)

    def _forget(self) -> None:
        """Remove the certificates if no study was made; those of a study stay for a later run."""
        if not (self._study / "study.db").exists():
            shutil.rmtree(certificates_folder(self._study), ignore_errors=True)
            with contextlib.suppress(OSError):
                jobs_folder(self._study).rmdir()

    def scale_down(self) -> None:
        """Stop the workers; may be repeated."""
        if self._cluster is not None:
            self._cluster.scale_down()

    def close(self, *, force: bool = False) -> None:
        """Stop the workers and the scheduler; with `force`, only what takes no time."""
        if force and self._cluster is not None:
            self._cluster.close(force=True)
        super().close(force=force)


def jobs_folder(study: Path) -> Path:
    """Return the folder of a study for the files of its jobs."""
    return study.absolute() / "jobs"


def certificates_folder(study: Path) -> Path:
    """Return the folder of the certificates of a study's jobs."""
    return jobs_folder(study) / "certs"


def worker_arguments(study: Path, *, insecure: bool) -> tuple[str, ...]:
    """Return the arguments with which a job's worker finds its certificate."""
    if insecure:
        return ("--insecure",)
    return ("--certs", str(certificates_folder(study) / WORKER))


def jobs_name(study: Path) -> str:
    """Return the name of a study's jobs: the same after each resume, and no other study's.

    >>> jobs_name(Path("/home/me/studies/digits-1"))
    'hptune-digits-1-8a6c0ac5'
    """
    # The same study, although a symbolic link leads to it: a shell's directory may be one.
    path = Path(os.path.realpath(study))
    digest = hashlib.sha256(os.fsencode(path)).hexdigest()[:8]
    return f"hptune-{re.sub(r'[^A-Za-z0-9.-]', '_', path.name)}-{digest}"


@contextlib.contextmanager
def translated_errors(*, is_running: bool = False) -> Iterator[None]:
    """Turn the errors of `hptune_jobqueue` into those of `hptune`.

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
        if isinstance(error, ShapesFailError):
            # The output is shown before the message.
            shown = "; its last lines are shown" if output else ""
            message = (
                f"{message.removesuffix(':')}{shown}. `hptune doctor --slurm slurm.toml` checks "
                "what jobs need; then continue with `hptune resume DIR`"
            )
        raise StudyError(message, output) from error
    except JobQueueError as error:
        if is_running:
            raise StudyError(
                f"{error}. No job is left, so the study has stopped; nothing is lost. Continue "
                "with `hptune resume DIR` (and `--slurm`, for another slurm.toml)"
            ) from error
        advice = f". {error.ADVICE}" if isinstance(error, SlurmUnavailableError) else ""
        raise UsageError(f"{error}{advice}") from error
