"""Addresses: where a Dask scheduler is, whether it answers, and where this machine is."""

from __future__ import annotations

import json
import socket
from pathlib import Path


def address_of(meeting: str) -> str:
    """A scheduler's address.

    Args:
        meeting: The address itself, such as `tcp://node1:8786`, or the path of a scheduler file.

    Returns:
        The address; empty while there is no such file, or it tells none.

    >>> address_of("tcp://node1:8786"), address_of("/nowhere.json")
    ('tcp://node1:8786', '')
    """
    if "://" in meeting:
        return meeting
    try:
        return str(json.loads(Path(meeting).read_text(encoding="utf-8"))["address"])
    except (OSError, ValueError, KeyError, TypeError):
        return ""


def outward() -> str:
    """The address of this machine's interface that leads out; empty if there is none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            # Sends nothing; the system chooses the interface.
            probe.connect(("192.0.2.1", 9))
        except OSError:
            return ""
        return str(probe.getsockname()[0])


def refusal(address: str, *, timeout_seconds: float) -> str:
    """Why nobody can be reached at an address; empty if somebody listens there.

    Dask itself would try again and again until its own time is up.

    >>> refusal("tcp://127.0.0.1:9", timeout_seconds=1.0)
    'Connection refused'
    """
    host, _, port = address.rpartition("://")[2].rpartition(":")
    if not host or not port.isdecimal():
        return "an address has a host and a port, as in tcp://node1:8786"
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout_seconds):
            return ""
    except (OSError, OverflowError) as error:
        return str(getattr(error, "strerror", None) or error)
