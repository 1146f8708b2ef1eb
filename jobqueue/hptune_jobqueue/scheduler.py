"""A Dask scheduler in this process that workers on a cluster's nodes can reach."""

from __future__ import annotations

import contextlib
import socket
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from .errors import ConfigError

ALL = "0.0.0.0"  # noqa: S104 - where no network is named, and none leads to all nodes
"""All network interfaces of this machine."""

_HTTP = {
    # By default the scheduler shows its logs and call stacks to everybody on its machine.
    "distributed.scheduler.http.routes": ["distributed.http.health"]
}

_DISMISS_SECONDS = 5.0
"""How long the workers may take to close."""

_NODES_ASKED = 16
"""How many nodes are resolved at most to find the network that leads to them."""


@dataclass(frozen=True, slots=True)
class JoinedWorker:
    """A worker that has joined.

    Attributes:
        name: Its name in Dask.
        address: Its address.
        is_busy: Whether anything runs on it.
    """

    name: str
    address: str
    is_busy: bool


class OwnScheduler:
    """The scheduler, which listens from construction on. `close` it in the end.

    Args:
        nodes: Returns the names or addresses of the nodes; called if no interface is named.
        interface: The network interface to listen on, such as `ib0`; None for the one that leads
            to the nodes, or all interfaces if that is unknown.
        security: Dask's object with the scheduler's certificate. None for no encryption: then
            everybody who reaches the scheduler can run code as this user.

    Raises:
        ConfigError: It cannot listen there.
        SlurmUnavailableError: The nodes cannot be listed.
    """

    def __init__(
        self,
        nodes: Callable[[], Sequence[str]],
        *,
        interface: str | None = None,
        security: Any = None,
    ) -> None:
        # Imported here because it loads Dask.
        import dask
        from distributed import LocalCluster

        # Dask imports modules from the folder of its files, which by default all users share.
        self._scratch = tempfile.TemporaryDirectory(
            prefix="dask-jobs-",
            dir=dask.config.get("temporary-directory", None),
            ignore_cleanup_errors=True,
        )
        try:
            with dask.config.set({"temporary-directory": self._scratch.name, **_HTTP}):
                self._dask: Any = LocalCluster(
                    n_workers=0,
                    host=None if interface else address_towards(nodes()) or ALL,
                    interface=interface,
                    protocol="tcp://" if security is None else "tls://",
                    security=security,
                    dashboard_address="127.0.0.1:0",
                    scheduler_kwargs={"dashboard": False},  # whose import takes a second and 20 MB
                    silence_logs=50,
                )
        except (OSError, RuntimeError, ValueError) as error:
            self._scratch.cleanup()
            raise ConfigError(f"no Dask scheduler can listen here: {error}") from error

    @property
    def address(self) -> str:
        """The scheduler's address."""
        return str(self._dask.scheduler.address)

    def workers(self) -> list[JoinedWorker]:
        """Return the workers that have joined."""
        there = list(self._dask.scheduler.workers.values())
        return [JoinedWorker(str(each.name), each.address, bool(each.processing)) for each in there]

    def dismiss(self) -> None:
        """Have the workers close; returns at once if there is none."""
        if not (addresses := [worker.address for worker in self.workers()]):
            return
        with contextlib.suppress(OSError, RuntimeError, TimeoutError):
            self._dask.sync(
                self._dask.scheduler.retire_workers,
                workers=addresses,
                close_workers=True,
                remove=True,
                callback_timeout=_DISMISS_SECONDS,
            )

    def remove_files(self) -> None:
        """Remove its folder; for a process that ends without `close`."""
        self._scratch.cleanup()

    def close(self) -> None:
        """Stop the scheduler; may be repeated."""
        with contextlib.suppress(OSError, RuntimeError, TimeoutError):
            self._dask.close(timeout=20)
        self._scratch.cleanup()


def address_towards(nodes: Sequence[str]) -> str | None:
    """Return this machine's address in the network of the nodes; None if that is unknown.

    Args:
        nodes: Their names or addresses; of many, a sample is used.
    """
    found = set()
    for node in nodes[:: max(1, len(nodes) // _NODES_ASKED)]:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            try:
                # Sends nothing; the system chooses the interface.
                probe.connect((node, 9))
            except OSError:
                continue
            found.add(str(probe.getsockname()[0]))
    # This machine may be one of the nodes.
    outside = {each for each in found if not each.startswith("127.")}
    return outside.pop() if len(outside) == 1 else None
