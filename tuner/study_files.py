"""The models of a study: the best one is kept in `best/`, the others are thrown away."""

from __future__ import annotations

import contextlib
import json
import math
import os
import shutil
from pathlib import Path

from .core.trial import Goal, Trial
from .study_directory import StudyDirectory, atomic_write, storage_errors

MODEL_FILES = ("model.keras", "model.weights.h5")
SUMMARY = "best.json"
RESUME = "resume"
"""A trial's checkpoints, which its next attempt goes on from (see `training.checkpoint`)."""


class StudyFiles:
    """Keeps `best/` true: at any instant it holds a whole model, and says whose it is."""

    def __init__(self, directory: StudyDirectory, goal: Goal) -> None:
        self._directory = directory
        self._goal = goal

    def keep_best(self, trial: Trial) -> None:
        """Make this trial's model the study's best. May be repeated.

        Raises:
            StorageFullError: There is no room, or writing is forbidden.
        """
        with storage_errors(self._directory.best):
            best = self._directory.best
            best.mkdir(parents=True, exist_ok=True)
            home = self._directory.trial(trial.number)
            new = [name for name in MODEL_FILES if (home / name).exists()]
            for name in new:
                _put(home / name, best / name)
            is_new = bool(new) or self.best_number() != trial.number
            # An objective function keeps what it likes in its checkpoint directory.
            if is_new and not new and _copy_directory(home / "checkpoint", best / "checkpoint"):
                new = ["checkpoint"]
            if is_new:
                # What else lies there is of the best trial before.
                for name in {*MODEL_FILES, "checkpoint"}.difference(new):
                    self._remove(name)
            summary = {
                "trial": trial.number,
                "metric": self._goal.metric,
                "direction": str(self._goal.direction),
                "value": trial.value,
                "step": trial.step,
                "hyperparameters": dict(trial.params),
                # JSON has no word for NaN, which a metric beside the goal's may be.
                "metrics": {
                    name: value if math.isfinite(value) else None
                    for name, value in trial.metrics.items()
                },
            }
            text = json.dumps(summary, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
            atomic_write(best / SUMMARY, text.encode())
            for name in MODEL_FILES:
                (home / name).unlink(missing_ok=True)
            shutil.rmtree(home / RESUME, ignore_errors=True)

    def best_number(self) -> int | None:
        """Whose model lies in `best/`; None if there is none yet."""
        try:
            return int(json.loads((self._directory.best / SUMMARY).read_text())["trial"])
        except (OSError, ValueError, KeyError):
            return None

    def model_path(self) -> Path | None:
        """The best model's file (or checkpoint directory); None if there is none."""
        for name in (*MODEL_FILES, "checkpoint"):
            if (path := self._directory.best / name).exists():
                return path
        return None

    def discard(self, number: int) -> None:
        """Throw away a trial's model and checkpoints; its log stays."""
        home = self._directory.trial(number)
        with contextlib.suppress(OSError):
            for name in MODEL_FILES:
                (home / name).unlink(missing_ok=True)
        for name in ("checkpoint", RESUME):
            shutil.rmtree(home / name, ignore_errors=True)

    def sweep(self, over: set[int]) -> None:
        """Throw away what a master left behind that died before it could.

        Args:
            over: The numbers of the trials that are over, but for the best.
        """
        for pattern in (*MODEL_FILES, "checkpoint", RESUME):
            for path in self._directory.trials.glob(f"*/{pattern}"):
                if path.parent.name.isdigit() and int(path.parent.name) in over:
                    self.discard(int(path.parent.name))

    def _remove(self, name: str) -> None:
        path = self._directory.best / name
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


def _copy_directory(source: Path, target: Path) -> bool:
    """Put a copy of a directory in another's place; False if there is nothing to copy."""
    if not source.is_dir() or not any(source.iterdir()):
        return False
    fresh = target.with_name(target.name + ".new")
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
    shutil.rmtree(target, ignore_errors=True)
    fresh.rename(target)
    return True


def _put(source: Path, target: Path) -> None:
    """Put a file into another's place in one step, leaving the source where it is."""
    fresh = target.with_name(target.name + ".new")
    fresh.unlink(missing_ok=True)
    try:
        os.link(source, fresh)
    except OSError:  # some file systems have no hard links
        shutil.copyfile(source, fresh)
    fresh.replace(target)
