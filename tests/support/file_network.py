"""A master and workers that do not see its directory: the exchange of files without a network."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from hptune.core.attempt import AttemptId
from hptune.core.messages import WorkerJoined
from hptune.core.resources import Capacity
from hptune.executors.file_exchange import FileExchange
from hptune.user_code.source import ObjectiveSource, SourceKind
from hptune.worker.dask.announcement import Announcement
from hptune.worker.dask.study_access import StudyAccess
from hptune.worker.transport.files import INCOMING
from hptune.worker.transport.notices import FileNotice
from hptune.worker.transport.remote_study import NotSent, RemoteStudy
from real_runs import wait_for

FIRST, SECOND = AttemptId(3, 0), AttemptId(3, 1)
LIMIT_BYTES = 20_000_000


class Clock:
    """A clock that a test can set ahead.

    Attributes:
        ahead: By how many seconds.
    """

    def __init__(self) -> None:
        self.ahead = 0.0

    def monotonic(self) -> float:
        return time.monotonic() + self.ahead


class Network:
    """A master's event loop, its exchange, and calls to the workers in it."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "study"
        (self.root / "trials").mkdir(parents=True)
        (self.root / "code").mkdir()
        (self.root / "code" / "model.py").write_text("x = 1")
        self.folder = folder
        self.workers: dict[str, RemoteStudy] = {}
        self.running: set[tuple[str, int]] = set()
        self.joined: dict[str, Announcement] = {}
        self.calls: list[str] = []
        self.before_call: Callable[[str], None] = lambda _name: None
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever)
        self._thread.start()
        access = StudyAccess(
            str(self.root),
            "token",
            ObjectiveSource(SourceKind.FILE, "/elsewhere/model.py"),
            {"model.py": ""},
            ("code/model.py",),
            LIMIT_BYTES,
        )
        self.exchange = FileExchange(
            client=self,
            name="study",
            access=access,
            runs=lambda *key: key in self.running,
            joined=lambda: self.joined,
        )

    def join(self, name: str, node: str, *, sees_directory: bool = False) -> None:
        """Let a worker join."""
        event = WorkerJoined(0.0, name, node, Capacity((0,)))
        self.joined[name] = Announcement(event, sees_directory=sees_directory)

    async def run(
        self,
        function: Any,
        name: str,
        method: str,
        *arguments: Any,
        workers: list[str],
        **_: object,
    ) -> dict[str, Any]:
        """As the method of Dask's client."""
        self.calls.append(method)
        self.before_call(method)
        attempts = SimpleNamespace(remote=self.workers[workers[0]])
        plugin = SimpleNamespace(attempts=attempts)
        there = SimpleNamespace(plugins={"study": plugin})
        return {workers[0]: await function(name, method, *arguments, dask_worker=there)}

    def tell(self, notice: FileNotice) -> None:
        asyncio.run_coroutine_threadsafe(self.exchange.handle(notice), self.loop)

    def worker(self, name: str) -> RemoteStudy:
        path = self.folder / name
        path.mkdir()
        study = RemoteStudy(path, worker=name, limit_bytes=LIMIT_BYTES, tell=self.tell)
        self.workers[name] = study
        return study

    def begin(self, name: str, attempt: AttemptId) -> Path:
        """Begin an attempt on a worker; return its trial's directory there."""
        self.running.add((name, attempt.trial))
        self.workers[name].begin(attempt)
        return self.workers[name].path / "trials" / str(attempt.trial)

    def finish(self, name: str, attempt: AttemptId) -> NotSent | None:
        """End an attempt, and return what is not sent."""
        found: list[NotSent | None] = []
        self.workers[name].finish(attempt, found.append)
        wait_for(lambda: found, "the attempt's end")
        self.running.discard((name, attempt.trial))
        return found[0]

    @property
    def trial(self) -> Path:
        """The trial's directory at the master."""
        return self.root / "trials" / "3"

    def close(self) -> None:
        for each in self.workers.values():
            each.close()
        wait_for(lambda: not self.exchange._busy, "the end of what is on its way")
        asyncio.run_coroutine_threadsafe(self._end_calls(), self.loop).result()
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()
        left = [each.name for each in (self.root / INCOMING).glob("*")]
        assert left == []

    async def _end_calls(self) -> None:
        """End what still runs: a coroutine that outlives its loop fails whichever test is next."""
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for each in others:
            each.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        await self.loop.shutdown_default_executor()


def write(path: Path, contents: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(contents)


def save(path: Path, contents: bytes) -> None:
    """Write a checkpoint, which is whole as soon as it has its name."""
    fresh = path.with_name(f".{path.name}.tmp")
    write(fresh, contents)
    fresh.replace(path)
