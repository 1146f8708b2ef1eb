"""Again with the best configuration."""

import pickle

import optuna


def square(trial):
    x = trial.suggest_float("x", -10, 10)
    return float((x - 2) ** 2)


study = optuna.create_study()
study.optimize(square, n_trials=3)
assert square(study.best_trial) == study.best_value
assert square(optuna.trial.FixedTrial({"x": 3.0})) == 1.0
assert len(pickle.loads(pickle.dumps(study)).trials) == 3
