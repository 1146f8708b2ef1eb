"""Which studies run on a Dask scheduler."""

from __future__ import annotations

from pathlib import Path

from ..errors import NoStudyError, StudyError
from ..executors.dask_client import connect, lost_scheduler, studies_of
from ..security.handshake import identity_for
from ..worker.addresses import address_of


def study_at(place: str, *, certs: str = "", insecure: bool = False) -> Path:
    """Return the directory of the study that runs on a scheduler.

    Args:
        place: The scheduler's address, or the path of the file that it wrote it to.
        certs: The certificates to show, a file or a folder; empty for the user's own.
        insecure: Whether the user accepts a scheduler without certificates.

    Raises:
        NoStudyError: No study runs there, or it cannot be seen from this machine.
        StudyError: There is no scheduler, or several studies run on it.
    """
    address = address_of(place)
    if not address:
        raise NoStudyError(
            f"{place} holds no scheduler's address; name one, or a study's directory"
        )
    identity = identity_for(address, certs=certs, insecure=insecure)
    client = connect(address, name="dashboard", identity=identity)
    try:
        with lost_scheduler("try again"):
            found = studies_of(client)
    finally:
        client.close()
    if not found:
        raise NoStudyError(
            f"no study runs on the scheduler at {address}; name the directory of one that has ended"
        )
    if len(found) > 1:
        raise StudyError(
            f"{len(found)} studies run on the scheduler at {address}; name the directory of one: "
            f"{', '.join(map(str, found))}"
        )
    (directory,) = found
    if not (directory / "study.db").exists():
        raise NoStudyError(
            f"the study of the scheduler at {address} is in {directory}, which this machine does "
            "not see; run `hptune dashboard` on a machine that does, such as the study's own"
        )
    return directory
