"""The table of `hptune trials`."""

from __future__ import annotations

from dataclasses import replace

from fake_study import trial
from hptune import text
from hptune.core.goals import Goals
from hptune.core.trial import Direction, Goal, TrialState
from hptune.reporting.results.trials import ranked, trials_text
from hptune.reporting.results.view import StudyView


def test_a_stopped_trial_without_all_objectives_stays_in_its_columns() -> None:
    names = ("accuracy", "bytes", "seconds")
    goals = Goals(tuple(Goal(name, Direction.MAX) for name in names))
    of = StudyView(
        directory="studies/one",
        search="random",
        goals=goals,
        budget_trials=2,
        trials=[
            replace(trial(0, value=0.5, params={"x": 1}), extra_values=(7.0, 8.0)),
            trial(1, TrialState.PRUNED, value=0.25, params={"x": 2}),
        ],
    )
    head, *rows = [line.split() for line in trials_text(of, ranked(of), now=0.0).splitlines()]
    assert head[2:] == [*names, "from", "step", "time", "origin", "x"]
    missing = [text.NOTHING] * 2
    assert [row[2:5] for row in rows] == [["0.5000", "7.000", "8.000"], ["0.2500", *missing]]
    assert [row[-1] for row in rows] == ["1", "2"]
