"""Connections of strangers to the ports of Dask's servers."""

from __future__ import annotations

import asyncio
import contextlib
import resource
import socket
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from distributed import Client, Scheduler
from distributed.comm.core import connect

from hptune.security.certificates import in_memory
from hptune.worker.dask import connection_limit
from hptune.worker.dask.connection_limit import limit_connections
from hptune.worker.dask.encryption import security

FILES = 400
"""Files that the process may open; a port keeps 100 connections of strangers then."""

SAFE = security(in_memory())


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


async def kept_of(flood: list[socket.socket], *, closed: int) -> list[bool]:
    """Return which connections are kept, once this many or more are closed."""
    while (kept := [await is_open(each) for each in flood]).count(False) < closed:
        await asyncio.sleep(0.01)
    return kept


async def connected(port: int, at: str = "127.0.0.1") -> socket.socket:
    one = socket.create_connection(("127.0.0.1", port), source_address=(at, 0))
    one.setblocking(False)
    await asyncio.sleep(0.001)  # it is accepted
    return one


@pytest.mark.parametrize("page", [False, True], ids=["Dask's port", "the port for /health"])
def test_the_oldest_of_the_host_with_most_connections_is_closed(
    few_files: None, page: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection_limit, "_YOUNG_SECONDS", 0.0)

    async def flood() -> None:
        async with listening() as scheduler:
            port = scheduler.http_server.port if page else scheduler.port
            async with Client(scheduler.address, security=SAFE, asynchronous=True) as client:
                with contextlib.ExitStack() as stack:
                    other = stack.enter_context(await connected(port, "127.0.0.2"))
                    flood = [stack.enter_context(await connected(port)) for _ in range(150)]
                    kept = await kept_of(flood, closed=51)
                    assert kept == [False] * 51 + [True] * 99
                    assert await is_open(other)
                    assert await client.scheduler.identity()

    asyncio.run(flood())


def test_many_workers_that_join_at_once_are_no_strangers(few_files: None) -> None:
    async def join() -> None:
        async with listening() as scheduler:
            shown = SAFE.get_connection_args("worker")
            calls = [connect(scheduler.address, **shown) for _ in range(150)]
            for comm in await asyncio.gather(*calls):
                comm.abort()

    asyncio.run(join())


def test_of_strangers_who_just_came_twice_as_many_are_kept(
    few_files: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection_limit, "_MOST", 20)
    monkeypatch.setattr(connection_limit, "_YOUNG_SECONDS", 1e6)

    async def flood() -> None:
        async with listening() as scheduler:
            with contextlib.ExitStack() as stack:
                flood = [stack.enter_context(await connected(scheduler.port)) for _ in range(60)]
                kept = await kept_of(flood, closed=20)
                assert kept == [False] * 20 + [True] * 40

    asyncio.run(flood())


@contextlib.asynccontextmanager
async def listening() -> AsyncIterator[Any]:
    async with Scheduler(
        host="127.0.0.1",
        port=0,
        security=SAFE,
        dashboard=False,
        dashboard_address="127.0.0.1:0",
    ) as scheduler:
        limit_connections(scheduler)
        yield scheduler
