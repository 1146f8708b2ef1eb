"""Asked and told."""

import optuna


def square(trial):
    x = trial.suggest_float("x", -10, 10)
    return float((x - 2) ** 2)


study = optuna.create_study()
first = study.ask()
result = square(first)
other = study.ask()
square(other)
study.tell(first, result)
study.tell(other.number, state=optuna.trial.TrialState.FAIL)
study.tell(study.ask(), state=optuna.trial.TrialState.PRUNED)
study.tell(first, 3.0, skip_if_finished=True)
assert [each.state.name for each in study.trials] == ["COMPLETE", "FAIL", "PRUNED"]
