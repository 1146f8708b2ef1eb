"""KerasTuner: one process, the trials one after another."""

from __future__ import annotations

from typing import Any

import keras_tuner

from . import digits_trial
from .cases import config
from .protocol import hand_back, scratch, trials


class Digits(keras_tuner.HyperModel):
    def build(self, hp: Any) -> Any:
        return digits_trial.build(config(hp.Choice("case", list(range(trials())))))

    def fit(self, hp: Any, model: Any, *_: object, **kwargs: Any) -> Any:
        return digits_trial.fit(model, config(hp.get("case")), kwargs["callbacks"])


def main() -> None:
    tuner = keras_tuner.GridSearch(
        Digits(),
        objective=keras_tuner.Objective("val_accuracy", "max"),
        max_trials=trials(),
        directory=str(scratch()),
        project_name="digits",
    )
    tuner.search(verbose=0)
    done = (t for t in tuner.oracle.trials.values() if t.status == "COMPLETED")
    hand_back({trial.hyperparameters.get("case"): trial.score for trial in done})


if __name__ == "__main__":
    main()
