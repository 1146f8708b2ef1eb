"""hptune: a model file for `hptune run`; each trial gets its own fresh process."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from overhead import cases, digits_trial
from overhead.protocol import trials

EPOCHS = cases.EPOCHS
OBJECTIVE = "val_accuracy"


def build_model(hp: Any) -> Any:
    return digits_trial.build(cases.config(hp.Choice("case", list(range(trials())))))


def load_data() -> tuple[digits_trial.Arrays, digits_trial.Arrays]:
    return digits_trial.data()


def fit(
    hp: Any,
    model: Any,
    data: object,  # noqa: ARG001 - a fit's signature
    callbacks: Sequence[Any],
    epochs: int,  # noqa: ARG001 - a fit's signature
) -> Any:
    return digits_trial.fit(model, cases.config(hp.get("case")), callbacks)
