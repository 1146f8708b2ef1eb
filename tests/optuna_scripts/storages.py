"""Storages."""

import optuna


def square(trial):
    x = trial.suggest_float("x", -10, 10)
    return float((x - 2) ** 2)


kinds = optuna.storages
journal = kinds.JournalStorage(kinds.journal.JournalFileBackend("journal.log"))
for storage in (journal, kinds.RDBStorage("sqlite:///r.db"), kinds.InMemoryStorage()):
    study = optuna.create_study(storage=storage)
    study.optimize(square, n_trials=1, timeout=60)
assert study.best_trial.duration.total_seconds() >= 0
