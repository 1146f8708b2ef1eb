"""Table and figures."""

import optuna


def square(trial):
    x = trial.suggest_float("x", -10, 10)
    return float((x - 2) ** 2)


sampler = optuna.samplers.RandomSampler(seed=1)
study = optuna.create_study(sampler=sampler)
study.optimize(lambda trial: square(trial) + trial.suggest_int("n", 1, 3), n_trials=5)
frame = study.trials_dataframe(attrs=("number", "value", "params", "state"))
assert [*frame.columns] == ["number", "value", "params_n", "params_x", "state"]
assert {*frame["state"]} == {"COMPLETE"}
assert set(optuna.importance.get_param_importances(study)) == {"x", "n"}
