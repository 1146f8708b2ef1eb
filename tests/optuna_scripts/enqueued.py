"""Enqueued."""

import optuna


def square(trial):
    x = trial.suggest_float("x", -10, 10)
    return float((x - 2) ** 2)


def objective(trial):
    first, _ = trial.suggest_categorical("c", [(1, 2), (3, 4)])
    return square(trial) + float(first)


study = optuna.create_study()
study.enqueue_trial({"x": 2.0, "c": (3, 4)})
study.enqueue_trial({"x": 2.0, "c": (1, 2)})
study.optimize(objective, n_trials=2)
study.enqueue_trial({"x": 2.0, "c": (1, 2)}, skip_if_exists=True)
study.enqueue_trial({"x": 7.5})
study.optimize(objective, n_trials=1)
values = [(each.params["x"], each.params["c"]) for each in study.trials]
assert values[:2] == [(2.0, (3, 4)), (2.0, (1, 2))]
assert values[2][0] == 7.5
for _ in range(6):
    study.enqueue_trial({"c": (3, 4)})
study.optimize(objective, n_trials=6)
assert {each.params["c"] for each in study.trials[3:]} == {(3, 4)}
assert len({each.params["x"] for each in study.trials[3:]}) == 6
