"""Whether the rungs of early stopping agree with the ends of trials, and what is said if not."""

from __future__ import annotations

import math
import random
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
from hptune.reporting.results.answers import advice
from hptune.reporting.results.evidence import evident
from hptune.reporting.results.rungs import (
    LEAST_TRIALS,
    misleading_answer,
    rank_correlation,
    rung_agreements,
    stopped_at,
    tie_answer,
    trusted_answer,
    why_stopped,
)
from hptune.reporting.results.summary import closing_text, status_text
from hptune.reporting.results.view import StudyView
from hptune.study.study import Study
from hptune.user_code.source import ObjectiveSource, SourceKind
from stored_study import curve, stored

EXEMPT = [number for number in range(800) if is_exempt(number)]
UPWARDS = [0.01 * place for place in range(1, LEAST_TRIALS + 1)]
DOWNWARDS = UPWARDS[::-1]
DONE = Finish(FinishReason.DONE, "")


def study(*rows: tuple[int, Sequence[float], float], pruned: int = 0) -> StudyView:
    """Return a study of complete trials: number, values at epochs 2, 6 and 18, and at the end."""
    complete = [
        replace(
            trial(number, value=end, step=27),
            rungs={rung: (value,) for rung, value in zip((2, 6, 18), values, strict=False)},
        )
        for number, values, end in rows
    ]
    stopped = [trial(1000 + each, TrialState.PRUNED, value=0.1, step=2) for each in range(pruned)]
    return StudyView(
        directory="runs/one",
        search="tpe",
        goals=GOALS,
        budget_trials=None,
        trials=[*complete, *stopped],
        epochs=27,
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


def found_in(view: StudyView) -> list[tuple[int, int, Any]]:
    """Return rung, trials and correlation of each rung."""
    return [
        (
            each.rung,
            each.trials,
            each.correlation if each.correlation is None else round(each.correlation, 3),
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


def exempt(*at_rungs: Sequence[float], numbers: Sequence[int] = EXEMPT) -> StudyView:
    """Return a study of trials with these values at its rungs, and at the end."""
    return study(
        *((number, values, end) for number, *values, end in zip(numbers, *at_rungs, strict=False))
    )


def without_rungs(view: StudyView) -> StudyView:
    return replace(view, trials=[replace(each, rungs={}) for each in view.trials])


def test_each_rung_is_compared_with_the_end() -> None:
    view = exempt(DOWNWARDS, UPWARDS, UPWARDS)
    assert found_in(view) == [(2, LEAST_TRIALS, -1.0), (6, LEAST_TRIALS, 1.0)]
    few = exempt(DOWNWARDS[1:], UPWARDS[1:])
    assert found_in(few) == [(2, LEAST_TRIALS - 1, None)]
    assert found_in(without_rungs(view)) == []


def test_trials_that_a_rung_let_pass_are_not_compared() -> None:
    passed = [number for number in range(1, 40) if not is_exempt(number)]
    assert found_in(exempt(DOWNWARDS, UPWARDS, numbers=passed)) == []
    view = exempt(UPWARDS, UPWARDS)
    first, *others = view.trials
    again = replace(view, trials=[replace(first, origin=f"{CONFIRMS}3"), *others])
    infeasible = replace(view, trials=[replace(first, violation=0.1), *others])
    assert found_in(again) == found_in(infeasible) == [(2, LEAST_TRIALS - 1, None)]


def warned(view: StudyView) -> str:
    """Return the warning that a study's advice begins with; empty if it has none."""
    return "".join(each.words for each in advice(view) if "mislead" in each.words)


@pytest.mark.parametrize(
    ("at_rungs", "remedy"),
    [
        ((DOWNWARDS, UPWARDS), "use --min-epochs 6 (1.00) or --pruner none"),
        ((DOWNWARDS, DOWNWARDS, UPWARDS), "use --min-epochs 18 (1.00) or --pruner none"),
        ((DOWNWARDS, DOWNWARDS, DOWNWARDS), "use --pruner none"),
        ((UPWARDS, UPWARDS, UPWARDS), None),
    ],
)
def test_a_first_rung_that_misleads_is_told_with_what_helps(
    at_rungs: Sequence[Sequence[float]], remedy: str | None
) -> None:
    line = warned(exempt(*at_rungs, UPWARDS))
    assert bool(line) == (remedy is not None)
    if remedy is not None:
        assert line == (
            "early stopping may mislead: ranks at epoch 2 hardly predict those at the end "
            "(correlation -1.00, 95 % interval -1.00 to -0.92, of "
            f"{LEAST_TRIALS} trials that are never stopped); {remedy}"
        )


def test_a_first_rung_that_does_not_mislead_is_told_with_the_trials_behind_it() -> None:
    assert trusted_answer(exempt(UPWARDS, UPWARDS)).words == (
        "early stopping does not mislead: ranks at epoch 2 predict those at the end (correlation "
        f"1.00, 95 % interval 0.92 to 1.00, of {LEAST_TRIALS} trials that are never stopped)"
    )
    for view in (exempt(DOWNWARDS, UPWARDS), exempt(UPWARDS[1:], UPWARDS[1:])):
        assert evident([trusted_answer(view)]) == []


def test_what_a_few_trials_suggest_is_not_told() -> None:
    passed = [number for number in range(1, 40) if not is_exempt(number)]
    assert warned(exempt(DOWNWARDS, UPWARDS, numbers=passed)) == "", "the rung chose them"
    assert warned(exempt(DOWNWARDS[1:], UPWARDS[1:])) == ""
    weak = [0.3, 0.7, 0.1, 0.5, 0.6, 0.8, 0.2, 0.4]  # a correlation of 0, by chance
    assert found_in(exempt(weak, UPWARDS))[0][2] == pytest.approx(0.0, abs=0.1)
    assert warned(exempt(weak, UPWARDS)) == ""
    assert warned(exempt(weak * 4, [*range(32)])) != "", "of four times as many it is evident"


def test_the_status_and_the_end_of_a_run_have_the_warning_in_one_line() -> None:
    view = exempt(DOWNWARDS, UPWARDS)
    line = warned(view)
    assert line in closing_text(view, DONE).splitlines()
    assert [each[9:] for each in status_text(view, now=0.0).splitlines()].count(line) == 1
    fine = without_rungs(view)
    assert "mislead" not in closing_text(fine, DONE) + status_text(fine, now=0.0)


@pytest.mark.parametrize(
    ("at_two", "at_six", "expected"),
    [
        ([0.5] * 20, range(20), "all 20 trials are equal at epoch 2, so it tells nothing: `--mi"),
        ([0.5] * 19 + [0.6], range(20), "19 of 20 trials are equal at epoch 2, so it tells noth"),
        ([0.5] * 20, [0.5] * 20, "all 20 trials are equal at epoch 6, so it tells nothing: use a"),
        ([0.5] * 17 + [0.6] * 3, range(20), ""),
        ([0.5] * 19, range(19), ""),
        (range(20), [0.5] * 20, ""),
    ],
)
def test_a_rung_at_which_trials_are_equal_is_told(
    at_two: Sequence[float], at_six: Sequence[float], expected: str
) -> None:
    trials = [
        replace(trial(number, value=number, step=27), rungs={2: (float(two),), 6: (float(six),)})
        for number, (two, six) in enumerate(zip(at_two, at_six, strict=True))
    ]
    view = replace(study(), trials=trials, rungs=(2, 6))
    words = tie_answer(view).words
    assert words.startswith(expected)
    assert bool(words) == bool(expected)
    never = [replace(each, value=0.5, rungs={2: (0.5,), 6: (0.5,)}) for each in trials]
    assert tie_answer(replace(view, trials=never)).words == "", "no rung would tell more"


@pytest.mark.parametrize(
    ("noise", "most_told", "least_told"),
    [(0.3, 0.01, 0.0), (0.6, 0.03, 0.0), (30.0, 1.0, 0.4), (-1.0, 1.0, 0.95)],
)
def test_the_rate_of_wrong_warnings_in_simulated_studies(
    noise: float, most_told: float, least_told: float
) -> None:
    """The rung shows the end with some noise; with -1 it is turned over. 60 studies of 400 trials.

    The true correlations are 0.96, 0.86, 0.03 and -1.0. Three in ten trials pass the rung.
    """
    told = 0
    for seed in range(60):
        rng = random.Random(f"{noise} {seed}")
        ends = [rng.gauss(0.0, 1.0) for _ in range(400)]
        rungs = [-end if noise < 0 else end + rng.gauss(0.0, noise) for end in ends]
        limit = sorted(rungs)[280]
        rows = [
            (number, (at_rung,), end)
            for number, (at_rung, end) in enumerate(zip(rungs, ends, strict=True))
            if at_rung >= limit or is_exempt(number)
        ]
        told += bool(evident([misleading_answer(study(*rows))]))
    assert 60 * least_told <= told <= 60 * most_told


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
    # The order came at epoch 7, when trial 4 was the best at the rung of epoch 6.
    late = replace(view, trials=[*trials[:4], replace(trials[4], step=7)])
    more = [ReportedValue(4, 0, step, "val_accuracy", 0.99, 110.0 + step) for step in (6, 7)]
    others = [ReportedValue(0, 0, 6, "val_accuracy", 0.9, 101.0)]
    assert why_stopped(late, [*reports, *others, *more])[4] == (
        f"{expected[4]}; the order reached it at epoch 7"
    )
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
        [
            trial(0, value=0.9, step=9, metrics={"val_accuracy": 0.9, "val_loss": 0.1}),
            trial(1, TrialState.PRUNED, value=0.3, step=1),
        ],
        events=[*curve(0, [0.5, 0.4, 0.6, *[0.9] * 6]), *curve(1, [0.3])],
        settings=asked.to_json(),
        epochs=9,
        goals=goals_to_json(goals),
    )
    found: dict[int, dict[int, float]] = {}
    for each in Study(directory.path).view().trials:
        for rung, (value,) in each.rungs.items():
            found.setdefault(rung, {})[each.number] = value
    return found


TWO_GOALS = Goals((*GOALS.objectives, Goal("val_loss", Direction.MIN)))


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ({"pruner": "asha", "min_epochs": 1}, {1: {0: 0.5, 1: 0.3}, 3: {0: 0.6}}),
        ({"pruner": "asha", "min_epochs": 2}, {2: {0: 0.5}}),
        ({"pruner": "median", "min_epochs": 4}, {4: {0: 0.9}}),
        ({"pruner": "none"}, {}),
        ({}, {}),
        ({"pruner": "not_installed:Pruner"}, {}),
        ({"pruner": "asha", "goals": TWO_GOALS}, {}),
    ],
)
def test_a_study_has_the_values_of_its_trials_at_its_rungs(
    tmp_path: Path, asked: dict[str, Any], found: dict[int, dict[int, float]]
) -> None:
    assert stored_values(tmp_path, **asked) == found
