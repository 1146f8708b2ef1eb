"""Optuna: two processes on one SQLite storage, each running half of the trials."""

from __future__ import annotations

import sys

import optuna

from .cases import config
from .protocol import hand_back, scratch, second_process, trials, wait_for

STUDY = "digits"


def storage() -> str:
    return f"sqlite:///{scratch() / 'optuna.db'}"


def objective(trial: optuna.Trial) -> float:
    import keras

    from .digits_trial import train

    # Numbers are unique across the processes, so each case is run once.
    case = trial.suggest_int("case", trial.number, trial.number)
    report = keras.callbacks.LambdaCallback(
        on_epoch_end=lambda epoch, logs: trial.report(float(logs["val_accuracy"]), epoch)
    )
    return train(config(case), [report])


def work(n_trials: int) -> optuna.Study:
    sampler = optuna.samplers.RandomSampler(seed=0)
    study = optuna.load_study(study_name=STUDY, storage=storage(), sampler=sampler)
    study.optimize(objective, n_trials=n_trials)
    return study


def main() -> None:
    optuna.create_study(study_name=STUDY, storage=storage(), direction="maximize")
    second = second_process("overhead.optuna_study")
    study = work(trials() - trials() // 2)
    wait_for(second)
    done = study.get_trials(states=[optuna.trial.TrialState.COMPLETE])
    hand_back({trial.params["case"]: trial.value for trial in done if trial.value is not None})


if __name__ == "__main__":
    if sys.argv[1:] == ["second"]:
        work(trials() // 2)
    else:
        main()
