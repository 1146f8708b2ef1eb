"""Pruned without a report."""

import optuna
import pytest


def objective(trial):
    if trial.suggest_float("x", 0, 1) < 2:
        raise optuna.exceptions.TrialPruned("useless")
    return 1.0


study = optuna.create_study()
study.optimize(objective, n_trials=3)
assert {each.state.name for each in study.trials} == {"PRUNED"}
with pytest.raises(ValueError, match="No trials"):
    _ = study.best_value
