"""Again and by name."""

import optuna
import pytest


def square(trial):
    x = trial.suggest_float("x", -10, 10)
    return float((x - 2) ** 2)


storage = "sqlite:///results.db"
study = optuna.create_study(storage=storage, study_name="mine", direction="maximize")
study.optimize(square, n_trials=3)
again = optuna.create_study(storage=storage, study_name="mine", load_if_exists=True)
again.optimize(square, n_trials=2)
with pytest.raises(optuna.exceptions.DuplicatedStudyError):
    optuna.create_study(storage=storage, study_name="mine")
loaded = optuna.load_study(study_name=None, storage=storage)
assert optuna.get_all_study_names(storage) == ["mine"]
assert len(loaded.trials) == 5
assert loaded.best_value == study.best_value
