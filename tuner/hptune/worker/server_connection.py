"""`ServerConnection`: a runner's connection to a fork server."""

from __future__ import annotations

import contextlib
import threading

from ..errors import StudyError
from ..user_code.source import ObjectiveSource
from .forkserver.client import Client, ForkServer


class ServerConnection:
    """The connection to a fork server, made on demand, and again after it was lost.

    Args:
        source: The user's code, for a fork server of its own.
        address: A fork server to try first; None if there is none.
    """

    def __init__(self, source: ObjectiveSource, address: str | None) -> None:
        self._source = source
        self._address = address
        self._own: ForkServer | None = None
        self._is_closed = False
        self._connecting = threading.Lock()
        self._closing = threading.Lock()
        self.current: Client | None = None

    def client(self) -> Client:
        """Return the connection; the first call may wait for the server's imports.

        Raises:
            OSError: The fork server does not answer.
            StudyError: It cannot be started, or the runner closes.
        """
        with self._connecting:
            if self.current is None:
                self.current = self._connect()
            return self.current

    def _connect(self) -> Client:
        if self._address is not None:
            with contextlib.suppress(OSError):
                return Client(self._address)
            self._address = None
        with self._closing:
            if self._own is not None:
                self._own.close()
            if self._is_closed:
                raise StudyError("its worker has ended")
            own = self._own = ForkServer(self._source)
        own.wait_ready()
        return Client(own.address)

    def lose(self, client: Client) -> None:
        """Forget a connection that failed; the next call of `client` makes another one."""
        if self.current is client:
            self.current = None

    def close(self) -> None:
        """Close the connection, which kills its children, and the runner's own fork server."""
        with self._closing:
            self._is_closed = True
            if self.current is not None:
                self.current.close()
            if self._own is not None:
                self._own.close()
