"""Steps that are reported twice."""

import optuna


def square(trial):
    x = trial.suggest_float("x", -10, 10)
    return float((x - 2) ** 2)


def objective(trial):
    for step, value in ((0, 1.0), (1, 2.0), (1, 3.0), (0, 4.0)):
        trial.report(value, step)
    assert trial.datetime_start is not None
    return square(trial)


study = optuna.create_study()
study.optimize(objective, n_trials=1)
assert study.trials[0].intermediate_values == {0: 1.0, 1: 2.0}
assert optuna.__version__
