"""What is asked for that cannot be meant is refused with what is allowed, and never taken."""

from __future__ import annotations

import math

import pytest

from tuner.config.model_file import ObjectiveSource, SourceKind
from tuner.config.settings import StudySettings
from tuner.config.validation import in_python
from tuner.errors import UsageError


def settings(**asked: object) -> StudySettings:
    source = ObjectiveSource(SourceKind.FILE, "/model.py")
    return StudySettings(source=source, working_directory="/", **asked)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"stop_at": None}, "stop_at is None; allowed are batch and epoch"),
        ({"pack": None}, "pack is None; allowed are auto and off"),
        ({"executor": None}, "executor is None; allowed are dask and joblib"),
        ({"pruner_mode": "both"}, "pruner_mode is 'both'; allowed are stop and promote"),
        ({"timeout_seconds": "2h"}, "timeout_seconds is '2h'; give a number, in seconds"),
        ({"timeout_seconds": math.nan}, "timeout_seconds is nan; allowed are times above 0"),
        ({"hang_timeout_seconds": None}, "hang_timeout_seconds is None; give a number, in seconds"),
        ({"master_grace_seconds": -1}, "master_grace_seconds is -1; allowed are times from 0 on"),
        ({"cpus_per_trial": math.inf}, "cpus_per_trial is inf; allowed are whole numbers from 1"),
        ({"gpus_per_trial": math.nan}, "gpus_per_trial is nan; allowed are whole numbers from 0"),
        ({"start_points": None}, "start_points is None; give a list, even of one"),
        ({"start_points": {"lr": 0.1}}, "start_points is {'lr': 0.1}; give a list, even of one"),
        ({"warm_start": "study"}, "warm_start is 'study'; give a list, even of one"),
    ],
)
def test_what_cannot_be_meant_is_refused(asked: dict[str, object], said: str) -> None:
    with pytest.raises(UsageError) as refused:
        settings(**asked)
    assert said in in_python(str(refused.value))


@pytest.mark.parametrize(
    "asked",
    [
        {"timeout_seconds": None, "trial_timeout_seconds": 0.5, "hang_timeout_seconds": 0},
        {"pruner_mode": None, "gpus_per_trial": 0, "cpus_per_trial": 0.5},
        {"start_points": ({"lr": 0.1},), "warm_start": ["study"]},
    ],
)
def test_what_can_be_meant_is_stored_and_read_again(asked: dict[str, object]) -> None:
    made = settings(**asked)
    assert StudySettings.from_json(made.to_json()) == made
