"""Halving."""

import optuna


def trained(steps=range(6)):
    def objective(trial):
        rate = trial.suggest_float("rate", 1e-5, 1e-1, log=True)
        for step in steps:
            trial.report(1 - rate + step / 100, step)
            if trial.should_prune():
                raise optuna.TrialPruned
        return 1.0 - float(rate)

    return objective


pruners = optuna.pruners
makers = (
    pruners.SuccessiveHalvingPruner(), pruners.HyperbandPruner(max_resource=9),
    pruners.HyperbandPruner(), pruners.NopPruner(),
)  # fmt: skip
for pruner in makers:
    study = optuna.create_study(direction="maximize", pruner=pruner)
    study.optimize(trained(range(1, 10)), n_trials=4)
assert all(each.state == optuna.trial.TrialState.COMPLETE for each in study.trials)
