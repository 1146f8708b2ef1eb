"""Workers that others keep: those of a Dask scheduler, or of a client that the user connected."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..config.settings import StudySettings
from ..errors import StudyError
from ..executors.base import RunContext
from ..security.certificates import Identity
from ..security.handshake import INSECURE, identity_for
from ..worker.addresses import address_of
from .base import SchedulerCluster
from .layout import WorkerLayout


def at_scheduler(
    settings: StudySettings, study: Path, *, connect: str, certs: str = "", insecure: bool = False
) -> ExistingScheduler:
    """Return the workers at a scheduler; the options are those of `ExistingScheduler`."""
    del settings, study
    return ExistingScheduler(connect, certs=certs, insecure=insecure)


class ExistingScheduler(SchedulerCluster):
    """The workers that join a scheduler: `hptune worker`, `dask worker` or others.

    Args:
        place: The scheduler's address, or the path of the file that it wrote it to.
        certs: The certificates to show, a file or a folder; empty for the user's own.
        insecure: Whether the user accepts a scheduler without certificates.

    Raises:
        StudyError: The file holds no address.
    """

    def __init__(self, place: str, *, certs: str = "", insecure: bool = False) -> None:
        super().__init__()
        self._certs = certs
        self._insecure = insecure
        self._address = address_of(place)
        if not self._address:
            raise StudyError(
                f"{place} holds no scheduler's address. `hptune scheduler --scheduler-file FILE` "
                "writes one, and removes it when it ends."
            )

    @property
    def address(self) -> str:
        """The scheduler's address."""
        return self._address

    def identity(self) -> Identity | None:
        """Return the certificate to show; None if the user accepts a scheduler without them."""
        return identity_for(self._address, certs=self._certs, insecure=self._insecure)

    @property
    def notes(self) -> tuple[str, ...]:
        """A warning if there is no encryption."""
        return () if self._address.startswith("tls://") else (INSECURE,)

    def text(self, layout: WorkerLayout) -> str:
        """Return where the trials run."""
        del layout
        return f"on the workers at {self._address}"


class ClientWorkers(SchedulerCluster):
    """The workers of a `distributed.Client`, which stays open.

    Args:
        client: The client.
    """

    def __init__(self, client: Any) -> None:
        super().__init__()
        self._given = client

    @property
    def address(self) -> str:
        """The scheduler's address."""
        return str(self._given.scheduler_info()["address"])

    def open(self, run: RunContext) -> None:
        """Use the client."""
        self.use(run, self._given)

    def text(self, layout: WorkerLayout) -> str:
        """Return where the trials run."""
        del layout
        return f"on the Dask cluster at {self.address}"
