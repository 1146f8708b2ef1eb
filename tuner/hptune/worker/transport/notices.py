"""What a worker that does not see the study's directory says about files, as picklable values."""

from __future__ import annotations

from dataclasses import dataclass

from .files import FileState


@dataclass(frozen=True, slots=True)
class Change:
    """A file that is new or has changed on the worker.

    Attributes:
        state: The file; its size is where the part to take ends.
        offset: Where that part begins; 0 but for logs, of which only what is new is taken.
    """

    state: FileState
    offset: int = 0


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Files that do not travel, because they are larger than the limit.

    Attributes:
        what: A file, or the folder of a trial's own checkpoint, below the study's directory.
        size_bytes: Their size.
    """

    what: str
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Changes:
    """What has changed since the study last had a trial's files.

    Attributes:
        changed: New and changed files, the oldest first.
        gone: Paths of files that were removed.
        left_out: Files that are too large, each named once.
    """

    changed: tuple[Change, ...] = ()
    gone: tuple[str, ...] = ()
    left_out: tuple[LeftOut, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.changed or self.gone or self.left_out)


@dataclass(frozen=True, slots=True)
class FilesWanted:
    """A worker needs files of the study, before it runs an attempt or is ready.

    Attributes:
        worker: Its address.
        ticket: The number of the request, for the answer.
        trial: The trial whose files it needs; None for the user's code.
    """

    worker: str
    ticket: int
    trial: int | None


@dataclass(frozen=True, slots=True)
class FilesChanged:
    """Files of a trial have changed on a worker; the master takes them.

    Attributes:
        worker: Its address.
        ticket: The number of the request, for the answer.
        trial: The trial.
        changes: What has changed.
        session: The number of the stay of the trial on the worker, whose logs begin with it.
    """

    worker: str
    ticket: int
    trial: int
    changes: Changes
    session: int


FileNotice = FilesWanted | FilesChanged
