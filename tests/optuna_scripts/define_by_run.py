"""Define by run."""

import optuna


def objective(trial):
    if trial.suggest_categorical("model", ["svm", "forest"]) == "svm":
        return float(trial.suggest_float("c", 1e-3, 1e3, log=True))
    layers = trial.suggest_int("trees", 1, 3)
    return float(sum(trial.suggest_int(f"depth_{i}", 1, 9) for i in range(layers)))


study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=1))
study.optimize(objective, n_trials=10)
assert all(("c" in t.params) == (t.params["model"] == "svm") for t in study.trials)
