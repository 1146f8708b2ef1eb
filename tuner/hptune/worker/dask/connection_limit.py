"""A limit of connections without a certificate, so that strangers do not use up a process's files.

A process that can open no more files starts no trial, writes no log and reaches no scheduler. Dask
accepts every connection, and waits without a limit for a certificate.
"""

from __future__ import annotations

import resource
import ssl
import time
from collections import Counter
from typing import Any

from tornado.iostream import IOStream
from tornado.tcpserver import TCPServer

_SHARE = 4
"""Connections of strangers to one port get this share of the files that a process may open."""

_MOST = 512
"""Their largest number, where a process may open many files."""

_YOUNG_SECONDS = 10.0
"""Until then, a connection may be that of a worker. Hundreds join at once where a scheduler begins,
and one that is closed meanwhile does not try again. So twice as many young ones are kept."""


def limit_connections(server: Any) -> None:
    """Limit the connections of strangers to the ports of a server of Dask's that listens.

    A connection too many closes the oldest one of the host that has most of them.

    Args:
        server: A scheduler or a worker. One without certificates is open to everybody, so
            that only its port for `/health` has a limit.
    """
    for listener in server.listeners:
        if listener.prefix == "tls://":
            _limit(listener.tcp_server, young_seconds=_YOUNG_SECONDS)
    if hasattr(server, "http_server"):
        _limit(server.http_server, young_seconds=0.0)


def limit_at_scheduler(dask_scheduler: Any = None) -> None:
    """Limit the connections to a client's scheduler; for `Client.run_on_scheduler`."""
    limit_connections(dask_scheduler)


def _limit(port: TCPServer, *, young_seconds: float) -> None:
    serve: Any = port.handle_stream
    strangers: dict[IOStream, tuple[str, float]] = {}

    async def handle(stream: IOStream, address: Any) -> None:
        # Dask would wait for ever for the certificate of a connection that is closed already.
        if not stream.closed() and (served := serve(stream, address)) is not None:
            await served

    def admit(stream: IOStream, address: Any) -> Any:
        for each in [known for known in strangers if not _is_stranger(known)]:
            del strangers[each]
        now = time.monotonic()
        strangers[stream] = str(address[0]), now
        while len(strangers) > (most := _limit_now()):
            ((host, _),) = Counter(of for of, _ in strangers.values()).most_common(1)
            oldest = next(each for each, (of, _) in strangers.items() if of == host)
            is_young = now - strangers[oldest][1] < young_seconds
            if is_young and len(strangers) <= 2 * most:
                break
            del strangers[oldest]
            oldest.close()
        return handle(stream, address)

    port.handle_stream = admit  # type: ignore[method-assign]  # as Dask itself does


def _is_stranger(stream: IOStream) -> bool:
    if stream.closed():
        return False
    # Encryption has a version when the handshake is over, and with it the check of certificates.
    return not (isinstance(stream.socket, ssl.SSLSocket) and stream.socket.version())


def _limit_now() -> int:
    may_open, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _MOST if may_open < 0 else min(_MOST, may_open // _SHARE)
