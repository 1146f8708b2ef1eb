"""Our Keras callback: it reports each epoch and remembers the best one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..core.trial import Direction
from .checkpoint import Checkpoints
from .context import TrialContext, UnknownMetric, as_metrics, unknown_metric_message
from .resumption import Resumption, watch_callback_lists


def make_recorder(trial: TrialContext, direction: Direction) -> Any:
    """A Keras callback for one trial.

    It reports each epoch to the study, and has the best one's step, metrics and weights. Its
    `resumption` stops the training when told to, writes the checkpoints, and takes it up again.
    """
    import keras

    watch_callback_lists()

    class Recorder(keras.callbacks.Callback):  # type: ignore[misc]
        step = 0
        best_step: int | None = None
        best_metrics: dict[str, float]
        best_weights: Any = None
        best_model: Any = None
        seen: set[str]

        def __init__(self) -> None:
            super().__init__()
            self.seen = set()
            self._reports: list[tuple[int, dict[str, float]]] = []
            self.resumption = Resumption(trial, self, Checkpoints(trial.directory))

        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            if not self.resumption.is_told:
                trial.stop_if_told()  # a training loop of the user's own calls us
            metrics = as_metrics(logs or {})
            self.seen.update(metrics)
            # Validation may come every few epochs only (`validation_freq`), or in a later phase.
            validated = any(name.startswith("val_") for name in metrics)
            may_come = trial.metric.startswith("val_") and not validated
            if trial.metric not in self.seen and not may_come:
                raise UnknownMetric(unknown_metric_message(trial.metric, self.seen))
            # A user's fit may train in two phases; its second one starts from epoch 0 again.
            self.step = max(self.step, epoch) + 1
            self._reports.append((self.step, metrics))
            trial.report(self.step, **metrics)
            if trial.metric not in metrics:
                return
            best = self.best_metrics[trial.metric] if self.best_step else None
            if direction.better(metrics[trial.metric], best):
                self.best_step, self.best_metrics = self.step, metrics
                self.best_model, self.best_weights = self.model, self.model.get_weights()

        def memory(self, models: Sequence[Any]) -> dict[str, Any]:
            """What to write down; `models` are those that were trained so far."""
            return {
                "step": self.step,
                "seen": sorted(self.seen),
                "reports": list(self._reports),
                "best": None
                if self.best_step is None
                else (
                    self.best_step,
                    self.best_metrics,
                    self.best_weights,
                    [id(each) for each in models].index(id(self.best_model)),
                ),
            }

        def recall(self, memory: Mapping[str, Any], models: Sequence[Any]) -> None:
            """Take back what `memory` told, in another process."""
            self.step = memory["step"]
            self.seen = set(memory["seen"])
            self._reports = list(memory["reports"])
            if memory["best"] is not None:
                self.best_step, self.best_metrics, self.best_weights, place = memory["best"]
                self.best_model = models[place]
            for step, metrics in self._reports:
                # The process may have died before the study had heard of its last epochs.
                if step > (trial.resumed_from or 0):
                    trial.report(step, **metrics)

    return Recorder()
