"""An error in several jobs that is not caught."""

import optuna
import pytest


def square(trial):
    x = trial.suggest_float("x", -10, 10)
    return float((x - 2) ** 2)


def objective(trial):
    raise ValueError(square(trial))


study = optuna.create_study()
with pytest.raises((ValueError, RuntimeError)):
    study.optimize(objective, n_trials=6, n_jobs=2, catch=RuntimeError)
assert len(study.trials) < 6
