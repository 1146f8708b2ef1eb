"""Enqueued for several jobs."""

import optuna


def square(trial):
    x = trial.suggest_float("x", -10, 10)
    return float((x - 2) ** 2)


study = optuna.create_study()
study.optimize(square, n_trials=1)
for x in range(4):
    study.enqueue_trial({"x": float(x)})
study.optimize(square, n_trials=4, n_jobs=2)
assert sorted(each.params["x"] for each in study.trials[1:]) == [0.0, 1.0, 2.0, 3.0]
