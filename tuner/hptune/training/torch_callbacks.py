"""Callbacks for trainers of PyTorch in an objective: transformers' `Trainer`, and Lightning."""

from __future__ import annotations

import functools
import sys
from importlib import import_module
from typing import Any

from ..core.attempt import Halt
from .context import reportable

_TIMINGS = ("_runtime", "_per_second", "_jit_compilation_time")
"""Endings of what transformers adds to the metrics of an evaluation."""


def transformers_callback(trial: Any) -> Any:
    """Return a callback for a `Trainer` of transformers that reports each evaluation.

    Evaluations count from 1, also over interruptions, so with `eval_strategy="epoch"` they are the
    epochs. The training ends when the trial is to stop; unless the trial is poor, it saves a
    checkpoint before, from which a later attempt continues. After `train`, return the result as
    usual: it is not used if the trial was told to stop before its last epoch.

    Example::

        def objective(hp, trial):
            arguments = TrainingArguments(output_dir=trial.checkpoint_dir, eval_strategy="epoch",
                                          learning_rate=hp.Float("lr", 1e-5, 1e-2, sampling="log"),
                                          num_train_epochs=trial.epochs)
            trainer = Trainer(model, arguments, train_dataset=train, eval_dataset=validation,
                              callbacks=[hptune.transformers_callback(trial)])
            trainer.train()
            return {"eval_loss": trainer.evaluate()["eval_loss"]}

    Args:
        trial: The trial, as `objective` gets it.
    """
    return _trainer_callback()(trial)


def lightning_callback(trial: Any) -> Any:
    """Return a callback for a `Trainer` of Lightning that reports each validation.

    Validations count from 1, also in a training that continues from its checkpoint, so with one at
    the end of each epoch they are the epochs. The training ends when the trial is to stop: within
    an epoch at once, where `fit` does not return, and else after the validation. After `fit`,
    return the result as usual: it is not used if the trial was told to stop before its last epoch.

    Example::

        def objective(hp, trial):
            trainer = lightning.Trainer(default_root_dir=trial.checkpoint_dir,
                                        max_epochs=trial.epochs,
                                        callbacks=[hptune.lightning_callback(trial)])
            trainer.fit(Network(hp), data)
            return {"val_loss": trainer.callback_metrics["val_loss"]}

    Args:
        trial: The trial, as `objective` gets it.
    """
    # Lightning has two names, whose classes do not fit together.
    has_old_name = "pytorch_lightning" in sys.modules and "lightning" not in sys.modules
    return _validation_callback("pytorch_lightning" if has_old_name else "lightning.pytorch")(trial)


@functools.cache
def _trainer_callback() -> Any:
    base: Any = import_module("transformers").TrainerCallback

    class ReportingCallback(base):
        def __init__(self, trial: Any) -> None:
            self._trial = trial
            self._is_over = False

        def on_step_end(self, _arguments: Any, state: Any, control: Any, **_: Any) -> None:
            if not control.should_evaluate and state.epoch % 1:  # else, an evaluation comes next
                self._stop_if_told(control)

        def on_epoch_end(self, _arguments: Any, _state: Any, control: Any, **_: Any) -> None:
            if self._is_over:  # within the epoch, whose evaluation would count as one of its end
                control.should_evaluate = control.should_save = False

        def on_evaluate(
            self, _arguments: Any, state: Any, control: Any, *, metrics: Any, **_: Any
        ) -> None:
            if self._is_over:  # it may still evaluate once more
                return
            # Of the log, which a checkpoint keeps: several data sets are evaluated at one step.
            evaluated = {
                entry["step"]
                for entry in state.log_history
                if any(name.startswith("eval_") for name in entry)
            }
            measured = {
                name: value
                for name, value in reportable(metrics).items()
                if name != "epoch" and not name.endswith(_TIMINGS)
            }
            self._trial.report(len(evaluated), **measured)
            self._stop_if_told(control)

        def _stop_if_told(self, control: Any) -> None:
            if self._trial.should_stop():
                self._is_over = control.should_training_stop = True
                control.should_save |= self._trial.halt is not Halt.PRUNE

    return ReportingCallback


@functools.cache
def _validation_callback(package: str) -> Any:
    base: Any = import_module(package).Callback

    class ReportingCallback(base):
        def __init__(self, trial: Any) -> None:
            self._trial = trial
            self._validations = 0

        def state_dict(self) -> dict[str, int]:
            return {"validations": self._validations}

        def load_state_dict(self, state: dict[str, int]) -> None:
            self._validations = state["validations"]

        def on_train_batch_end(self, trainer: Any, *_: Any) -> None:
            # Lightning itself would validate, and count the epoch as whole in its checkpoint.
            if not trainer.is_last_batch and self._trial.should_stop():
                self._trial.stop_if_told()

        def on_validation_end(self, trainer: Any, _module: Any) -> None:
            if not trainer.sanity_checking:
                self._validations += 1
                self._trial.report(self._validations, **reportable(trainer.callback_metrics))
                trainer.should_stop |= self._trial.should_stop()

    return ReportingCallback
