"""Several objectives."""

import optuna


def objective(trial):
    x = trial.suggest_float("x", 0, 2)
    return x**2, x


study = optuna.create_study(directions=["minimize", "maximize"])
study.optimize(objective, n_trials=6)
frame = study.trials_dataframe(attrs=("number", "value", "params"))
assert [*frame.columns] == ["number", "values_0", "values_1", "params_x"]
assert len(study.best_trials) == 6
assert len(study.best_trials[0].values) == 2
