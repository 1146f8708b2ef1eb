"""Errors of its own in several jobs."""

import optuna
import pytest


def square(trial):
    x = trial.suggest_float("x", -10, 10)
    return float((x - 2) ** 2)


class Diverged(Exception):
    def __init__(self, loss, step):
        super().__init__(f"{loss} at step {step}")


def objective(trial):
    square(trial)
    raise Diverged(2.0, 3)


study = optuna.create_study()
study.optimize(objective, n_trials=2, n_jobs=2, catch=(Diverged,))
seen = []
with pytest.raises(RuntimeError, match=r"2.0 at step 3"):
    study.optimize(
        objective, n_trials=1, n_jobs=2, callbacks=[lambda _, each: seen.append(each.number)]
    )
assert seen == []
assert [each.state.name for each in study.trials] == ["FAIL"] * 3
