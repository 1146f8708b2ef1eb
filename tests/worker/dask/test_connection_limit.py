"""Connections of strangers to the ports of Dask's servers."""

from __future__ import annotations

import asyncio
import contextlib
import resource
import socket
from collections.abc import Iterator

import pytest
from distributed import Client, Scheduler

from hptune.security.certificates import in_memory
from hptune.worker.dask.connection_limit import limit_connections
from hptune.worker.dask.encryption import security

FILES = 400
"""Files that the process may open; a port keeps 100 connections of strangers then."""


@pytest.fixture
def few_files() -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (FILES, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


async def is_open(there: socket.socket) -> bool:
    """Return whether the other side keeps a connection on which nothing was said."""
    try:
        return bool(await asyncio.wait_for(asyncio.get_running_loop().sock_recv(there, 1), 0.01))
    except TimeoutError:
        return True
    except ConnectionError:
        return False


async def connected(port: int, at: str = "127.0.0.1") -> socket.socket:
    one = socket.create_connection(("127.0.0.1", port), source_address=(at, 0))
    one.setblocking(False)
    await asyncio.sleep(0.001)  # it is accepted
    return one


@pytest.mark.parametrize("page", [False, True], ids=["Dask's port", "the port for /health"])
def test_the_oldest_of_the_host_with_most_connections_is_closed(
    few_files: None, page: bool
) -> None:
    safe = security(in_memory())

    async def flood() -> None:
        async with Scheduler(
            host="127.0.0.1", port=0, security=safe, dashboard_address="127.0.0.1:0"
        ) as scheduler:
            limit_connections(scheduler)
            port = scheduler.http_server.port if page else scheduler.port
            async with Client(scheduler.address, security=safe, asynchronous=True) as client:
                with contextlib.ExitStack() as stack:
                    other = stack.enter_context(await connected(port, "127.0.0.2"))
                    flood = [stack.enter_context(await connected(port)) for _ in range(150)]
                    await asyncio.sleep(0.1)
                    kept = [await is_open(each) for each in flood]
                    assert kept == [False] * 51 + [True] * 99
                    assert await is_open(other)
                    assert await client.scheduler.identity()

    asyncio.run(flood())
