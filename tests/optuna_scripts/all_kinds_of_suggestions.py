"""All kinds of suggestions."""

import optuna


def objective(trial):
    trial.suggest_uniform("drop", 0, 0.5)
    trial.suggest_loguniform("rate", 1e-5, 1)
    trial.suggest_discrete_uniform("q", 0, 1, 0.25)
    depth = trial.suggest_int("depth", 1, 1e3, log=True)
    even = trial.suggest_int("even", 2, 8, step=2)
    assert trial.suggest_int("one", 3, 3) == 3
    assert isinstance(depth, int)
    assert even in (2, 4, 6, 8)
    assert trial.suggest_float("drop", 0, 0.5) == trial.params["drop"]
    return float(depth)


study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=3, multivariate=True))
study.optimize(objective, n_trials=4, gc_after_trial=True, show_progress_bar=False)
assert set(study.best_params) == {"drop", "rate", "q", "depth", "even", "one"}
