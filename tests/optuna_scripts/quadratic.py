"""Quadratic."""

import optuna


def square(trial):
    x = trial.suggest_float("x", -10, 10)
    return float((x - 2) ** 2)


study = optuna.create_study()
study.optimize(square, n_trials=12)
assert study.best_value == min(each.value for each in study.trials)
assert len(study.trials) == 12
