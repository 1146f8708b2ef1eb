"""Reports and never asks."""

import optuna


def objective(trial):
    x = trial.suggest_float("x", 0, 1)
    for fold in range(5):
        trial.report(x, fold)
    return float(x)


study = optuna.create_study()
study.optimize(objective, n_trials=12)
assert {each.state.name for each in study.trials} == {"COMPLETE"}
