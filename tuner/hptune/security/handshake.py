"""Connections to a scheduler: which certificate to show, and why a scheduler refuses it.

The reason is found out by a connection of its own, before Dask's: Dask retries a refused connection
until its timeout, and then says only that it failed.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import tempfile
from pathlib import Path

from ..errors import StudyError, UsageError
from .certificates import WORKER, Identity, default_folder, file_of, read, write_private

_NOT_YET_VALID, _EXPIRED = 9, 10
"""OpenSSL's codes X509_V_ERR_CERT_NOT_YET_VALID and X509_V_ERR_CERT_HAS_EXPIRED."""

_ANSWER_SECONDS = 2.0
"""How long to wait for the first bytes of a scheduler, which may be busy."""

INSECURE = (
    "warning: --insecure: no certificates are used, so anyone who reaches the scheduler or a "
    "worker over the network can run code as you"
)
PLAIN = (
    "it uses no certificates: either it was started with --insecure, which this command then needs "
    "too, with the address tcp://…; or it is no scheduler of hptune"
)
OTHER = (
    "its certificates are of another study or scheduler than those in {path}. Restart it if they "
    "were renewed, or copy its worker.pem again (on its machine, `hptune certs` shows where "
    "it is, `hptune certs DIR` for a study)"
)
EXPIRED = (
    "the certificates in {path} were valid until {day}. Make new ones on the scheduler's machine "
    "(`hptune certs --renew`), restart it, and copy worker.pem again"
)
EXPIRED_THERE = (
    "its certificate has expired. Make new ones on its machine (`hptune certs --renew`), restart "
    "it, and copy worker.pem again"
)
EARLY = "its certificate is not valid yet by this machine's clock; set the clocks of both machines"
ENCRYPTED = "it accepts only connections with a certificate: use tls:// in place of tcp://"


def identity_for(address: str, *, certs: str = "", insecure: bool = False) -> Identity | None:
    """Return the certificate to show to a scheduler; None to connect without encryption.

    Args:
        address: The scheduler's address.
        certs: A file of certificates, or their folder; empty for the user's own.
        insecure: Whether the user accepts a scheduler without certificates.

    Raises:
        UsageError: The address is one without certificates, which the user has not accepted.
        StudyError: There is no certificate, or its file cannot be used.
    """
    if address.startswith("tls://"):
        file = file_of(Path(certs)) if certs else default_folder() / WORKER
        if not certs and not file.exists():
            raise StudyError(
                f"{address} accepts only connections with a certificate, and there is none in "
                f"{file}. Copy the scheduler's worker.pem (`hptune certs` on its machine shows "
                "where it is), and name the copy with --certs FILE"
            )
        return read(file)
    if not insecure:
        raise UsageError(
            f"{address} uses no certificates: anyone who reaches it can run code as you. Start the "
            "scheduler without --insecure and use the tls:// address that it prints; or accept "
            "this with --insecure"
        )
    return None


def context(identity: Identity) -> ssl.SSLContext:
    """Return what a client needs to show this identity and to check the server's."""
    made = ssl.create_default_context(cadata=identity.authority)
    made.minimum_version = ssl.TLSVersion.TLSv1_2
    # The authority signs for one study only; its processes have no fixed names.
    made.check_hostname = False
    made.verify_mode = ssl.CERT_REQUIRED
    with tempfile.TemporaryDirectory() as folder:  # ssl reads keys from files only
        file = Path(folder, "identity.pem")
        write_private(file, identity.key + identity.certificate)
        made.load_cert_chain(file)
    return made


def why_refused(address: str, identity: Identity | None, *, timeout_seconds: float) -> str:
    """Return why a scheduler does not accept this identity; empty if it does, or does not answer.

    Args:
        address: The scheduler's address, at which something accepts connections.
        identity: The certificate to show; None for a connection without encryption.
        timeout_seconds: How long to wait for a connection.
    """
    host, _, port = address.rpartition("://")[2].rpartition(":")
    target = (host.strip("[]"), int(port))
    if identity is None:
        return _why_not_plain(target, timeout_seconds)
    if identity.days_left < 0:
        return EXPIRED.format(path=identity.path, day=identity.last_day)
    try:
        with (
            socket.create_connection(target, timeout_seconds) as plain,
            context(identity).wrap_socket(plain) as encrypted,
        ):
            encrypted.settimeout(_ANSWER_SECONDS)
            with contextlib.suppress(TimeoutError):
                # In TLS 1.3, the refusal of a client's certificate follows the handshake.
                encrypted.recv(1)
    except ssl.SSLCertVerificationError as error:
        messages = {_NOT_YET_VALID: EARLY, _EXPIRED: EXPIRED_THERE}
        return messages.get(error.verify_code) or OTHER.format(path=identity.path)
    except ssl.SSLError as error:
        reason = (error.reason or str(error)).lower()
        if "alert" not in reason:
            return PLAIN
        if "expired" in reason:
            return EXPIRED.format(path=identity.path, day=identity.last_day)
        return OTHER.format(path=identity.path)
    except OSError:
        return ""  # it is gone, or busy: Dask tries again
    return ""


def _why_not_plain(target: tuple[str, int], timeout_seconds: float) -> str:
    # A scheduler without encryption speaks first; one with it waits for the client.
    with contextlib.suppress(OSError), socket.create_connection(target, timeout_seconds) as plain:
        plain.settimeout(_ANSWER_SECONDS)
        try:
            if plain.recv(1):
                return ""
        except TimeoutError:
            pass
    return ENCRYPTED if _speaks_tls(target, timeout_seconds) else ""


def _speaks_tls(target: tuple[str, int], timeout_seconds: float) -> bool:
    anyone = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    anyone.check_hostname = False
    anyone.verify_mode = ssl.CERT_NONE
    try:
        with socket.create_connection(target, timeout_seconds) as plain:
            plain.settimeout(_ANSWER_SECONDS)
            anyone.wrap_socket(plain).close()
    except ssl.SSLError as error:
        return "alert" in (error.reason or "").lower()
    except OSError:
        return False
    return True
