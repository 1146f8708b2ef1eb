"""Our Keras callback: it reports each epoch and remembers the best one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...core.goals import MEASURED, unknown_metric
from ..context import TrialContext, UnknownMetric, as_metrics
from ..resume.checkpoint import Checkpoints
from ..resume.resumption import Resumption, watch_callback_lists
from .measured import EpochTimes, measure


def make_recorder(trial: TrialContext) -> Any:
    """A Keras callback for one trial.

    It reports each epoch to the study, and has the best one's step, metrics and weights. Its
    `resumption` stops the training when told to, writes the checkpoints, and takes it up again.

    The best epoch is that of the first goal that the training itself measures, among those that
    keep the constraints that it measures. Where it measures no goal, it is the last one.
    """
    import keras

    watch_callback_lists()
    goals = trial.goals.of_epochs
    wanted = [name for name in trial.goals.metrics if name not in MEASURED]

    class Recorder(keras.callbacks.Callback):
        step = 0
        best_step: int | None = None
        best_metrics: dict[str, float]
        best_weights: Any = None
        best_model: Any = None
        seen: set[str]

        def __init__(self) -> None:
            super().__init__()
            self.seen = set()
            self.times = EpochTimes()
            self._reports: list[tuple[int, dict[str, float]]] = []
            self.resumption = Resumption(trial, self, Checkpoints(trial.directory))

        def on_train_begin(self, _logs: Any = None) -> None:
            self.times.begin()

        def on_epoch_begin(self, _epoch: int, _logs: Any = None) -> None:
            self.times.begin()

        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            if not self.resumption.is_told:
                trial.stop_if_told()  # a training loop of the user's own calls us
            self.times.end()
            metrics = as_metrics(logs or {})
            self.seen.update(metrics)
            # Validation may come every few epochs only (`validation_freq`), or in a later phase.
            validated = any(name.startswith("val_") for name in metrics)
            for name in wanted:
                may_come = name.startswith("val_") and not validated
                if name not in self.seen and not may_come:
                    raise UnknownMetric(unknown_metric(name, self.seen))
            metrics.update(measure(trial.goals.metrics, self.model, self.times))
            # A user's fit may train in two phases; its second one starts from epoch 0 again.
            self.step = max(self.step, epoch) + 1
            self._reports.append((self.step, metrics))
            trial.report(self.step, **metrics)
            if not set(goals.metrics) <= set(metrics):
                return
            score = goals.score(metrics)
            before = [goals.score(self.best_metrics)] if self.best_step else []
            as_good = not goals.objectives and all(
                score.violation <= each.violation for each in before
            )
            if as_good or goals.is_nondominated(score, before):
                self.best_step, self.best_metrics = self.step, metrics
                self.best_model, self.best_weights = self.model, self.model.get_weights()

        def memory(self, models: Sequence[Any]) -> dict[str, Any]:
            """What to write down; `models` are those that were trained so far."""
            return {
                "step": self.step,
                "seen": sorted(self.seen),
                "reports": list(self._reports),
                "epoch_seconds": list(self.times.seconds),
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
            self.times.seconds = list(memory["epoch_seconds"])
            if memory["best"] is not None:
                self.best_step, self.best_metrics, self.best_weights, place = memory["best"]
                self.best_model = models[place]
            for step, metrics in self._reports:
                # The process may have died before the study had heard of its last epochs.
                if step > (trial.resumed_from or 0):
                    trial.report(step, **metrics)

    return Recorder()
