"""Attributes of any name."""

import optuna


def square(trial):
    x = trial.suggest_float("x", -10, 10)
    return float((x - 2) ** 2)


study = optuna.create_study()
study.set_user_attr("ü/" * 200, [1])
study.user_attrs["ü/" * 200].append(2)
trial = study.ask()
square(trial)
assert study.trials[0].user_attrs.keys().isdisjoint({"later"})
trial.set_user_attr("later", 3)
assert study.trials[0].user_attrs["later"] == 3
assert study.user_attrs == {"ü/" * 200: [1]}
