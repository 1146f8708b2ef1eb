"""The master's half of the exchange of files with workers that do not see the study's directory.

The master reads and writes files of the workers by calls over Dask's connections, piece by piece;
while it writes one, the next one is read (see `worker.transport`). A worker's notice is checked
first: the trial must run on that worker now, and the file must be one of that trial's.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
import weakref
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..core.resources import size
from ..worker.dask.announcement import Announcement
from ..worker.dask.calls import FileCall, on_files
from ..worker.dask.plugin import PING_SECONDS
from ..worker.dask.study_access import StudyAccess
from ..worker.transport.file_requests import SILENT_SECONDS
from ..worker.transport.files import (
    TRIALS,
    FileState,
    RefusedPath,
    checked_of_trial,
    files_below,
    is_log,
    read_piece,
    state_of,
    sweep,
    words_of,
)
from ..worker.transport.local_study import BROUGHT, CHECKPOINT, is_unfinished
from ..worker.transport.notices import Change, FileNotice, FilesChanged, FilesWanted, LeftOut
from ..worker.transport.remote_study import NotSent
from .file_pieces import Pieces, Progress, groups_of, read_ahead, size_of
from .file_reception import FileReception

log = logging.getLogger(__name__)

_AT_ONCE = 4
"""Pieces that travel at the same time: at most 32 MiB of files are in the master's memory."""

_CALL_SECONDS = 60.0
"""Longest time for one piece, also over a slow line."""

_AT_WORK_SECONDS = SILENT_SECONDS / 3
"""Seconds between two calls that tell a worker that its request is being worked on."""


class _Refused(Exception):
    """A worker asked for something that it may not have."""


@dataclass(slots=True)
class _TransferLine:
    """How files get to the workers, as the user was told.

    Attributes:
        shown: The last line.
        words: What is so now.
        since: Since when.
    """

    shown: str = ""
    words: str = ""
    since: float = 0.0

    def lines(self, nodes: Sequence[str], *, others: int) -> list[str]:
        """Return a line if that has changed, but not within the last second.

        Args:
            nodes: The nodes of the workers that get files over the connection.
            others: The number of other workers.
        """
        words, now = _transfer_text(nodes, others), time.monotonic()
        if words != self.words:
            self.words, self.since = words, now
        is_news = words not in ("", self.shown) and now - self.since > 1.0
        # Without such workers it is as the user expects, once that was said.
        if not is_news or (self.shown and not nodes):
            return []
        self.shown = words
        return [words]


def _transfer_text(nodes: Sequence[str], others: int) -> str:
    """Return how files get to the workers, in words; empty without workers."""
    if not nodes:
        return "files: shared directory" if others else ""
    named = ", ".join(dict.fromkeys(nodes[:3])) + (" …" if len(set(nodes)) > 3 else "")
    count = f"{len(nodes)} worker{'s' if len(nodes) > 1 else ''} on {named}"
    if others:
        return f"files: shared directory; over the connection for {count}"
    return f"files: over the connection ({count})"


class FileExchange:
    """Sends files to workers and takes files from them.

    All methods but `lines` are called from the thread of Dask's client.

    Args:
        client: The client of the workers' scheduler.
        name: The study's name on the workers.
        access: The study's directory and the user's code in it.
        runs: Returns whether an attempt of a trial runs on a worker.
        joined: Returns what the workers of the study have announced.
    """

    def __init__(
        self,
        *,
        client: Any,
        name: str,
        access: StudyAccess,
        runs: Callable[[str, int], bool],
        joined: Callable[[], Mapping[str, Announcement]],
    ) -> None:
        self._client = client
        self._name = name
        self._access = access
        self._root = Path(access.directory)
        self._runs = runs
        self._joined = joined
        self._lines: deque[str] = deque()
        self._busy: set[tuple[str, int | None]] = set()
        self._log_starts: dict[tuple[str, int], tuple[int, dict[str, int]]] = {}
        self._transfer = _TransferLine()
        self._turns = weakref.WeakValueDictionary[int, asyncio.Lock]()
        self._places = asyncio.Semaphore(_AT_ONCE)
        self._is_closed = False
        sweep(self._root)

    def close(self) -> None:
        """Take no more files."""
        self._is_closed = True
        sweep(self._root)

    @property
    def _nodes(self) -> dict[str, str]:
        """The nodes of the workers that do not see the directory."""
        return {
            worker: each.event.node
            for worker, each in self._joined().items()
            if not each.sees_directory
        }

    async def ping(self) -> None:
        """Tell the workers from now on, again and again, that the master is alive."""
        if self._is_closed:
            return
        with contextlib.suppress(Exception):
            if workers := [*self._nodes]:
                called = self._client.run(
                    on_files, self._name, "heard", workers=workers, on_error="ignore"
                )
                # One worker that hangs must not keep the call from the others.
                await asyncio.wait_for(called, PING_SECONDS)
        self._client.loop.call_later(PING_SECONDS, self.ping)

    def lines(self) -> Sequence[str]:
        """Return lines for the user since the last call; called by any thread."""
        nodes = self._nodes
        lines = self._transfer.lines([*nodes.values()], others=len(self._joined()) - len(nodes))
        with contextlib.suppress(IndexError):
            while True:
                lines.append(self._lines.popleft())
        return lines

    # --- notices ----------------------------------------------------------------------------

    async def handle(self, notice: FileNotice) -> None:
        """Do what a worker asks for, and tell it the result."""
        key = (notice.worker, notice.trial)
        if key in self._busy or self._is_closed:
            return  # a worker asks again if there is no answer
        self._busy.add(key)
        at_work = asyncio.ensure_future(self._tell_at_work(notice))
        method: FileCall
        results: tuple[object, ...]
        try:
            # In turn: a file of a worker that has lost the trial is written before the trial's
            # next attempt gets the files elsewhere, or not at all.
            async with self._turn_of(notice.trial):
                if isinstance(notice, FilesWanted):
                    method, results = "brought", (await self._bring(notice),)
                else:
                    method, results = "taken", await self._receive(notice)
        except Exception as error:  # the worker is gone, say
            log.debug("files of %s: %r", key, error)
            return
        finally:
            at_work.cancel()
            # Before the answer, after which the worker may have its next notice.
            self._busy.discard(key)
        with contextlib.suppress(Exception):  # as above
            await self._call(notice.worker, method, notice.ticket, *results)

    def _turn_of(self, trial: int | None) -> asyncio.Lock:
        # Nothing is written to the code, so all workers get it at once.
        return asyncio.Lock() if trial is None else self._turns.setdefault(trial, asyncio.Lock())

    async def _tell_at_work(self, notice: FileNotice) -> None:
        """Keep a worker waiting while its files are in a queue, or written to a slow disk."""
        while True:
            await asyncio.sleep(_AT_WORK_SECONDS)
            with contextlib.suppress(Exception):  # the worker is gone, say
                await self._call(notice.worker, "touch", notice.ticket)

    async def _bring(self, wanted: FilesWanted) -> str:
        """Send files to a worker; return why that failed, or ""."""
        error = ""
        try:
            states = await asyncio.to_thread(self._wanted, wanted)
            what = "the code" if wanted.trial is None else f"files of trial {wanted.trial}"
            node = self._nodes.get(wanted.worker, wanted.worker)
            total = sum(state.size_bytes for state in states)
            progress = Progress(f"{what} to {node}", total, self._lines.append)
            groups = groups_of([Change(state) for state in states])
            async with contextlib.aclosing(
                read_ahead(groups, self._read_own, self._places)
            ) as groups_read:
                async for pieces in groups_read:
                    found = [(part.state, piece) for part, piece in pieces]
                    error = await self._call(wanted.worker, "put", wanted.ticket, found)
                    progress.add(size_of(pieces))
                    if error:
                        break
        except _Refused as refused:
            error = str(refused)
        except (OSError, ValueError) as failure:
            error = words_of(failure)
        return error

    def _wanted(self, wanted: FilesWanted) -> list[FileState]:
        """Return the files that a worker asks for.

        Raises:
            _Refused: It may not have them.
        """
        limit = self._access.limit_bytes
        if wanted.trial is None:
            return self._code()
        if not self._runs(wanted.worker, wanted.trial):
            raise _Refused(f"trial {wanted.trial} does not run there")
        found = []
        for folder in BROUGHT:
            path = f"{TRIALS}/{wanted.trial}/{folder}"
            states = [
                each for each in files_below(self._root, path) if not is_unfinished(each.path)
            ]
            # An objective's own files belong together.
            whole = sum(state.size_bytes for state in states)
            if folder == CHECKPOINT and whole > limit:
                self._left_out(wanted.trial, LeftOut(path, whole))
                continue
            for state in states:
                if state.size_bytes > limit:
                    self._left_out(wanted.trial, LeftOut(state.path, state.size_bytes))
                else:
                    found.append(state)
        return found

    def _code(self) -> list[FileState]:
        """Return the files of the user's code.

        Raises:
            _Refused: They are not there, or too large.
        """
        found: list[FileState] = []
        if not self._access.files:
            raise _Refused(f"its code is missing in {self._root}")
        for path in self._access.files:
            state = state_of(self._root, path)
            if state is None:
                raise _Refused(f"{self._root / path} is missing")
            if state.size_bytes > self._access.limit_bytes:
                raise _Refused(_over(LeftOut(path, state.size_bytes), self._access.limit_bytes))
            found.append(state)
        return found

    async def _read_own(self, parts: Sequence[Change]) -> Pieces:
        """Read pieces of files of the study."""

        def read() -> Pieces:
            return [(part, read_piece(self._root, part.state, part.offset)) for part in parts]

        return await asyncio.to_thread(read)

    async def _receive(self, notice: FilesChanged) -> tuple[list[str], NotSent | None]:
        """Take files of a worker; return those that were taken, and why the others were not."""
        reception = FileReception(self._root, self._log_starts_of(notice))
        not_sent = None
        try:
            self._check(notice)
            for left_out in notice.changes.left_out:
                self._left_out(notice.trial, left_out)
            await self._receive_files(notice, reception)
            for path in notice.changes.gone:
                self._check_runs(notice)
                await asyncio.to_thread(reception.remove, path)
        except _Refused as refused:
            not_sent = NotSent(str(refused))
        except (OSError, ValueError) as error:  # the worker does not answer, say
            not_sent = NotSent(words_of(error))
        finally:
            reception.close()
        return reception.taken, not_sent or reception.not_sent

    def _log_starts_of(self, notice: FilesChanged) -> dict[str, int]:
        """Return where the logs of a trial's stay on a worker begin in those of the study."""
        key = notice.worker, notice.trial
        if key not in self._log_starts or self._log_starts[key][0] != notice.session:
            kept = {other: found for other, found in self._log_starts.items() if self._runs(*other)}
            self._log_starts = {**kept, key: (notice.session, {})}
        return self._log_starts[key][1]

    async def _receive_files(self, notice: FilesChanged, reception: FileReception) -> None:
        node = self._nodes.get(notice.worker, notice.worker)
        total = sum(each.state.size_bytes - each.offset for each in notice.changes.changed)
        progress = Progress(f"trial {notice.trial} from {node}", total, self._lines.append)

        async def read(group: Sequence[Change]) -> Pieces:
            self._check_runs(notice)
            parts = [each for each in group if reception.wants(each.state.path)]
            if not parts:
                return []
            pieces = await self._call(notice.worker, "read", notice.ticket, parts)
            return [*zip(parts, pieces, strict=True)]

        groups = groups_of(notice.changes.changed)
        async with contextlib.aclosing(read_ahead(groups, read, self._places)) as groups_read:
            async for pieces in groups_read:
                for part, piece in pieces:
                    # Another attempt of the trial may run elsewhere by now.
                    self._check_runs(notice)
                    await asyncio.to_thread(reception.add, part, piece)
                progress.add(size_of(pieces))

    def _check(self, notice: FilesChanged) -> None:
        """Check that a worker may have all these files written.

        Raises:
            _Refused: The trial does not run there, or a file is none of its files.
        """
        self._check_runs(notice)
        limit, changes = self._access.limit_bytes, notice.changes
        try:
            for path in (*(each.state.path for each in changes.changed), *changes.gone):
                checked_of_trial(path, notice.trial)
        except RefusedPath as error:
            raise _Refused(str(error)) from error
        for each in changes.changed:
            if each.state.size_bytes > limit and not is_log(each.state.path):
                raise _Refused(_over(LeftOut(each.state.path, each.state.size_bytes), limit))

    def _check_runs(self, notice: FilesChanged) -> None:
        if self._is_closed or not self._runs(notice.worker, notice.trial):
            raise _Refused(f"trial {notice.trial} does not run there")

    def _left_out(self, trial: int, what: LeftOut) -> None:
        self._lines.append(f"trial {trial}: {_over(what, self._access.limit_bytes)}")

    async def _call(self, worker: str, method: FileCall, ticket: int, *arguments: object) -> Any:
        """Call a method of a worker's `RemoteStudy`, and return its result.

        Raises:
            TimeoutError: It does not answer.
            OSError: It is gone, or has left the study.
        """
        called = self._client.run(
            on_files, self._name, method, ticket, *arguments, workers=[worker]
        )
        try:
            answers: Mapping[str, Any] = await asyncio.wait_for(called, _CALL_SECONDS)
        except TimeoutError as error:
            who = self._nodes.get(worker, worker)
            raise TimeoutError(f"{who} did not answer within {_CALL_SECONDS:g} s") from error
        return answers[worker]


def _over(what: LeftOut, limit_bytes: int) -> str:
    return (
        f"{what.what} has {size(what.size_bytes)}, more than --file-limit {size(limit_bytes)}, so "
        "it stays on its worker: the study does not keep it, and no other worker continues from it"
    )
