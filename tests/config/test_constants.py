"""Constants of a model file, and settings that override them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hptune.clusters.layout import resolve_layout
from hptune.config.asked import asked as asked_for
from hptune.config.objectives import resolve_goals
from hptune.config.resolved import resolve_epochs
from hptune.config.settings import StudySettings
from hptune.core.goals import Goals
from hptune.core.resources import Capacity
from hptune.core.trial import Direction, Goal
from hptune.errors import UsageError
from hptune.user_code.model_file import check_path
from hptune.user_code.source import Found


def settings(tmp_path: Path, **given: Any) -> StudySettings:
    path = tmp_path / "model.py"
    path.touch()
    return StudySettings(source=check_path(path), working_directory=str(tmp_path), **given)


def found_with(**constants: object) -> Found:
    return Found(is_keras=False, space=(), constants=constants)


@pytest.mark.parametrize(
    ("constants", "asked", "way"),
    [
        ({}, ["gloss"], "name the objective gloss:max or gloss:min"),
        ({"OBJECTIVE": "score"}, [], "name the objective score:max or score:min"),
        ({"OBJECTIVE": "quality:max"}, ["qualty"], "qualty:min. Did you mean 'quality'?"),
        ({}, ["loss", "gloss"], "name the objective gloss:max or gloss:min"),
    ],
)
def test_an_unknown_direction_is_refused_with_how_to_give_it(
    constants: dict[str, object], asked: list[str], way: str
) -> None:
    with pytest.raises(UsageError) as caught:
        resolve_goals(found_with(**constants), asked)
    assert caught.value.message.endswith(way)


@pytest.mark.parametrize(
    ("metrics", "objectives", "said"),
    [
        (("loss", "val_accuracy"), ["val_acuracy:max"], "did you mean val_accuracy:max? It"),
        (("loss", "val_accuracy"), ["val_acuracy"], "did you mean val_accuracy? It reports"),
        (("loss", "val_accuracy"), [], "such as --objective loss:min, or"),
        (("length", "val_accuracy"), [], "such as --objective val_accuracy:max, or"),
        (("loss",), ["val_accuracy:maximise"], "Did you mean val_accuracy:max?"),
        (("loss",), ["val_accuracy:up"], "allowed are val_accuracy:min and val_accuracy:max"),
    ],
)
def test_a_wrong_objective_is_answered_with_one_that_is_right(
    metrics: tuple[str, ...], objectives: list[str], said: str
) -> None:
    found = replace(found_with(), metrics=metrics, reports_others=False)
    with pytest.raises(UsageError) as caught:
        resolve_goals(found, objectives)
    assert said in caught.value.message


def test_energy_is_a_metric_of_any_code() -> None:
    found = replace(found_with(), metrics=("loss",), reports_others=False)
    goals, notes = resolve_goals(found, ["loss", "energy_kwh"], ["energy_kwh<1"])
    assert goals.metrics == ("loss", "energy_kwh")
    assert goals.objectives[1].direction is Direction.MIN
    assert notes == []


@pytest.mark.parametrize(
    ("constants", "words"),
    [
        ({"OBJECTIVE": "quality"}, "name the objective quality:max or quality:min"),
        ({"EPOCHS": 0}, "EPOCHS is 0; allowed are whole numbers from 1 on"),
        ({"EPOCHS": 10**30}, "EPOCHS: 1000000000000000000000000000000 is given, and the largest"),
        ({"RESOURCES": {"cpus": "two"}}, "cpus is 'two'; allowed are whole numbers from 1 on"),
        ({"RESOURCES": {"cpus": 0}}, "cpus is 0; allowed are whole numbers from 1 on"),
        ({"RESOURCES": {"gpus": -1}}, "gpus is -1; allowed are whole numbers from 0 on"),
        ({"RESOURCES": {"cores": 2}}, "RESOURCES has cores; allowed are cpus"),
        ({"RESOURCES": {"cpus": 9}}, "asks for 9 cores, but this machine has 2"),
    ],
)
def test_wrong_constants_are_refused(
    tmp_path: Path, constants: dict[str, object], words: str
) -> None:
    given, found = settings(tmp_path), found_with(**constants)

    def resolve() -> None:
        resolve_goals(found)
        resolve_epochs(given, found)
        resolve_layout(asked_for(given), found.constants, Capacity((0, 1)))

    with pytest.raises(UsageError) as caught:
        resolve()
    assert words in caught.value.message


def test_whole_amounts_may_be_written_as_any_number(tmp_path: Path) -> None:
    """Those of `hptune.Resources(memory_bytes=4e9)` are read as these."""
    constants = {"RESOURCES": {"cpus": 2.0, "gpus": 0.0, "memory_bytes": 4e9}}
    found = resolve_layout(asked_for(settings(tmp_path)), constants, Capacity((0, 1))).resources
    assert str(found) == "2 cores, 4 GB"
    assert {type(each) for each in (found.cpus, found.gpus, found.memory_bytes)} == {int}


def test_more_workers_than_any_machine_has_are_refused_at_once(tmp_path: Path) -> None:
    asked = asked_for(settings(tmp_path, workers=10**15))
    with pytest.raises(UsageError, match="allowed are at most 16, which is 8 for each"):
        resolve_layout(asked, {}, Capacity((0, 1)))


def test_a_budget_of_gpus_is_refused_where_no_trial_holds_one(tmp_path: Path) -> None:
    here, there = Capacity((0, 1)), Capacity((0, 1), gpus=("0",))
    given = settings(tmp_path, budget="2gpu-h")
    for constants, machine in (({}, here), ({"RESOURCES": {"gpus": 0}}, there)):
        with pytest.raises(UsageError, match="would never be spent"):
            resolve_layout(asked_for(given), constants, machine)
    assert resolve_layout(asked_for(given), {}, there).resources.gpus is None
    assert resolve_layout(asked_for(given), {}, here, is_certain=False).resources.gpus is None


def test_the_command_line_overrides_the_file(tmp_path: Path) -> None:
    found = found_with(OBJECTIVE="loss", EPOCHS=3, RESOURCES={"cpus": 1})
    given = settings(tmp_path, objectives=("quality:max",), epochs=7, cpus_per_trial=2)
    goals, _ = resolve_goals(found, given.objectives)
    assert goals == Goals((Goal("quality", Direction.MAX),))
    assert resolve_epochs(given, found) == 7
    assert resolve_layout(asked_for(given), found.constants, Capacity((0, 1))).resources.cpus == 2
