"""The certificate with which the processes of a study, or of a scheduler, recognise each other.

A folder of certificates has one file, with a key and its certificate (PEM, ECDSA P-256)::

    worker.pem    for the scheduler, and for workers and studies that connect: the one to copy

The certificate is signed with its own key, and accepted by those who have the same file. It may
not sign others. To exclude somebody who has a copy, make a new one (`hptune certs --renew`).

A file of the user's site may also have the certificate of an authority, whose certificates are
then accepted.
"""

from __future__ import annotations

import contextlib
import datetime
import fcntl
import os
import secrets
import socket
import stat
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import StudyError, UsageError
from ..files.access import replacing, whole_path

if TYPE_CHECKING:
    from cryptography import x509

WORKER = "worker.pem"

VALID_DAYS = 365
"""Days for which new certificates are valid."""

ENDING_DAYS = 30
"""Days before the end in which a warning is given."""

_DAY_SECONDS = 86_400
_SKEW = datetime.timedelta(days=1)
"""Certificates are valid from this long ago, as the clocks of machines differ."""

_OPEN = stat.S_IWGRP | stat.S_IRWXO
"""Rights to a key's file that nobody else may have; a group may be allowed to read it."""


@dataclass(frozen=True, slots=True, repr=False)
class Identity:
    """A certificate and its key, as PEM text, and the authority whose certificates it trusts.

    Attributes:
        key: The private key.
        certificate: The certificate.
        authority: The certificate of the authority that signed it: by default, itself.
        name: The authority's name, which tells the certificates of different studies apart.
        expires_at: When the certificate ends, in seconds since the epoch.
        path: The file that it was read from; empty for one in memory.
    """

    key: str
    certificate: str
    authority: str
    name: str
    expires_at: float
    path: str = ""

    def __repr__(self) -> str:
        return f"Identity({self.name!r}, {self.path!r})"

    @property
    def pem(self) -> str:
        """The contents of its file."""
        return "".join(dict.fromkeys((self.key, self.certificate, self.authority)))

    @property
    def days_left(self) -> float:
        """Days until the certificate ends; negative if it has ended."""
        return (self.expires_at - time.time()) / _DAY_SECONDS

    @property
    def last_day(self) -> str:
        """The day on which the certificate ends, such as 2027-11-22."""
        return time.strftime("%Y-%m-%d", time.localtime(self.expires_at))


def default_folder() -> Path:
    """Return the folder of the user's own certificates: `~/.config/hptune/certs`.

    `$XDG_CONFIG_HOME` replaces `~/.config`.

    Raises:
        UsageError: This user has no home directory.
    """
    folder = whole_path(os.environ.get("XDG_CONFIG_HOME") or "~/.config")
    if folder.parent.name == "~":
        raise UsageError("this user has no home directory; set HOME, or give --certs")
    return folder / "hptune" / "certs"


def ensure(folder: Path, *, days: float = 0.0, renew: bool = False) -> Identity:
    """Return the identity of a folder, which is made if it is missing.

    Several processes may call this at the same time; they get the same one.

    Args:
        folder: The folder; created for this user alone if it is missing.
        days: The days for which the certificate must still be valid; else a new one is made.
        renew: Whether to make a new one in any case.

    Raises:
        UsageError: The folder cannot be written, or every user may write there.
        StudyError: Its file is damaged, or other users may read it.
    """
    file = folder / WORKER
    try:
        with _locked(folder):
            if renew or not file.exists() or read(file).days_left <= days:
                write_private(file, in_memory().pem)
            return read(file)
    except OSError as error:
        raise UsageError(
            f"certificates cannot be made in {folder}: {error.strerror or error}. Choose another "
            "folder with --certs"
        ) from error


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    for each in (*reversed(folder.parents), folder):  # parents too, whatever the umask is
        each.mkdir(mode=0o700, exist_ok=True)
    opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        found = os.fstat(opened)
        if found.st_uid not in (0, os.geteuid()) or found.st_mode & stat.S_IWOTH:
            raise UsageError(
                f"other users may write to {folder}, and so replace certificates there. Choose "
                "another folder with --certs"
            )
        fcntl.flock(opened, fcntl.LOCK_EX)
        yield
    finally:
        os.close(opened)


def write_private(path: Path, text: str) -> None:
    """Write a file that only this user may read; one that exists is replaced at once.

    Raises:
        OSError: It cannot be written.
    """
    with replacing(path, has_others=True) as fresh:
        opened = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(opened, "w", encoding="ascii") as file:
            file.write(text)


def file_of(path: Path) -> Path:
    """Return the file for a worker or a study that connects: of a folder, its `worker.pem`."""
    return path / WORKER if path.is_dir() else path


def read(path: Path) -> Identity:
    """Read an identity from its file, or the worker's from a folder of certificates.

    Raises:
        StudyError: There is no such file, it holds something else, or others may read it.
    """
    path = file_of(path)
    try:
        with path.open(encoding="ascii") as file:
            found = os.fstat(file.fileno())
            text = file.read()
    except PermissionError as error:
        raise StudyError(f"{path} cannot be read: {_whose(path)}") from error
    except OSError as error:
        raise StudyError(
            f"the certificates in {path} cannot be read: {error.strerror}. `hptune certs` on the "
            "scheduler's machine shows which file to copy"
        ) from error
    except UnicodeDecodeError as error:
        raise _damaged(path) from error
    # Root in a container reads files of the user who mounts them.
    if found.st_uid not in (0, os.geteuid()) and os.geteuid() != 0:
        raise StudyError(f"{path} belongs to another user: {_whose(path)}")
    if found.st_mode & _OPEN:
        raise StudyError(
            f"other users may read or change {path}, which holds a private key; "
            f"`chmod 600 {path}` prevents it"
        )
    return _parsed(text, path)


def _whose(path: Path) -> str:
    """Return whose a file is that this process may not use, and what to do."""
    me = os.geteuid()
    try:
        found = path.stat()
    except OSError:
        return f"this process is user {me}, who may not enter its folder"
    return (
        f"its owner is user {found.st_uid}, and this process is user {me}. Copy it, so that it is "
        f"yours; in a container, start this as its owner (`docker run --user {found.st_uid}`)"
    )


def _parsed(text: str, path: Path) -> Identity:
    from cryptography import x509
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    try:
        key = load_pem_private_key(text.encode(), None)
        certificates = x509.load_pem_x509_certificates(text.encode())
        public = key.public_key()
        own = next(each for each in certificates if each.public_key() == public)
        (authority,) = [each for each in certificates if each != own] or [own]
        own.verify_directly_issued_by(authority)
    except (ValueError, TypeError, StopIteration, InvalidSignature) as error:
        raise _damaged(path) from error
    name = authority.subject.rfc4514_string().removeprefix("CN=")
    ends = min(own.not_valid_after_utc, authority.not_valid_after_utc)
    return Identity(_key(key), _pem(own), _pem(authority), name, ends.timestamp(), str(path))


def _damaged(path: Path) -> StudyError:
    return StudyError(
        f"{path} does not hold a key and its certificate, perhaps with its authority's. Copy the "
        "scheduler's worker.pem again (`hptune certs` shows where it is)"
    )


def in_memory() -> Identity:
    """Return a new identity that is in no file yet."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec

    begins = datetime.datetime.now(datetime.UTC) - _SKEW
    ends = begins + _SKEW + datetime.timedelta(days=VALID_DAYS)
    key = ec.generate_private_key(ec.SECP256R1())
    # A name of a certificate has at most 64 characters.
    text = f"hptune {socket.gethostname()[:40]} {secrets.token_hex(4)}"
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, text)])
    certificate = _pem(
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(begins)
        .not_valid_after(ends)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    return Identity(_key(key), certificate, certificate, text, ends.timestamp())


def _pem(certificate: x509.Certificate) -> str:
    from cryptography.hazmat.primitives.serialization import Encoding

    return certificate.public_bytes(Encoding.PEM).decode()


def _key(key: object) -> str:
    from cryptography.hazmat.primitives.serialization import (
        Encoding,
        NoEncryption,
        PrivateFormat,
    )

    text: bytes = key.private_bytes(  # type: ignore[attr-defined]  # every kind of key has it
        Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()
    )
    return text.decode()
