"""`hptune.lightning_callback`, with stand-ins for Lightning."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from hptune.training.torch_callbacks import _validation_callback, lightning_callback


def test_the_axis_of_lightnings_logs_is_no_metric(monkeypatch: pytest.MonkeyPatch) -> None:
    """`self.log("step", …)` gives the other metrics an axis, such as epochs."""
    module: Any = ModuleType("lightning.pytorch")
    module.Callback = object
    monkeypatch.setitem(sys.modules, "lightning", ModuleType("lightning"))
    monkeypatch.setitem(sys.modules, "lightning.pytorch", module)
    told: list[Any] = []

    def report(step: int, **metrics: float) -> None:
        told.append((step, metrics))

    logged = {"val_loss": 0.5, "step": 4.0}
    trainer = SimpleNamespace(sanity_checking=False, callback_metrics=logged, should_stop=False)
    reporting = lightning_callback(SimpleNamespace(report=report, should_stop=lambda: True))
    reporting.on_validation_end(trainer, None)
    _validation_callback.cache_clear()  # it is of the stand-in
    assert (told, trainer.should_stop) == ([(1, {"val_loss": 0.5})], True)
