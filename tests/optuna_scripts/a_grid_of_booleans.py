"""A grid of booleans."""

import optuna

study = optuna.create_study(sampler=optuna.samplers.GridSampler({"is": [True, False]}))
study.optimize(lambda trial: trial.suggest_categorical("is", [True, False]), n_trials=2)
assert sorted(trial.params["is"] is True for trial in study.trials)
