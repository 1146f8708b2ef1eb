"""Pieces of files on their way: in groups, some of them in memory, with lines of progress."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from ..core.resources import size
from ..worker.transport.files import PIECE_BYTES, Piece
from ..worker.transport.notices import Change

_MOST_FILES = 500
"""Most files of one call."""

_LARGE_BYTES = 256_000_000
"""Size from which files have lines of progress."""

_PROGRESS_SECONDS = 10.0
"""Seconds between two lines of progress."""

Pieces = list[tuple[Change, Piece | None]]
"""Pieces of files with their places; None for one of a file that has changed."""


def size_of(pieces: Pieces) -> int:
    """Return the size of pieces, in bytes."""
    return sum(len(piece.contents) for _, piece in pieces if piece is not None)


def groups_of(changes: Sequence[Change]) -> Iterator[list[Change]]:
    """Yield the parts of files for each call: many small files, or a piece of a large one.

    The parts of a file come in order, and so do the files.
    """
    bundle: list[Change] = []
    room = PIECE_BYTES
    for change in changes:
        offset = change.offset
        while True:
            left = change.state.size_bytes - offset
            if bundle and (left > room or len(bundle) >= _MOST_FILES):
                yield bundle
                bundle, room = [], PIECE_BYTES
            bundle.append(replace(change, offset=offset))
            part = min(left, PIECE_BYTES)
            room -= part
            offset += part
            if offset >= change.state.size_bytes:
                break
    if bundle:
        yield bundle


async def read_ahead(
    groups: Iterable[Sequence[Change]],
    read: Callable[[Sequence[Change]], Awaitable[Pieces]],
    places: asyncio.Semaphore,
) -> AsyncGenerator[Pieces, None]:
    """Yield the pieces of each group; those of the next one are being read meanwhile.

    Args:
        groups: The places of the pieces.
        read: Reads a group.
        places: The places in memory; a group has one until the caller asks for the next.
    """

    async def begin(group: Sequence[Change]) -> Pieces:
        await places.acquire()
        try:
            return await read(group)
        except BaseException:
            places.release()
            raise

    def drop(task: asyncio.Task[Pieces]) -> None:
        if not task.cancelled() and task.exception() is None:
            places.release()

    left = iter(groups)
    begun: deque[asyncio.Task[Pieces]] = deque()
    try:
        while True:
            begun += [asyncio.ensure_future(begin(each)) for each in islice(left, 2 - len(begun))]
            if not begun:
                return
            pieces = await begun[0]
            begun.popleft()
            try:
                yield pieces
            finally:
                places.release()
    finally:
        for each in begun:
            each.add_done_callback(drop)
            each.cancel()


@dataclass(slots=True)
class Progress:
    """Lines about the progress of large files.

    Attributes:
        what: What travels, in words.
        total_bytes: Its size.
        say: Takes a line.
        done_bytes: How much of it has arrived.
        said_at: When the last line was said.
    """

    what: str
    total_bytes: int
    say: Callable[[str], None]
    done_bytes: int = 0
    said_at: float = 0.0

    def add(self, more_bytes: int) -> None:
        """Note that more has arrived."""
        self.done_bytes += more_bytes
        now = time.monotonic()
        if self.total_bytes >= _LARGE_BYTES and now - self.said_at >= _PROGRESS_SECONDS:
            self.said_at = now
            share = 100 * self.done_bytes // self.total_bytes
            self.say(f"files: {self.what}: {share} % of {size(self.total_bytes)}")
