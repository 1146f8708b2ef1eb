"""Most trials of all processes."""

import optuna


def square(trial):
    x = trial.suggest_float("x", -10, 10)
    return float((x - 2) ** 2)


callback = optuna.study.MaxTrialsCallback(3, states=(optuna.trial.TrialState.COMPLETE,))
study = optuna.create_study(storage="sqlite:///shared.db", study_name="shared")
study.optimize(square, n_trials=50, callbacks=[callback])
assert len(study.trials) == 3
