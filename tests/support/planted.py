"""What a stranger could plant: a pickle, and a journal beside a ledger."""

from __future__ import annotations

import os
import struct
from pathlib import Path


class Planted:
    """An object that makes a folder when it is unpickled.

    Args:
        mark: The folder.
    """

    def __init__(self, mark: Path) -> None:
        self._mark = mark

    def __reduce__(self) -> tuple[object, ...]:
        return os.mkdir, (str(self._mark),)


def plant_journal(database: Path, victim: Path | None = None) -> Path:
    """Write the journal of a commit that a killed master left, as a stranger could.

    Args:
        database: The study's ledger.
        victim: The file that SQLite deletes when it has undone the commit; None for none.
    """
    magic = bytes.fromhex("d9d505f920a163d7")
    pages = database.stat().st_size // PAGE_BYTES
    header = magic + struct.pack(">IIIII", 0, 0, pages, SECTOR_BYTES, PAGE_BYTES)
    contents = header.ljust(SECTOR_BYTES, b"\0")
    if victim is not None:
        name = os.fsencode(victim)
        lock_page = 0x40000000 // PAGE_BYTES + 1
        contents += struct.pack(">I", lock_page) + name
        contents += struct.pack(">II", len(name), sum(name)) + magic
    journal = database.with_name(f"{database.name}-journal")
    journal.write_bytes(contents)
    return journal


PAGE_BYTES = 4096
SECTOR_BYTES = 512
