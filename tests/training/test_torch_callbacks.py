"""The callbacks for PyTorch's trainers, with stand-ins for these."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from hptune.core.attempt import Halt
from hptune.training.context import AttemptStopped
from hptune.training.torch_callbacks import (
    _trainer_callback,
    _validation_callback,
    lightning_callback,
    transformers_callback,
)


@pytest.fixture(autouse=True)
def _stand_ins(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name, base in (("transformers", "TrainerCallback"), ("lightning.pytorch", "Callback")):
        module = ModuleType(name)
        setattr(module, base, object)
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setitem(sys.modules, "lightning", ModuleType("lightning"))
    yield
    _validation_callback.cache_clear()  # they are of the stand-ins
    _trainer_callback.cache_clear()


def test_the_axis_of_lightnings_logs_is_no_metric() -> None:
    """`self.log("step", …)` gives the other metrics an axis, such as epochs."""
    told: list[Any] = []

    def report(step: int, **metrics: float) -> None:
        told.append((step, metrics))

    logged = {"val_loss": 0.5, "step": 4.0}
    trainer = SimpleNamespace(sanity_checking=False, callback_metrics=logged, should_stop=False)
    reporting = lightning_callback(SimpleNamespace(report=report, should_stop=lambda: True))
    reporting.on_validation_end(trainer, None)
    assert (told, trainer.should_stop) == ([(1, {"val_loss": 0.5})], True)


def test_lightning_does_not_validate_a_part_of_an_epoch() -> None:
    """It would report the part as an epoch, and continue with the next one."""

    def stop() -> None:
        raise AttemptStopped(Halt.PAUSE)

    reporting = lightning_callback(SimpleNamespace(should_stop=lambda: True, stop_if_told=stop))
    reporting.on_train_batch_end(SimpleNamespace(is_last_batch=True))
    with pytest.raises(AttemptStopped):
        reporting.on_train_batch_end(SimpleNamespace(is_last_batch=False))


@pytest.mark.parametrize(
    ("epoch", "is_due", "stops", "evaluates"),
    [(0.5, False, True, False), (0.5, True, False, True), (1.0, False, False, True)],
)
def test_a_trainer_evaluates_no_part_of_an_epoch(
    epoch: float, is_due: bool, stops: bool, evaluates: bool
) -> None:
    """Its checkpoint has the evaluations, of which a later attempt counts on."""
    control = SimpleNamespace(should_evaluate=is_due, should_save=False, should_training_stop=False)
    trial = SimpleNamespace(should_stop=lambda: True, halt=Halt.PAUSE)
    reporting = transformers_callback(trial)
    reporting.on_step_end(None, SimpleNamespace(epoch=epoch), control)
    assert (control.should_training_stop, control.should_save) == (stops, stops)
    control.should_evaluate = control.should_save = True  # as Trainer's own callback has it
    reporting.on_epoch_end(None, None, control)
    assert (control.should_evaluate, control.should_save) == (evaluates, evaluates)
