"""Failures."""

import optuna
import pytest


def objective(trial):
    if trial.number < 8:
        raise ValueError(f"bad {trial.suggest_float('x', 0, 1)}")
    raise KeyError("worse")


study = optuna.create_study()
with pytest.raises(KeyError, match="worse"):
    study.optimize(objective, n_trials=20, catch=(ValueError,))
assert [each.state.name for each in study.trials] == ["FAIL"] * 9
