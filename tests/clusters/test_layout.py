"""Resources of a trial: measurement decides those that are not specified, and no others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from tuner.clusters.layout import resolve_layout
from tuner.config.model_file import ObjectiveSource, SourceKind
from tuner.config.settings import StudySettings
from tuner.core.resources import Amount, Capacity
from tuner.errors import UsageError

MACHINE = Capacity((0, 1, 2, 3), ("A",), 10**10)
CPUS, GPUS, MEMORY = Amount


def settings(**said: Any) -> StudySettings:
    source = ObjectiveSource(SourceKind.FILE, "model.py")
    return StudySettings(source=source, working_directory=".", **said)


@pytest.mark.parametrize(
    ("said", "file", "measured"),
    [
        ({}, {}, (CPUS, GPUS, MEMORY)),
        ({"pack": "off"}, {}, ()),
        ({"executor": "joblib"}, {}, ()),
        ({"cpus_per_trial": 1}, {}, (GPUS, MEMORY)),
        ({"workers": 2}, {}, (GPUS, MEMORY)),
        ({"gpus_per_trial": 0}, {}, (CPUS, MEMORY)),
        ({"memory_per_trial_bytes": 10**9}, {}, (CPUS, GPUS)),
        ({}, {"cpus": 2}, (GPUS, MEMORY)),
        ({}, {"gpu_memory_bytes": 10**9}, (CPUS, MEMORY)),
    ],
)
def test_what_was_said_is_not_measured(
    said: Mapping[str, Any], file: Mapping[str, int], measured: tuple[Amount, ...]
) -> None:
    assert resolve_layout(settings(**said), {"RESOURCES": file}, MACHINE).measured == measured


def test_a_part_of_a_core() -> None:
    shape = resolve_layout(settings(cpus_per_trial=0.5), {}, MACHINE)
    assert (shape.resources.cpus, shape.at_once) == (0.5, 8)
    with pytest.raises(UsageError, match="the workers of --executor joblib have whole ones"):
        resolve_layout(settings(cpus_per_trial=0.5, executor="joblib"), {}, MACHINE)


@pytest.mark.parametrize("amount", [0, -1, 1.5, "two"])
def test_what_makes_no_sense(amount: Any) -> None:
    with pytest.raises(UsageError, match=r"--cpus-per-trial is .*allowed are whole numbers from 1"):
        settings(cpus_per_trial=amount)
    with pytest.raises(UsageError, match="--pack is 'on'; allowed are auto and off"):
        settings(pack="on")
