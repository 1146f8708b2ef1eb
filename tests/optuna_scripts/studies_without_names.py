"""Studies without names."""

import optuna

storage = "sqlite:///several.db"
first = optuna.create_study(storage=storage, study_name="study-2")
names = {optuna.create_study(storage=storage).study_name for _ in range(2)}
assert len(names | {first.study_name}) == 3
