"""Whether the rungs of early stopping agree with the ends of trials, and what is said if not."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fake_study import GOALS, trial
from hptune.config.objectives import goals_to_json
from hptune.config.settings import StudySettings
from hptune.core.attempt import ReportedValue
from hptune.core.goals import Comparison, Constraint, Goals
from hptune.core.messages import Finish, FinishReason
from hptune.core.pruner import is_exempt
from hptune.core.trial import CONFIRMS, Direction, Goal, TrialState
from hptune.reporting.results.rungs import (
    ENOUGH_TRIALS,
    MIN_TRIALS,
    rank_correlation,
    rung_agreements,
    stopped_at,
    stopping_warning,
    why_stopped,
)
from hptune.reporting.results.summary import closing_text, status_text
from hptune.reporting.results.view import StudyView
from hptune.study import Study
from hptune.user_code.model_file import ObjectiveSource, SourceKind
from stored_study import curve, stored

EXEMPT = [number for number in range(400) if is_exempt(number)][:ENOUGH_TRIALS]
PLAIN = range(1, ENOUGH_TRIALS + 1)
UPWARDS = [0.1 * place for place in range(1, ENOUGH_TRIALS + 1)]
DOWNWARDS = UPWARDS[::-1]
DONE = Finish(FinishReason.DONE, "")


def study(*rows: tuple[int, Sequence[float], float], pruned: int = 0) -> StudyView:
    """Return a study of complete trials: number, values at epochs 2, 6 and 18, and at the end."""
    complete = [trial(number, value=end, step=27) for number, _, end in rows]
    stopped = [trial(1000 + each, TrialState.PRUNED, value=0.1, step=2) for each in range(pruned)]
    return StudyView(
        directory="runs/one",
        search="tpe",
        goals=GOALS,
        budget_trials=None,
        trials=[*complete, *stopped],
        epochs=27,
        at_rungs={
            rung: {number: values[place] for number, values, _ in rows if len(values) > place}
            for place, rung in enumerate((2, 6, 18))
        },
    )


@pytest.mark.parametrize(
    ("rungs", "expected"),
    [((2, 6), {1: 1, 2: 3, 6: 2}), ((), {1: 1, 2: 1, 3: 2, 6: 1, 8: 1})],
)
def test_trials_are_stopped_at_rungs_also_if_they_learn_of_it_later(
    rungs: tuple[int, ...], expected: dict[int, int]
) -> None:
    steps = (1, 2, 3, 3, 6, None)
    stopped = [trial(n, TrialState.PRUNED, value=0.1, step=step) for n, step in enumerate(steps)]
    others = [trial(8, TrialState.PAUSED, value=0.1, step=8), trial(9, value=0.1, step=27)]
    assert stopped_at(replace(study(), trials=[*stopped, *others], rungs=rungs)) == expected


def found_in(view: StudyView) -> list[tuple[int, int, Any, bool]]:
    """Return rung, trials, correlation and whether the trials are exempt, for each rung."""
    return [
        (
            each.rung,
            each.trials,
            each.correlation if each.correlation is None else round(each.correlation, 3),
            each.are_exempt,
        )
        for each in rung_agreements(view)
    ]


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ([1.0, 2.0, 3.0, 4.0], [0.1, 0.2, 0.3, 9.0], 1.0),
        ([1.0, 2.0, 3.0, 4.0], [4.0, 3.0, 2.0, -math.inf], -1.0),
        # Half the ranks are equal: worked out by hand from Pearson's formula.
        ([1.0, 1.0, 2.0, 2.0], [1.0, 2.0, 3.0, 4.0], 2.0 / math.sqrt(5.0)),
        ([1.0, 1.0, 1.0, 2.0, 3.0], [1.0, 2.0, 3.0, 4.0, 5.0], 2.0 / math.sqrt(5.0)),
        ([1.0, 1.0], [1.0, 2.0], None),
        ([1.0], [1.0], None),
        ([], [], None),
    ],
)
def test_the_rank_correlation_is_that_of_spearman(
    one: list[float], other: list[float], expected: float | None
) -> None:
    assert rank_correlation(one, other) == (expected and pytest.approx(expected))
    assert rank_correlation(other, one) == rank_correlation(one, other)


def test_each_rung_is_compared_with_the_end() -> None:
    rows = [
        (number, (down, up, up), up)
        for number, down, up in zip(PLAIN, DOWNWARDS, UPWARDS, strict=True)
    ]
    ended_sooner = (100, (0.05, 0.05), 0.05)
    assert found_in(study(*rows, ended_sooner)) == [
        (2, ENOUGH_TRIALS + 1, -0.4, False),
        (6, ENOUGH_TRIALS + 1, 1.0, False),
        (18, ENOUGH_TRIALS, 1.0, False),
    ]
    few = found_in(study(*rows[: MIN_TRIALS - 1]))
    assert [each[2] for each in few] == [None] * 3
    assert found_in(replace(study(*rows), at_rungs={})) == []


def test_exempt_trials_are_compared_alone_if_there_are_enough() -> None:
    passed = [(number, (v,), 1.0 - v) for number, v in zip(PLAIN, UPWARDS, strict=True)]
    exempt = [(number, (v,), v) for number, v in zip(EXEMPT, UPWARDS, strict=True)]
    (of_all,) = found_in(study(*passed, *exempt[1:]))
    assert of_all[1] == 2 * ENOUGH_TRIALS - 1
    assert of_all[2] < 0.25
    assert found_in(study(*passed, *exempt)) == [(2, ENOUGH_TRIALS, 1.0, True)]


def test_confirmations_and_infeasible_trials_are_not_compared() -> None:
    rows = [(number, (v,), v) for number, v in zip(PLAIN, UPWARDS, strict=True)]
    view = study(*rows)
    first, *others = view.trials
    again = replace(view, trials=[replace(first, origin=f"{CONFIRMS}3"), *others])
    assert found_in(again) == [(2, ENOUGH_TRIALS - 1, 1.0, False)]
    infeasible = replace(view, trials=[replace(first, violation=0.1), *others])
    assert found_in(infeasible) == [(2, ENOUGH_TRIALS - 1, 1.0, False)]


def warned(*at_rungs: Sequence[float], pruned: int = 0) -> str:
    """Return the warning of a study with these values at its rungs."""
    rows = [
        (number, values, end)
        for number, *values, end in zip(PLAIN, *at_rungs, UPWARDS, strict=True)
    ]
    return stopping_warning(study(*rows, pruned=pruned))


def test_a_first_rung_that_misleads_is_told_with_what_helps() -> None:
    mislead = (
        "early stopping may mislead: ranks at epoch 2 hardly predict those at the end "
        f"(correlation -1.00, {ENOUGH_TRIALS} trials); use "
    )
    assert warned(DOWNWARDS, UPWARDS, UPWARDS) == f"{mislead}--min-epochs 6 (1.00) or --pruner none"
    assert warned(DOWNWARDS, DOWNWARDS, UPWARDS) == (
        f"{mislead}--min-epochs 18 (1.00) or --pruner none"
    )
    assert warned(DOWNWARDS, DOWNWARDS, DOWNWARDS) == f"{mislead}--pruner none"
    assert warned(UPWARDS, UPWARDS, UPWARDS) == ""
    assert warned(UPWARDS, UPWARDS, UPWARDS, pruned=1000) == "", "few are complete, but it is known"


def test_a_correlation_that_is_a_little_low_is_told_of_exempt_trials_only() -> None:
    rows = [(number, (v,), v) for number, v in zip(PLAIN, UPWARDS, strict=True)]
    reversed_rows = [(number, (1.0 - v,), v) for number, (v,), _ in rows[:MIN_TRIALS]]
    line = stopping_warning(study(*reversed_rows))
    assert f"(correlation -1.00, {MIN_TRIALS} trials)" in line
    assert stopping_warning(study(*reversed_rows[1:])) == ""
    weak = [0.3, 0.1, 0.5, 0.2, 0.4]
    shuffled = study(*((n, (v,), end) for v, (n, _, end) in zip(weak, rows, strict=False)))
    assert found_in(shuffled) == [(2, MIN_TRIALS, 0.3, False)]
    assert stopping_warning(shuffled) == ""
    weak = [0.2, 0.5, 0.1, 0.3, 0.35, 0.8, 0.4, 0.25]
    for numbers, is_told in ((PLAIN, False), (EXEMPT, True)):
        view = study(*((n, (v,), end) for n, v, end in zip(numbers, weak, UPWARDS, strict=True)))
        assert found_in(view) == [(2, ENOUGH_TRIALS, 0.286, is_told)]
        assert bool(stopping_warning(view)) == is_told


def test_the_rung_that_is_named_has_a_high_correlation() -> None:
    weak = [0.2, 0.5, 0.1, 0.3, 0.35, 0.8, 0.4, 0.25]  # not low for trials that passed, nor high
    line = warned(DOWNWARDS, weak, UPWARDS)
    assert "use --min-epochs 18 (1.00)" in line
    assert warned(DOWNWARDS, UPWARDS, weak).endswith("; use --pruner none")


def test_too_few_complete_trials_are_told() -> None:
    complete = (1, (0.5,), 0.5), (2, (0.6,), 0.6)
    assert stopping_warning(study(*complete, pruned=28)) == (
        "2 of 30 trials trained to the end, too few to know whether early stopping keeps the best; "
        "more trials, a larger --min-epochs or --pruner none would show it"
    )
    assert stopping_warning(study(*complete, pruned=18)) == "", "a tenth of them"
    assert stopping_warning(study(complete[0], pruned=18)) == "", "a short study"
    without = replace(study(*complete, pruned=28), at_rungs={})
    assert stopping_warning(without) == "", "it has no pruner"


def test_the_status_and_the_end_of_a_run_have_the_warning_in_one_line() -> None:
    rows = [(number, (1.0 - v,), v) for number, v in zip(PLAIN, UPWARDS, strict=True)]
    view = study(*rows)
    line = stopping_warning(view)
    assert line in closing_text(view, DONE).splitlines()
    assert [each.strip() for each in status_text(view, now=0.0).splitlines()].count(line) == 1
    fine = replace(view, at_rungs={})
    assert "mislead" not in closing_text(fine, DONE) + status_text(fine, now=0.0)


def test_why_a_trial_was_stopped_counts_those_that_were_there_before() -> None:
    """Trials 0 to 4 reach epoch 2 in this order; the stopped ones are 2, 3 and 4."""
    at_two = [0.5, 0.7, 0.6, 0.4, 0.55]
    reports = [
        ReportedValue(number, 0, step, "val_accuracy", value, at)
        for number, last in enumerate(at_two)
        for step, value, at in ((1, 0.1, 10.0 * number), (2, last, 10.0 * number + 5.0))
    ]
    reports.append(ReportedValue(0, 0, 3, "val_accuracy", 0.9, 100.0))  # after the rung
    trials = [
        trial(number, TrialState.PRUNED if number > 1 else TrialState.COMPLETE, value, step=2)
        for number, value in enumerate(at_two)
    ]
    view = replace(study(), trials=trials, rungs=(2, 6))
    where = "stopped at epoch 2, where "
    expected = {
        2: f"{where}1 of the 2 trials before it did better",
        3: f"{where}3 of the 3 trials before it did better",
        4: f"{where}2 of the 4 trials before it did better",
    }
    assert why_stopped(view, reports) == expected
    first = replace(trials[1], state=TrialState.PRUNED)
    alone = replace(view, trials=[trials[0], first])
    assert why_stopped(alone, reports) == {}, "later trials were better"
    lower = Goals((Goal("val_accuracy", Direction.MIN),))
    alone = replace(alone, goals=lower)
    assert why_stopped(alone, reports) == {}, "both had 0.1 at epoch 1"
    assert why_stopped(alone, [each for each in reports if each.step > 1])[1] == (
        f"{where}the one trial before it did better"
    )
    assert why_stopped(replace(view, rungs=()), reports) == {}
    constrained = Goals(GOALS.objectives, (Constraint("size", Comparison.AT_MOST, 9.0),))
    assert why_stopped(replace(view, goals=constrained), reports) == {}


def stored_values(path: Path, goals: Goals = GOALS, **settings: Any) -> dict[int, dict[int, float]]:
    """Return what a stored study of 9 epochs, whose second trial is pruned, has at its rungs."""
    asked = StudySettings(
        source=ObjectiveSource(SourceKind.FILE, str(path / "model.py")),
        working_directory=str(path),
        search="random",
        trials=10,
        **settings,
    )
    directory = stored(
        path / "study",
        [trial(0, value=0.9, step=9), trial(1, TrialState.PRUNED, value=0.3, step=1)],
        events=[*curve(0, [0.5, 0.4, 0.6, *[0.9] * 6]), *curve(1, [0.3])],
        settings=asked.to_json(),
        epochs=9,
        goals=goals_to_json(goals),
    )
    return {rung: dict(values) for rung, values in Study(directory.path).view().at_rungs.items()}


TWO_GOALS = Goals((*GOALS.objectives, Goal("val_loss", Direction.MIN)))


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ({"pruner": "asha"}, {1: {0: 0.5}, 3: {0: 0.6}}),
        ({"pruner": "asha", "min_epochs": 2}, {2: {0: 0.5}}),
        ({"pruner": "median", "min_epochs": 4}, {4: {0: 0.9}}),
        ({"pruner": "none"}, {}),
        ({}, {}),
        ({"pruner": "not_installed:Pruner"}, {}),
        ({"pruner": "asha", "goals": TWO_GOALS}, {}),
    ],
)
def test_a_study_has_the_values_of_complete_trials_at_its_rungs(
    tmp_path: Path, asked: dict[str, Any], found: dict[int, dict[int, float]]
) -> None:
    assert stored_values(tmp_path, **asked) == found
