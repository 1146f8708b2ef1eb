"""The models of a study: the best are kept in `best/`, the others are thrown away."""

from __future__ import annotations

import contextlib
import json
import math
import os
import shutil
from collections.abc import Collection, Sequence
from pathlib import Path

from ..core.goals import Aims
from ..core.trial import Trial
from .attempt_journal import JOURNAL_FOLDER
from .directory import StudyDirectory, atomic_write, storage_errors

MODEL_FILES = ("model.keras", "model.weights.h5")
SUMMARY = "best.json"
RESUME = "resume"
"""A trial's checkpoints, which its next attempt goes on from (see `training.checkpoint`)."""


class StudyFiles:
    """Keeps `best/` true: at any instant it holds a whole model, and says whose it is.

    With one goal, `best/` is the best trial's. With several, each trial of the Pareto front has a
    `best/<number>/`, and `best/` itself is the one's that is best by the first goal.
    """

    def __init__(
        self, directory: StudyDirectory, aims: Aims, *, keep_checkpoints: bool = False
    ) -> None:
        self._directory = directory
        self._aims = aims
        self._keep_checkpoints = keep_checkpoints

    def keep_best(self, trials: Sequence[Trial]) -> None:
        """Make these trials' models the study's best, the first one above all. May be repeated.

        What `best/` has of a trial with the same result stays: whatever lies in the trial's own
        directory is then of an attempt that trains on, and nobody knows yet what it is worth.

        Raises:
            StorageFullError: There is no room, or writing is forbidden.
        """
        best = self._directory.best
        with storage_errors(best):
            homes = {trial.number: self._directory.trial(trial.number) for trial in trials}
            if len(self._aims.goals) == 1:
                taken = [trials[0]] if self._keep(trials[0], homes[trials[0].number], best) else []
            else:
                shelves = {number: best / str(number) for number in homes}
                taken = [t for t in trials if self._keep(t, homes[t.number], shelves[t.number])]
                self._keep(trials[0], shelves[trials[0].number], best)
                for path in best.iterdir():
                    if path.name.isdecimal() and int(path.name) not in shelves:
                        shutil.rmtree(path)
            for trial in taken:
                home = homes[trial.number]
                for name in MODEL_FILES:
                    (home / name).unlink(missing_ok=True)
                if not self._keep_checkpoints:
                    shutil.rmtree(home / RESUME, ignore_errors=True)

    def _keep(self, trial: Trial, source: Path, target: Path) -> bool:
        """Put a trial's model on a shelf; False if it is there."""
        text = json.dumps(self._summary(trial), indent=2, ensure_ascii=False, allow_nan=False)
        if _text_of(target / SUMMARY) == f"{text}\n":
            return False
        target.mkdir(parents=True, exist_ok=True)
        new = [name for name in MODEL_FILES if (source / name).exists()]
        for name in new:
            _put(source / name, target / name)
        is_new = bool(new) or _number_in(target) != trial.number
        # An objective function keeps what it likes in its checkpoint directory.
        if is_new and not new and _copy_directory(source / "checkpoint", target / "checkpoint"):
            new = ["checkpoint"]
        if is_new:
            # What else lies there is of the best trial before.
            for name in {*MODEL_FILES, "checkpoint"}.difference(new):
                _remove(target / name)
        atomic_write(target / SUMMARY, f"{text}\n".encode())
        return True

    def _summary(self, trial: Trial) -> dict[str, object]:
        goal = self._aims.goal
        summary: dict[str, object] = {
            "trial": trial.number,
            "metric": goal.metric,
            "direction": str(goal.direction),
            "value": trial.value,
            "step": trial.step,
            "hyperparameters": dict(trial.params),
            # JSON has no word for NaN, which a metric beside the goals' may be.
            "metrics": {
                name: value if math.isfinite(value) else None
                for name, value in trial.metrics.items()
            },
        }
        if broken := self._aims.broken(trial.metrics):
            summary["infeasible"] = broken
        return summary

    def best_number(self) -> int | None:
        """Whose model lies in `best/`; None if there is none yet."""
        return _number_in(self._directory.best)

    def model_path(self, number: int | None = None) -> Path | None:
        """The best model's file (or checkpoint directory); None if there is none.

        Args:
            number: Of one trial of the front; None for the one that is best by the first goal.
        """
        best = self._directory.best
        shelf = best if number is None or len(self._aims.goals) == 1 else best / str(number)
        for name in (*MODEL_FILES, "checkpoint"):
            if (path := shelf / name).exists():
                return path
        return None

    def models(self) -> dict[int, Path]:
        """The models of the best trials that left one, by the trial's number."""
        best = self._directory.best
        shelves = [path for path in best.glob("*") if path.name.isdecimal()]
        numbers = {int(path.name) for path in shelves}
        if not numbers and (number := self.best_number()) is not None:
            numbers = {number}
        paths = {number: self.model_path(number) for number in sorted(numbers)}
        return {number: path for number, path in paths.items() if path is not None}

    def discard(self, number: int, *, keep_checkpoint: bool = False) -> None:
        """Throw away a trial's model and checkpoints; its log stays, and what is asked for."""
        home = self._directory.trial(number)
        with contextlib.suppress(OSError):
            for name in MODEL_FILES:
                (home / name).unlink(missing_ok=True)
        for name in ("checkpoint", JOURNAL_FOLDER):
            shutil.rmtree(home / name, ignore_errors=True)
        if not keep_checkpoint:
            shutil.rmtree(home / RESUME, ignore_errors=True)

    def has_checkpoint(self, number: int) -> bool:
        """Whether the trial can go on from where it was."""
        return any((self._directory.trial(number) / RESUME).glob("*.ckpt"))

    def sweep(self, over: set[int], able_to_go_on: Collection[int] = ()) -> None:
        """Throw away what a master left behind that died before it could.

        Args:
            over: The numbers of the trials that are over, but for those whose models are needed.
            able_to_go_on: Those of them whose last checkpoint is kept.
        """
        for pattern in (*MODEL_FILES, "checkpoint", RESUME):
            for path in self._directory.trials.glob(f"*/{pattern}"):
                if path.parent.name.isdigit() and int(path.parent.name) in over:
                    number = int(path.parent.name)
                    self.discard(number, keep_checkpoint=number in able_to_go_on)


def _number_in(shelf: Path) -> int | None:
    try:
        return int(json.loads((shelf / SUMMARY).read_text())["trial"])
    except (OSError, ValueError, KeyError):
        return None


def _text_of(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, ValueError):
        return None


def _remove(path: Path) -> None:
    if (linked := _linked_from(path)) is not None:
        path.unlink()
        shutil.rmtree(linked, ignore_errors=True)
    elif path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _copy_directory(source: Path, target: Path) -> bool:
    """Put a copy of a directory in another's place; False if there is nothing to copy."""
    if not source.is_dir() or not any(source.iterdir()):
        return False
    before = _linked_from(target)
    fresh = next(each for each in _homes_of(target) if each != before)
    shutil.rmtree(fresh, ignore_errors=True)
    failed: list[OSError] = []

    def copy(one: str, other: str) -> None:
        try:
            shutil.copy2(one, other)
        except OSError as error:
            failed.append(error)
            raise

    try:
        shutil.copytree(source, fresh, copy_function=copy)
    except shutil.Error as error:
        # It only says that something failed; whether the disk is full is in the first failure.
        raise (failed[0] if failed else error) from error
    _link(target, fresh)
    if before is not None:
        shutil.rmtree(before, ignore_errors=True)
    return True


def _homes_of(link: Path) -> list[Path]:
    """Where the directory may lie that a link leads to: in one, while the other is made."""
    return [link.with_name(f".{link.name}-{which}") for which in "ab"]


def _linked_from(link: Path) -> Path | None:
    return link.with_name(link.readlink().name) if link.is_symlink() else None


def _link(link: Path, directory: Path) -> None:
    """Let a link lead to a directory beside it from now on: a directory takes no other's place."""
    fresh = link.with_name(link.name + ".new")
    fresh.unlink(missing_ok=True)
    try:
        fresh.symlink_to(directory.name, target_is_directory=True)
    except OSError:  # some file systems have no links, so there is an instant without it
        _remove(link)
        directory.rename(link)
        return
    if link.is_dir() and not link.is_symlink():
        shutil.rmtree(link)
    fresh.replace(link)


def _put(source: Path, target: Path) -> None:
    """Put a file into another's place in one step, leaving the source where it is."""
    fresh = target.with_name(target.name + ".new")
    fresh.unlink(missing_ok=True)
    try:
        os.link(source, fresh)
    except OSError:  # some file systems have no hard links
        shutil.copyfile(source, fresh)
    fresh.replace(target)
    # Two links to the same file are left as they are by the system's rename.
    fresh.unlink(missing_ok=True)
