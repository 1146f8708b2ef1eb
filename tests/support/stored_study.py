"""Studies written straight into a ledger, for the commands that read one."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fake_study import GOALS, attempt, trial
from hptune.config.objectives import goals_to_json
from hptune.config.settings import StudySettings
from hptune.core.attempt import Attempt, AttemptId, Cause, Outcome, Report
from hptune.core.messages import Event, Reported
from hptune.core.space.space import ChoiceParameter, FloatParameter, IntParameter, SearchSpace
from hptune.core.trial import Trial, TrialState
from hptune.storage.directory import StudyDirectory
from hptune.storage.ledger import Ledger
from hptune.user_code.source import ObjectiveSource, SourceKind

SPACE = SearchSpace(
    (
        FloatParameter("learning_rate", 1e-4, 1.0),
        IntParameter("units", 16, 256, step=16),
        ChoiceParameter("activation", ("relu", "tanh")),
    )
)


def stored(
    path: Path,
    trials: Sequence[Trial] = (),
    attempts: Sequence[Attempt] = (),
    events: Sequence[Event] = (),
    **facts: Any,
) -> StudyDirectory:
    """Write a study; `facts` replace those of a study of 10 trials that runs no more."""
    directory = StudyDirectory(path).create()
    settings = StudySettings(
        source=ObjectiveSource(SourceKind.FILE, str(path.parent / "model.py")),
        working_directory=str(path.parent),
        search="random",
        trials=10,
    )
    known = {
        "hptune_version": "1",
        "created_at": 1000.0,
        "is_keras": False,
        "settings": settings.to_json(),
        "epochs": 5,
        "space": SPACE.to_json(),
        "declared_space": SPACE.to_json(),
        "ended": None,
        "goals": goals_to_json(GOALS),
        "seed": 1,
        "warm_start": [],
    }
    with Ledger.create(directory, {**known, **facts}) as ledger:
        ledger.append(events, trials=trials, attempts=attempts)
    return directory


def curve(number: int, values: Sequence[float], *, attempt_number: int = 0) -> list[Event]:
    """Return the reports of an attempt, a second apart."""
    return [
        Reported(1000.0 + step, AttemptId(number, attempt_number), Report(step, metrics))
        for step, value in enumerate(values, 1)
        for metrics in [_metrics(value)]
    ]


def _metrics(value: float) -> Mapping[str, float]:
    return {"val_accuracy": value, "val_loss": 1.0 - value}


def typical(path: Path, **facts: Any) -> StudyDirectory:
    """Write a study with trials in many states; its master is gone.

    Trial 0 is complete, 1 failed, 2 is the best after a lost worker, 3 was pruned, 4 confirms 2,
    5 ran when the master was killed.
    """
    trials = [
        trial(0, value=0.8, step=3, metrics=_metrics(0.8)),
        trial(1, TrialState.FAILED, reason="ValueError: bad shape"),
        trial(2, value=0.9, step=4, metrics=_metrics(0.9), params={"units": 16, "note": "=1+1"}),
        trial(3, TrialState.PRUNED, value=0.5, step=2, metrics=_metrics(0.5)),
        trial(4, value=0.88, step=4, metrics=_metrics(0.88), origin="confirm of 2"),
        trial(5, TrialState.RUNNING),
    ]
    attempts = [
        attempt(0, ended_at=1040.0, outcome=Outcome.FINISHED, cause=Cause.RETURNED),
        attempt(1, ended_at=1010.0, outcome=Outcome.ERRORED, cause=Cause.EXCEPTION),
        attempt(2, ended_at=1010.0, outcome=Outcome.LOST, cause=Cause.WORKER_LOST),
        attempt(2, 1, placed_at=1011, ended_at=1090.0, outcome=Outcome.FINISHED, gpus=("0",)),
        attempt(3, ended_at=1020.0, outcome=Outcome.PRUNED, cause=Cause.PRUNED),
        attempt(4, ended_at=1190.0, outcome=Outcome.FINISHED, cause=Cause.RETURNED),
        attempt(5, placed_at=1100.0),
    ]
    events = [
        *curve(0, [0.6, 0.7, 0.8]),
        *curve(2, [0.3]),
        *curve(2, [0.3, 0.6, 0.8, 0.9], attempt_number=1),
        *curve(3, [0.4, 0.5]),
        *curve(5, [0.7]),
    ]
    return stored(path, trials, attempts, events, **facts)


def two_studies(folder: Path) -> None:
    """Write a typical study and an empty one, of which `b-1` was started last."""
    typical(folder / "studies/b-1")
    stored(folder / "studies/a-1", created_at=900.0)
    os.utime(folder / "studies/a-1/lock", (1.0, 1.0))
