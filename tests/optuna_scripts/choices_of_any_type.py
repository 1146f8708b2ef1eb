"""Choices of any type."""

import optuna


def square(trial):
    x = trial.suggest_float("x", -10, 10)
    return float((x - 2) ** 2)


allowed = {
    "layers": [(16,), (32, 16)], "fit": [True, False], "cap": [None, 5, "auto"],
    "loss": [square, max], "kind": ["a", None],
}  # fmt: skip


def objective(trial):
    chosen = {name: trial.suggest_categorical(name, each) for name, each in allowed.items()}
    assert all(any(v is each for each in allowed[name]) for name, v in chosen.items())
    return len(str(chosen))


study = optuna.create_study(direction="maximize")
study.optimize(objective, n_trials=5)
assert all(value in allowed[name] for name, value in study.best_params.items())
