"""Ports of attempts, which no other process of the machine gets."""

from __future__ import annotations

import errno
import socket


class ReservedPorts:
    """Two free ports of this machine: hptune's own, which listens, and the framework's.

    The framework's is that of `reserve`.

    Args:
        host: The address on which hptune's own port listens.

    Raises:
        OSError: There is no free port.
    """

    def __init__(self, host: str) -> None:
        try:
            self.listener = _bound(host)
        except OSError as error:
            if error.errno != errno.EADDRNOTAVAIL:
                raise
            self.listener = _bound(_all_like(host))  # a container's address outside, say
        try:
            self.listener.listen(128)
            self._framework: socket.socket | None = reserve(host)
        except OSError:
            self.listener.close()
            raise
        self.ports: tuple[int, int] = (
            self.listener.getsockname()[1],
            self._framework.getsockname()[1],
        )

    def release(self) -> None:
        """Give up the framework's port, right before its server binds it. May be repeated."""
        if self._framework is not None:
            self._framework.close()
            self._framework = None

    def close(self) -> None:
        """Give up all ports."""
        self.release()
        self.listener.close()


def reserve(host: str = "") -> socket.socket:
    """Return a socket that keeps a free port until it is closed.

    It is bound on all addresses and does not listen. A server that sets SO_REUSEADDR, as gRPC and
    torch's store do, binds the port and listens meanwhile, on one address or on all; the kernel
    gives it to nobody else.

    Args:
        host: An address of the kind that the port is for; empty for IPv4.

    Raises:
        OSError: There is no free port.
    """
    return _bound(_all_like(host))


def _all_like(host: str) -> str:
    return "::" if ":" in host else ""


def _bound(host: str) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    reserved = socket.socket(family)
    try:
        reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        reserved.bind((host, 0))
    except OSError:
        reserved.close()
        raise
    return reserved
