"""Choices that are objects of the script."""

import optuna


class Named:
    def __repr__(self):
        return "one"


def objective(trial):
    names.append(str(trial.suggest_categorical("named", [Named(), None])))
    function = trial.suggest_categorical("function", functions)
    assert function in functions
    return float(function(1))


names = []
functions = [lambda x: x, lambda x: -x]
study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=1))
study.optimize(objective, n_trials=2)
study.optimize(objective, n_trials=2, n_jobs=2)
assert {*names} <= {"one", "None"}
assert study.best_params["function"] in functions
