"""Health of the schedulers and workers of this user here: what a container's health check asks.

A scheduler, and a worker that has joined one, answer `/health` on a port of loopback. They write
the address into a private folder of its own, where `python -m hptune.worker.health` finds it: their
files may be elsewhere. That needs only the standard library, as a container asks several times a
minute.
"""

from __future__ import annotations

import os
import sys
import tempfile
import urllib.error
import urllib.request
from contextlib import AbstractContextManager
from pathlib import Path

from .private_folder import NAME, is_in_use, server_folder

_FILE = "health"
_PREFIX = f"health-{NAME}"
_ANSWER_SECONDS = 3.0


def health_folder(parent: str | None = None) -> AbstractContextManager[Path]:
    """Return a context with the folder of a server that announces its health.

    Args:
        parent: The directory of such folders; None for the temporary directory.
    """
    return server_folder(parent, prefix=_PREFIX)


def announce(folder: Path, port: int | None) -> None:
    """Write the port that answers `/health` into this folder; None if there is none now."""
    if port is None:
        (folder / _FILE).unlink(missing_ok=True)
        return
    new = folder / f"{_FILE}.new"
    new.write_text(f"http://127.0.0.1:{port}/health")
    new.replace(folder / _FILE)


def check(parent: Path | None = None) -> str:
    """Return why a server of this user is not healthy; empty if all are.

    Args:
        parent: The directory of the servers' folders; None for the temporary directory.
    """
    folders = (parent or Path(tempfile.gettempdir())).glob(f"{_PREFIX}*")
    servers = [folder for folder in folders if is_in_use(folder)]
    if not servers:
        return "no scheduler or worker runs here"
    for server in servers:
        try:
            url = (server / _FILE).read_text()
        except FileNotFoundError:
            return "the worker has not joined a scheduler"
        try:
            urllib.request.urlopen(url, timeout=_ANSWER_SECONDS).close()  # noqa: S310 - it is HTTP
        except (OSError, urllib.error.URLError) as error:
            return f"{url} does not answer: {error}"
    return ""


def main() -> None:
    """Exit with status 0 if all is well, else with 1 and the reason."""
    os.environ["no_proxy"] = "*"
    if why := check():
        sys.stderr.write(f"{why}\n")
        raise SystemExit(1)


if __name__ == "__main__":
    main()
