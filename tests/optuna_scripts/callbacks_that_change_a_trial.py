"""Callbacks that change a trial."""

import optuna


def square(trial):
    x = trial.suggest_float("x", -10, 10)
    return float((x - 2) ** 2)


def callback(study, trial):
    trial.params["x"] = trial.user_attrs["callback"] = 99


study = optuna.create_study()
study.optimize(square, n_trials=2, callbacks=[callback])
study.tell(study.ask(), 1.0).user_attrs["callback"] = 99
changed = [each for each in study.trials if 99 in {**each.params, **each.user_attrs}.values()]
assert not changed
