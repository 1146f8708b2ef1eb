"""Calls of the master to a worker, without Dask."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

from hptune.worker.dask.calls import on_files


def test_a_master_is_heard_while_every_thread_waits_for_a_disk() -> None:
    answers, heard = threading.Event(), list[str]()
    remote = SimpleNamespace(put=answers.wait, heard=lambda: heard.append("the master"))
    attempts = SimpleNamespace(remote=remote)
    worker: Any = SimpleNamespace(plugins={"study": SimpleNamespace(attempts=attempts)})

    async def call() -> None:
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
        waits = asyncio.ensure_future(on_files("study", "put", dask_worker=worker))
        try:
            await asyncio.wait_for(on_files("study", "heard", dask_worker=worker), 10.0)
        finally:
            answers.set()
            await waits

    asyncio.run(call())
    assert heard == ["the master"]
