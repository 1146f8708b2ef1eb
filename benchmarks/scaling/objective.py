"""A model file: one of the plain trainings, unchanged, as an objective."""

from __future__ import annotations

import importlib
import os
from typing import Any

OBJECTIVE = "loss:min"


def objective(hp: Any, trial: Any) -> float:
    hp.Choice("one", [1])
    if trial.should_stop():  # the search space is known here; what follows trains
        return 0.0
    importlib.import_module(f"scaling.{os.environ['STRONG_SCALING_MODULE']}").train()
    return 0.0
