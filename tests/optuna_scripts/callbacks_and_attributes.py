"""Callbacks and attributes."""

from types import SimpleNamespace

import optuna


def square(trial):
    x = trial.suggest_float("x", -10, 10)
    return float((x - 2) ** 2)


seen = []


def objective(trial):
    trial.set_user_attr("model", SimpleNamespace(number=trial.number))
    assert trial.user_attrs["model"].number == trial.number
    return square(trial)


def callback(study, trial):
    seen.append(trial.user_attrs["model"].number)
    if study.best_trial.number == trial.number:
        study.set_user_attr("best", trial.user_attrs["model"])
    if trial.number == 5:
        study.stop()


study = optuna.create_study()
study.optimize(objective, callbacks=[callback])
assert seen == [*range(6)]
assert study.user_attrs["best"].number == study.best_trial.number
