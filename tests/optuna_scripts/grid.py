"""Grid."""

import optuna


def square(trial):
    x = trial.suggest_float("x", -10, 10)
    return float((x - 2) ** 2)


space = {"x": [-1.0, 2.0], "n": [1, 2, 3]}
study = optuna.create_study(sampler=optuna.samplers.GridSampler(space))
study.optimize(lambda trial: square(trial) + trial.suggest_int("n", 1, 3))
assert len(study.trials) == 6
assert study.best_params == {"x": 2.0, "n": 1}
