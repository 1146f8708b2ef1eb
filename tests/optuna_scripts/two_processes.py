"""Two processes."""

import os

import optuna


def square(trial):
    x = trial.suggest_float("x", -10, 10)
    return float((x - 2) ** 2)


here, seen = os.getpid(), []


def objective(trial):
    trial.set_user_attr("pid", os.getpid())
    trial.set_user_attr("own", trial.study.study_name)
    if trial.number == 2:
        os._exit(7)
    if trial.number == 3:
        raise LookupError("no")
    return square(trial)


study = optuna.create_study(study_name="forked")
study.optimize(
    objective, 6, n_jobs=2, catch=Exception, callbacks=[lambda _, t: seen.append(t.number)]
)
pids = {each.user_attrs["pid"] for each in study.trials}
states = [each.state.name for each in study.trials]
assert states == ["COMPLETE", "COMPLETE", "FAIL", "FAIL", "COMPLETE", "COMPLETE"]
assert sorted(seen) == [*range(6)]
assert here not in pids
assert len(pids) == 6
