"""Pruning from step 0."""

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


pruner = optuna.pruners.MedianPruner(n_startup_trials=3, n_warmup_steps=1)
study = optuna.create_study(direction="maximize", pruner=pruner)
study.optimize(trained(), n_trials=15)
states = optuna.trial.TrialState
pruned = study.get_trials(deepcopy=False, states=[states.PRUNED])
complete = study.get_trials(states=(states.COMPLETE,))
assert 0 in study.trials[0].intermediate_values
assert pruned
assert all(each.last_step > 0 for each in pruned)
assert len(complete) >= 3
