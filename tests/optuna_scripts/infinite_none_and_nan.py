"""Infinite none and nan."""

import optuna

results = iter((float("inf"), None, float("nan"), 0.5))


def objective(trial):
    trial.suggest_float("x", 0, 1)
    return next(results)


study = optuna.create_study()
study.optimize(objective, n_trials=4)
states = [each.state.name for each in study.trials]
assert states == ["FAIL", "FAIL", "FAIL", "COMPLETE"]
assert study.best_value == 0.5
