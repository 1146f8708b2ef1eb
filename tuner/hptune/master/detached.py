"""A master that runs where its workers come from (`--detach`): checked here, submitted there."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ..config.asked import Asked
from ..config.places import CLUSTERS
from ..config.resolved import Resolved, check_plug_ins, resolve
from ..config.settings import StudySettings
from ..errors import StudyError, UsageError
from ..registry import loaded
from ..storage.directory import StudyDirectory
from ..storage.lock import locked
from ..storage.turn import acquired
from ..storage.whose import Use
from ..user_code.source import Found, SourceKind
from ..user_code.source_checks import check_source, check_text
from .code_reader import read_code

if TYPE_CHECKING:
    from .resume_plan import Changes


def detach_new(
    asked: Asked,
    directory: StudyDirectory,
    arguments: Sequence[str],
    *,
    notify: Callable[[str], None],
    quiet: bool = False,
) -> str:
    """Submit the master of a new study as a job; returns where to look, as text for the user.

    Args:
        asked: What the user asked for.
        directory: Where the study is to be; must not hold one yet.
        arguments: The arguments of `hptune` for the same run in the foreground.
        notify: Takes a line for the user, such as on a batch system that does not answer.
        quiet: Whether to show nothing while the code is read.

    Raises:
        UsageError: The settings or the model file are wrong, there can be no study here, or the
            job would be refused. Nothing was submitted.
    """
    from .plan import check_named

    settings = asked.settings
    directory.check_place()
    check_named(settings)
    source = Path(settings.source.path)
    check_text(source, has_entry=bool(settings.entry), python=settings.python)

    def check() -> Resolved | None:
        found = _read(settings, quiet=quiet)
        return None if found is None else resolve(asked, found)

    try:
        return _submit(asked, directory, arguments, check, notify)
    finally:
        directory.give_up()  # if nothing was submitted


def detach_again(
    changes: Changes,
    directory: StudyDirectory,
    arguments: Sequence[str],
    *,
    notify: Callable[[str], None],
    quiet: bool = False,
) -> str:
    """Submit the master of a study that is resumed; returns as `detach_new` does.

    Args:
        changes: What the user asks of the study.
        directory: Where the study is.
        arguments: As for `detach_new`.
        notify: As for `detach_new`.
        quiet: As for `detach_new`.

    Raises:
        NoStudyError: There is no study.
        StudyLockedError: It has a master.
        UsageError: As for `detach_new`.
    """
    from ..storage.ledger import LedgerReader
    from .past import Past
    from .resume_plan import allowed_changes, resolve_again, resume_request

    reader = LedgerReader(directory.open(Use.RUN))
    if owner := directory.owner():
        raise locked(directory.path, owner)
    past = Past.begin(directory, reader.facts())
    changes = allowed_changes(changes, past)
    past.read(reader.events())
    request = resume_request(changes, past)

    def check() -> Resolved | None:
        if (found := _read(request.asked.settings, quiet=quiet)) is None:
            return None
        resolved, _ = resolve_again(request, past, found)
        for line in resolved.notes:
            notify(line)
        check_plug_ins(resolved, seed=past.facts["seed"])
        return resolved

    _record(directory, is_submitted=True)  # before, as the job may begin at once
    try:
        return _submit(request.asked, directory, arguments, check, notify)
    except BaseException:
        with contextlib.suppress(StudyError):
            _record(directory, is_submitted=past.facts.get("submitted", False))
        raise


def _record(directory: StudyDirectory, *, is_submitted: bool) -> None:
    from ..storage.ledger import Ledger

    with acquired(directory, is_brief=True) as lock, Ledger.open(directory, lock=lock) as ledger:
        ledger.set_facts({"submitted": is_submitted})


def _read(settings: StudySettings, *, quiet: bool) -> Found | None:
    """Return what the user's code declares; None if its Python is only where the job runs.

    Raises:
        UsageError: The code or its Python cannot be used.
    """
    if settings.source.kind is SourceKind.FILE:
        if settings.python and shutil.which(settings.python) is None:
            return None
        check_source(
            Path(settings.source.path), has_entry=bool(settings.entry), python=settings.python
        )
    return read_code(settings.source, quiet=quiet)


def _submit(
    asked: Asked,
    directory: StudyDirectory,
    arguments: Sequence[str],
    check: Callable[[], Resolved | None],
    notify: Callable[[str], None],
) -> str:
    row = asked.cluster
    if row.detaches is None:
        able = [each for each in CLUSTERS.rows.values() if each.detaches is not None]
        names = " or ".join(each.choice for each in able)
        raise UsageError(
            f"--detach submits the master to a batch system, and --cluster is {row.name}; give "
            f"{names}, or leave --detach out"
        )
    text: str = loaded(row.detaches)(asked, directory, arguments, check, notify)
    return text
