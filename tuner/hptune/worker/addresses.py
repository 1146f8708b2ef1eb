"""Addresses of Dask schedulers and of this machine."""

from __future__ import annotations

import json
import os
import re
import socket
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit


def address_of(scheduler: str) -> str:
    """Return a scheduler's address.

    Args:
        scheduler: An address, such as `tcp://node1:8786`, or the path of a scheduler file.

    Returns:
        The address; empty if there is no such file, or no address in it.

    >>> address_of("tcp://node1:8786"), address_of("/nowhere.json")
    ('tcp://node1:8786', '')
    """
    return scheduler if "://" in scheduler else _written_in(scheduler) or ""


def is_over(scheduler: str) -> bool:
    """Return whether a scheduler's file says that no worker is needed now.

    >>> is_over("tcp://node1:8786"), is_over("/nowhere.json")
    (False, False)
    """
    return "://" not in scheduler and _written_in(scheduler) == ""


def has_ended(scheduler: str) -> bool:
    """Return whether a scheduler's file says that its study has ended.

    >>> has_ended("tcp://node1:8786"), has_ended("/nowhere.json")
    (False, False)
    """
    return "://" not in scheduler and bool(_content(scheduler).get("has_ended"))


def _written_in(file: str) -> str | None:
    """Return the address in a scheduler file; None if there is no such file, or no address."""
    address = _content(file).get("address")
    return None if address is None else str(address)


def _content(file: str) -> Mapping[str, object]:
    try:
        found = json.loads(Path(file).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def holds_address(file: str) -> bool:
    """Return whether a file is a scheduler file, also one that says that no worker is needed."""
    address = _written_in(file)
    return address is not None and (not address or "://" in address)


def tunnel(page: str, environment: Mapping[str, str] = os.environ) -> str:
    """Return the command that shows a page of this machine on the user's own machine.

    Empty if the user seems to sit at this machine, or if the page can be reached from others.

    Args:
        page: The address of the page.
        environment: This process's environment.
    """
    found = re.match(r"http://(127\.0\.0\.1|localhost):(\d+)", page)
    is_remote = not environment.keys().isdisjoint(("SSH_CONNECTION", "SSH_CLIENT", "SLURM_JOB_ID"))
    if found is None or not is_remote:
        return ""
    user = environment.get("USER", "")
    host = f"{user}@{socket.gethostname()}" if user else socket.gethostname()
    return f"ssh -N -L {found[2]}:127.0.0.1:{found[2]} {host}"


def behind_hub(page: str, environment: Mapping[str, str] = os.environ) -> str:
    """Return the path of a page of this machine behind the proxy of a JupyterHub; empty without.

    >>> behind_hub("http://127.0.0.1:8799/a/?token=b", {"JUPYTERHUB_SERVICE_PREFIX": "/user/ada/"})
    '/user/ada/proxy/8799/a/?token=b'
    """
    prefix, place = environment.get("JUPYTERHUB_SERVICE_PREFIX", ""), urlsplit(page)
    return f"{prefix}proxy/{place.port}{place.path}?{place.query}" if prefix else ""


def host_of(address: str) -> str:
    """Return the host in a Dask worker's address; empty if it has none.

    >>> host_of("tcp://10.0.0.1:4000"), host_of("tls://[fe80::1]:4000"), host_of("inproc://a/1/2")
    ('10.0.0.1', 'fe80::1', '')
    """
    found = re.fullmatch(r"\w+://\[?([^\]/]+)\]?:\d+", address)
    return found[1] if found else ""


def interface_name(host: str) -> str:
    """Return the name of the network interface with this address; empty if there is none."""
    import psutil

    for name, addresses in psutil.net_if_addrs().items():
        if any(address.address.partition("%")[0] == host for address in addresses):
            return str(name)
    return ""


def outward() -> str:
    """Return the address of this machine's default network interface; empty if it has none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            # Sends nothing: the system only chooses the interface.
            probe.connect(("192.0.2.1", 9))
        except OSError:
            return ""
        return str(probe.getsockname()[0])


def reach(address: str, *, timeout_seconds: float) -> str:
    """Return this machine's own address on the way to an address that accepts connections.

    Raises:
        OSError: There is no connection.
    """
    host, _, port = address.rpartition("://")[2].rpartition(":")
    if not host or not port.isdecimal():
        raise OSError("an address has a host and a port, such as tcp://node1:8786")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout_seconds) as connected:
            own = str(connected.getsockname()[0])
            return f"[{own}]" if ":" in own else own
    except OverflowError as error:
        raise OSError(str(error)) from error


def refusal(address: str, *, timeout_seconds: float) -> str:
    """Return why there is no connection to an address; empty if there is one.

    Dask would try again until its own timeout.

    >>> refusal("tcp://127.0.0.1:9", timeout_seconds=1.0)
    'Connection refused'
    """
    try:
        reach(address, timeout_seconds=timeout_seconds)
    except OSError as error:
        return str(error.strerror or error)
    return ""
