"""The model files of a study: those of the best trials go to `best/`, the others are deleted."""

from __future__ import annotations

import contextlib
import itertools
import json
import logging
import math
import os
import shutil
import stat
import zipfile
from collections.abc import Collection, Sequence
from pathlib import Path

from .. import text
from ..core.goals import Goals
from ..core.trial import Trial
from ..errors import NotAFileError
from ..files.access import atomic_write, exists, open_plain, read_whole, replacing
from ..files.file_errors import storage_errors
from .attempt_journal import JOURNAL_FOLDER
from .directory import StudyDirectory

logger = logging.getLogger(__name__)

MODEL_FILES = ("model.keras", "model.weights.h5")
SUMMARY = "best.json"
_MODEL = "model"
"""Key of the summary: the name of the model's file or directory; None if the trial saved none."""
RESUME = "resume"
"""The folder of a trial's checkpoints, from which its next attempt continues."""

_CHUNK_BYTES = 1 << 20
_MOST_LEVELS = 100
"""Levels of directories that are copied: `shutil.rmtree` removes fewer than 1,000."""


class StudyFiles:
    """The keeper of `best/`, which at any instant holds a complete model and names its trial.

    With one goal, `best/` belongs to the best trial. With several, each trial of the Pareto front
    has `best/<number>/`, and `best/` itself belongs to the trial that is best by the first goal.

    Args:
        directory: The study's directory.
        goals: The goals and constraints.
        keep_checkpoints: Whether to keep the checkpoints of a trial whose model was moved.
    """

    def __init__(
        self,
        directory: StudyDirectory,
        goals: Goals,
        *,
        keep_checkpoints: bool = False,
    ) -> None:
        self._directory = directory
        self._goals = goals
        self._keep_checkpoints = keep_checkpoints

    def keep_best(self, trials: Sequence[Trial]) -> None:
        """Make these trials' models the study's best, the first one above all. May be repeated.

        A model in `best/` stays if its trial's result is unchanged. Files in the trial's directory
        then belong to an attempt that trains further, whose result is not known yet.

        Raises:
            StorageFullError: There is no space, or writing is forbidden.
        """
        best = self._directory.best
        with storage_errors(best):
            sources = {trial.number: self._directory.trial(trial.number) for trial in trials}
            if len(self._goals.objectives) == 1:
                moved = [
                    each for each in trials[:1] if self._keep(each, sources[each.number], best)
                ]
            else:
                targets = {number: best / str(number) for number in sources}
                moved = [t for t in trials if self._keep(t, sources[t.number], targets[t.number])]
                self._keep(trials[0], targets[trials[0].number], best)
                for path in best.iterdir():
                    if path.name.isdecimal() and int(path.name) not in targets:
                        _remove_tree(path)
            for trial in moved:
                source = sources[trial.number]
                for name in MODEL_FILES:
                    with contextlib.suppress(OSError):
                        (source / name).unlink(missing_ok=True)
                if not self._keep_checkpoints:
                    _remove_tree(source / RESUME)

    def _keep(self, trial: Trial, source: Path, target: Path) -> bool:
        """Copy or link a trial's model into `target`; return False if it is already there."""
        summary, found = self._summary(trial), _summary_in(target)
        # The model's name is left out: what a trial's directory has now may be newer.
        if found is not None and found | {_MODEL: None} == json.loads(_as_json(summary)):
            return False
        target.mkdir(parents=True, exist_ok=True)
        new = [name for name in MODEL_FILES if _is_file(source / name)]
        for name in new:
            _put(source / name, target / name)
        # An objective function writes files of its own choice to its checkpoint directory.
        if not new and _copy_directory(source / "checkpoint", target / "checkpoint"):
            new = ["checkpoint"]
        if new or _number_in(target) != trial.number:
            # Other files belong to the previous best trial.
            for name in {*MODEL_FILES, "checkpoint"}.difference(new):
                _remove(target / name)
        atomic_write(target / SUMMARY, _as_json({**summary, _MODEL: _model_in(target)}))
        return True

    def _summary(self, trial: Trial) -> dict[str, object]:
        goal = self._goals.goal
        summary: dict[str, object] = {
            "trial": trial.number,
            _MODEL: None,
            "metric": goal.metric,
            "direction": str(goal.direction),
            "value": trial.value,
            "step": trial.step,
            "hyperparameters": dict(trial.params),
            # A metric that is no goal may be NaN, which JSON does not have.
            "metrics": {
                name: value if math.isfinite(value) else None
                for name, value in trial.metrics.items()
            },
        }
        if broken := self._goals.broken(trial.metrics):
            summary["infeasible"] = broken
        return summary

    def best_number(self) -> int | None:
        """Return the number of the trial in `best/`; None if there is none yet."""
        return _number_in(self._directory.best)

    def model_path(self, number: int | None = None) -> Path | None:
        """Return the best model's file (or checkpoint directory); None if there is none.

        Args:
            number: A trial of the Pareto front; None for the best trial by the first goal.
        """
        folder = self._folder(number)
        name = _model_in(folder)
        return None if name is None else folder / name

    def fault(self, number: int) -> str:
        """Return what is wrong with the files of one of the best trials, and what helps; or "".

        Not while a master runs the study: it may be replacing them.
        """
        folder = self._folder(number)
        summary, of_trial = _summary_in(folder), f"of trial {number} in {text.path(folder)}"
        name = None if summary is None else summary.get(_MODEL)
        if summary is None:
            found = f"the file {SUMMARY} {of_trial} is missing or damaged"
        elif summary.get("trial") != number:
            found = f"the model {of_trial} was replaced by that of trial {summary.get('trial')}"
        elif not isinstance(name, str) or _is_whole(folder / name):
            return ""
        else:
            found = f"the model {name} {of_trial} is missing or damaged"
        # A master that is killed may leave it there, and an objective's own files stay there.
        if (own := _model_in(self._directory.trial(number))) is not None:
            kept = self._directory.trial(number) / own
            return f"{found}. The trial's own copy is {text.path(kept)}"
        return (
            f"{found}. Restore it from a backup, or train the configuration again: "
            f"hptune.Study({str(self._directory.path)!r}).best_hyperparameters has it"
        )

    def _folder(self, number: int | None) -> Path:
        best = self._directory.best
        return best if number is None or len(self._goals.objectives) == 1 else best / str(number)

    def models(self) -> dict[int, Path]:
        """Return the models of the best trials that saved one, by the trial's number."""
        best = self._directory.best
        numbers = {int(path.name) for path in best.glob("*") if path.name.isdecimal()}
        if not numbers and (number := self.best_number()) is not None:
            numbers = {number}
        paths = {number: self.model_path(number) for number in sorted(numbers)}
        return {number: path for number, path in paths.items() if path is not None}

    def discard(self, number: int, *, keep_checkpoint: bool = False) -> None:
        """Delete a trial's model and journal, and its checkpoints unless they are to be kept.

        Those of an objective are the files in its `checkpoint_dir`.
        """
        folder = self._directory.trial(number)
        for name in MODEL_FILES:
            with contextlib.suppress(OSError):
                (folder / name).unlink(missing_ok=True)
        _remove_tree(folder / JOURNAL_FOLDER)
        if not keep_checkpoint:
            for name in ("checkpoint", RESUME):
                _remove_tree(folder / name)

    def can_continue(self, number: int) -> bool:
        """Return whether the trial has a checkpoint, of hptune or of the objective itself."""
        folder = self._directory.trial(number)
        return any((folder / RESUME).glob("*.ckpt")) or bool(_entries(folder / "checkpoint"))

    def sweep(self, over: set[int], with_checkpoint: Collection[int] = ()) -> None:
        """Delete the files that a previous master should have deleted, but died before.

        Args:
            over: The numbers of the trials that are over and whose models are not needed.
            with_checkpoint: The numbers of those whose last checkpoint is kept.
        """
        for pattern in (*MODEL_FILES, "checkpoint", RESUME):
            for path in self._directory.trials.glob(f"*/{pattern}"):
                if path.parent.name.isdecimal() and int(path.parent.name) in over:
                    number = int(path.parent.name)
                    self.discard(number, keep_checkpoint=number in with_checkpoint)


def _number_in(folder: Path) -> int | None:
    number = (_summary_in(folder) or {}).get("trial")
    return number if isinstance(number, int) else None


def _summary_in(folder: Path) -> dict[str, object] | None:
    try:
        found = json.loads(read_whole(folder / SUMMARY))
    except (OSError, ValueError, RecursionError, NotAFileError):
        return None
    return found if isinstance(found, dict) else None


def _as_json(summary: dict[str, object]) -> bytes:
    shown = json.dumps(summary, indent=2, ensure_ascii=False, allow_nan=False)
    # A surrogate without its pair, as in an odd file name, becomes its escape in JSON.
    return f"{shown}\n".encode(errors="backslashreplace")


def _model_in(folder: Path) -> str | None:
    names = (*MODEL_FILES, "checkpoint")
    return next((name for name in names if exists(folder / name)), None)


def _is_whole(model: Path) -> bool:
    """Return whether a model is there, and whole by its first and last bytes."""
    if not model.suffix:
        return exists(model)
    with (
        contextlib.suppress(OSError, NotAFileError),  # a pipe, say, which would be waited for
        os.fdopen(open_plain(model.resolve(), os.O_RDONLY), "rb") as file,
    ):
        if model.suffix == ".keras":
            return zipfile.is_zipfile(file)
        return model.suffix != ".h5" or file.read(8) == b"\x89HDF\r\n\x1a\n"
    return False


def _is_file(path: Path) -> bool:
    """Return whether this is a regular file, and no link."""
    try:
        return stat.S_ISREG(path.lstat().st_mode)
    except OSError:
        return False


def _remove(path: Path) -> None:
    if (linked := _linked_from(path)) is not None:
        path.unlink()
        _remove_tree(linked)
    elif path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _copy_directory(source: Path, target: Path) -> bool:
    """Replace `target` by a copy of `source` in one step; return False if `source` is empty.

    `target` is a symbolic link to a directory next to it, because a rename cannot replace a
    directory that has files. The copy goes to another one, which need not be the same each time:
    on NFS, a directory with a file that somebody has open cannot be removed.
    """
    # In `best/<number>/` it is such a link. Any other link leads out of the trial's directory.
    source = _linked_from(source) or source
    if not _entries(source):
        return False
    before = _linked_from(target)
    copies = (target.with_name(f".{target.name}-{which}") for which in itertools.count())
    fresh = next(copy for copy in copies if copy != before and _remove_tree(copy))
    if left_out := _copy_files(source, fresh):
        logger.warning(
            "%s: %d entries are not kept in best/, as they are no files, or cannot be read",
            source,
            left_out,
        )
    _link(target, fresh)
    for other in target.parent.glob(f".{target.name}-*"):
        if other != fresh:
            _remove_tree(other)
    return True


def _copy_files(source: Path, target: Path) -> int:
    """Copy a directory that a trial wrote, and return how many of its entries were left out.

    Symbolic links stay links. Sockets, pipes and files that cannot be read are left out, and so is
    what lies too deep to be removed again.

    Raises:
        OSError: The copy cannot be written.
    """
    left_out = 0
    waiting = [(source, target)]
    while waiting:
        folder, copy = waiting.pop()
        copy.mkdir()
        for entry in _entries(folder):
            other = copy / entry.name
            if entry.is_symlink():
                other.symlink_to(Path(entry).readlink())
            elif entry.is_dir() and len(other.relative_to(target).parts) < _MOST_LEVELS:
                waiting.append((Path(entry), other))
            elif not (entry.is_file() and _copy_file(entry.path, other)):
                left_out += 1
    return left_out


def _remove_tree(path: Path) -> bool:
    """Remove a directory if possible, and return whether it is gone.

    A trial may have copied it into itself, or forbidden it.
    """
    with contextlib.suppress(RecursionError):
        shutil.rmtree(path, ignore_errors=True)
    return not exists(path)


def _copy_file(source: str, target: Path) -> bool:
    """Copy a regular file; return False if it cannot be opened."""
    try:
        file = os.fdopen(open_plain(Path(source), os.O_RDONLY), "rb")
    except (OSError, NotAFileError):
        return False
    with file, target.open("xb") as copy:
        shutil.copyfileobj(file, copy, _CHUNK_BYTES)
        is_program = os.fstat(file.fileno()).st_mode & 0o100
        copy.flush()
    if is_program:
        target.chmod(0o755)
    return True


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    """Return a directory's entries; none if it is no directory, or cannot be read."""
    if folder.is_symlink():
        return []
    try:
        with os.scandir(folder) as entries:
            return [*entries]
    except OSError:
        return []


def _linked_from(link: Path) -> Path | None:
    return link.with_name(link.readlink().name) if link.is_symlink() else None


def _link(link: Path, directory: Path) -> None:
    """Point a link to a directory next to it."""
    fresh = link.with_name(link.name + ".new")
    fresh.unlink(missing_ok=True)
    try:
        fresh.symlink_to(directory.name, target_is_directory=True)
    except OSError:  # no symbolic links here: for an instant, nothing has the name
        _remove(link)
        directory.rename(link)
        return
    if link.is_dir() and not link.is_symlink():  # left by the lines above
        shutil.rmtree(link)
    fresh.replace(link)


def _put(source: Path, target: Path) -> None:
    """Replace a file by a link to `source`, or by a copy, in one step; it is on disk then."""
    with replacing(target) as fresh:
        try:
            os.link(source, fresh)
        except OSError:  # no hard links here
            shutil.copyfile(source, fresh)
        _sync(fresh)


def _sync(path: Path) -> None:
    """Write a file's contents to disk: the trial's own copy, and its checkpoints, go afterwards."""
    with contextlib.suppress(PermissionError):  # the trial has forbidden to read it
        file = open_plain(path, os.O_RDONLY)
        try:
            os.fsync(file)
        finally:
            os.close(file)
