"""Studies that programs ask for trials."""

from __future__ import annotations

import time
from pathlib import Path

import hptune
from hptune.ask_tell.study import AskedStudy
from hptune.core.trial import TrialState
from hptune.study.study import Study

SPACE = {"x": hptune.Float(0.0, 1.0), "kind": ["a", "b"]}


def opened(path: Path, **settings: object) -> AskedStudy:
    """Open a study of four trials at random."""
    given = {"search": "random", "trials": 4, "seed": 1} | settings
    return hptune.open_study(path, SPACE, "loss:min", **given)  # type: ignore[arg-type]


def states(study: Study) -> list[TrialState]:
    """Return the states of a study's trials."""
    return [trial.state for trial in study.trials]


class Clock:
    """The clock of the calls, which a test sets forward."""

    def __init__(self) -> None:
        self.ahead_seconds = 0.0

    def time(self) -> float:
        """Return the time, in seconds since the epoch."""
        return time.time() + self.ahead_seconds
