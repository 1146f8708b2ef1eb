"""Clients of a Dask scheduler: connected, refused, or cut off from it."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from distributed import Client

from ..errors import HptuneError, StudyError
from ..security.certificates import Identity
from ..security.handshake import why_refused
from ..worker.addresses import refusal
from ..worker.dask import versions
from ..worker.dask.dask_settings import silence
from ..worker.dask.encryption import security

METADATA = "hptune"
"""Key of the directories of the studies in the scheduler's metadata."""

_CONNECT_SECONDS = 10.0


def connect(address: str, *, name: str, identity: Identity | None) -> Client:
    """Return a client of the Dask scheduler at an address; the caller closes it.

    Args:
        address: Such as `tls://node1:8786`.
        name: What the scheduler is to call the client.
        identity: The certificate to show; None for a scheduler without encryption.

    Raises:
        StudyError: There is no scheduler, it refuses the certificate, or is of another version.
    """
    silence()
    if why := refusal(address, timeout_seconds=_CONNECT_SECONDS):
        raise _no_scheduler(address, why)
    if why := why_refused(address, identity, timeout_seconds=_CONNECT_SECONDS):
        raise StudyError(f"no connection to the scheduler at {address}: {why}.")
    with warnings.catch_warnings():
        # Dask's warnings on versions; they are checked below.
        warnings.simplefilter("ignore")
        try:
            client = Client(
                address,
                name=name,
                timeout=_CONNECT_SECONDS,
                set_as_default=False,
                security=security(identity),
            )
        except (OSError, TimeoutError, ValueError, ImportError) as error:
            raise _no_scheduler(address, str(error) or type(error).__name__) from error
    try:
        with lost_scheduler():
            scheduler: Any = client.scheduler
            found = dict(client.sync(scheduler.versions)["packages"])
    except StudyError:
        client.close()
        raise
    found["python"] = ".".join(str(found.get("python", "")).split(".")[:2])
    here = versions.installed()
    different = versions.differences(here, found, ("python", "distributed"))
    if different:
        client.close()
        who = f"the scheduler at {address}"
        raise StudyError(
            f"{versions.describe(different, here='this machine', there=who)}. Start the scheduler "
            "from the same environment as the study."
        )
    return client


def studies_of(client: Client) -> list[Path]:
    """Return the directories of the studies that run on a client's scheduler.

    A study whose master was killed is among them until the scheduler ends.
    """
    found = client.get_metadata([METADATA], {})
    return sorted({Path(each) for each in found.values() if each})


def _no_scheduler(address: str, why: str) -> StudyError:
    return StudyError(
        f"no Dask scheduler answers at {address} ({why}). Start one with `hptune scheduler`, which "
        "prints its address; a firewall between the machines may be the cause."
    )


@contextlib.contextmanager
def lost_scheduler(then: str = "start the study again") -> Iterator[None]:
    """Turn whatever Dask's client raises when its scheduler is gone into one error.

    Args:
        then: What the user is to do when there is a scheduler.

    Raises:
        StudyError: The code within raised something else than an error of hptune.
    """
    try:
        yield
    except HptuneError:
        raise
    except Exception as error:  # depending on the moment: OSError, RuntimeError, AttributeError …
        raise StudyError(
            f"the connection to the Dask scheduler is lost. Make sure that one runs, then {then}."
        ) from error
