"""Code and data of a study that are replaced, unless the study refuses the new ones."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from ..errors import UsageError
from ..files.file_errors import storage_errors
from .directory import StudyDirectory
from .ledger.reader import LedgerReader


@contextlib.contextmanager
def replacing(
    directory: StudyDirectory,
    names: Sequence[str],
    more: Sequence[Path],
    store: Callable[[], None],
) -> Iterator[None]:
    """Replace a study's code and data under its lock, for the block, and clean up after it.

    If they cannot be stored, or the study refuses them, it has its own ones back, except on a file
    system without hard links.
    If there is no study in the end, none stay.

    Args:
        directory: The study's directory.
        names: The names of its files and folders of code and data.
        more: Files whose stem is the name of a setting, which are kept while a run has it.
        store: Writes them.
    """
    mine = [directory.path / name for name in names] + [*more]
    before = {each: each.with_name(f"{each.name}.before") for each in mine}
    is_new = [each for each in more if not each.exists()]
    for each, other in before.items():
        _remove(other)
        try:
            if each.is_dir():
                shutil.copytree(each, other, copy_function=os.link)
            else:
                os.link(each, other)
        except OSError:  # there is no such file, as in a new study
            _remove(other)
    is_stored = False
    try:
        with storage_errors(directory.path):
            store()
        is_stored = True
        yield
    except BaseException as error:
        if is_stored and not isinstance(error, UsageError):
            raise
        is_begun = directory.has_ledger
        in_use = LedgerReader(directory).facts()["settings"].values() if is_begun else ()
        for each in is_new:
            if each.stem not in in_use:
                _remove(each)
        for each, other in before.items():
            if other.exists():
                _remove(each)
                with contextlib.suppress(OSError):
                    other.rename(each)
        raise
    finally:
        is_unused = not directory.has_ledger
        for each, other in before.items():
            _remove(other)
            if is_unused:
                _remove(each)
                _remove(each.with_name(f"{each.name}.new"))


def _remove(path: Path) -> None:
    with contextlib.suppress(OSError):
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()
