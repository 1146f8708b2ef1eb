"""Pieces of files on their way: in groups, some of them in memory, with lines of progress."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

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


@dataclass(frozen=True, slots=True)
class Bundle:
    """Pieces in memory, and the place that they have there.

    Attributes:
        pieces: The pieces.
        places: The places, of which they have one.
    """

    pieces: Pieces
    places: asyncio.Semaphore

    @property
    def size_bytes(self) -> int:
        """Size of the pieces."""
        return sum(len(piece.contents) for _, piece in self.pieces if piece is not None)

    def close(self) -> None:
        """Give the place back."""
        self.places.release()

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        self.close()


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
) -> AsyncGenerator[Bundle, None]:
    """Yield the pieces of each group; those of the next one are being read meanwhile.

    Args:
        groups: The places of the pieces.
        read: Reads a group.
        places: The places in memory; a bundle has one until the caller leaves it.
    """

    async def begin(group: Sequence[Change]) -> Bundle:
        await places.acquire()
        try:
            return Bundle(await read(group), places)
        except BaseException:
            places.release()
            raise

    def drop(task: asyncio.Task[Bundle]) -> None:
        if not task.cancelled() and task.exception() is None:
            task.result().close()

    begun: deque[asyncio.Task[Bundle]] = deque()
    try:
        for group in groups:
            begun.append(asyncio.ensure_future(begin(group)))
            if len(begun) > 1:
                yield await begun.popleft()
        while begun:
            yield await begun.popleft()
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
