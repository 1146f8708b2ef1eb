"""The record of a Keras training: its reports, its best epoch, and what hptune measures itself."""

from __future__ import annotations

import functools
import logging
import math
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...core.attempt import USED_UP
from ...core.goals import MEASURED, unknown_metric
from ..context import TrialContext, UnknownMetric, reportable
from ..resume.checkpoint import Checkpoints
from ..resume.model_state import set_weights, takes_weights, weights_of
from ..resume.resumption import Resumption

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class BestEpoch:
    """The best epoch of a training.

    Attributes:
        step: The epoch, counted from 1 over all calls of `fit`.
        metrics: Its metrics.
        weights: The model's weights at its end, from `weights_of`; with `SwapEMAWeights` those that
            were validated.
        model: The model that was trained; a user's `fit` may train one around the built one.
    """

    step: int
    metrics: dict[str, float]
    weights: list[Any]
    model: Any

    def restore_weights(self) -> None:
        """Give the model the weights of this epoch, unless its layers have got others since."""
        if takes_weights(self.model, self.weights):
            set_weights(self.model, self.weights)
        else:
            log.warning("The model is kept as it is, and not as after its best epoch.")


class Recorder:
    """Reports each epoch to the study, and keeps the best one.

    The best epoch is judged by the goals and constraints that the training itself measures. If it
    measures no goal, the last epoch that violates the constraints least is the best. Where the
    model gets more weights, as by `enable_lora`, the epochs since then count.

    Attributes:
        step: Epochs so far, over all calls of `fit`.
        best: The best epoch; None if no epoch has measured the goals.
        model: The model that was trained last; None before the first epoch.
        seen: The names of all metrics that the training has measured.
        times: How long the epochs took.
        remark: What is wrong with the training, for the user; empty for nothing.
        resumption: Stops the training on request, writes its checkpoints, and continues it
            from one.

    Args:
        trial: The trial.
        returns_more: Whether the training may return metrics that no epoch reports.
    """

    def __init__(self, trial: TrialContext, *, returns_more: bool = False) -> None:
        self.step = 0
        self.best: BestEpoch | None = None
        self.model: Any = None
        self.seen: set[str] = set()
        self.times = EpochTimes()
        checkpoints = Checkpoints(trial.directory, is_read_only=trial.rank > 0)
        self.resumption = Resumption(trial, self, checkpoints, returns_more=returns_more)
        self._trial = trial
        self._goals = trial.goals.of_epochs
        wanted = () if returns_more else trial.goals.metrics
        self._wanted = [name for name in wanted if name not in MEASURED]
        self._reports: list[tuple[int, dict[str, float]]] = []
        self._validated: list[Any] | None = None
        self._first_batches = 0
        self.remark = ""

    def callback(self) -> Any:
        """Return a Keras callback that tells this recorder of each epoch."""
        return _callback_class()(self)

    def fit_begins(self) -> None:
        """Note that a `fit` begins, which may train on other data than the one before."""
        self._first_batches = 0

    def validation_ends(self, model: Any, callbacks: Sequence[Any]) -> None:
        """Keep the weights that were validated, if the model has them for the validation only."""
        import keras

        if any(isinstance(callback, keras.callbacks.SwapEMAWeights) for callback in callbacks):
            self._validated = weights_of(model)

    def epoch_ends(self, model: Any, epoch: int, logs: Mapping[str, Any]) -> None:
        """Report an epoch, and keep it if it is the best so far.

        Raises:
            UnknownMetric: The training does not measure a metric that the study needs.
            NonFiniteMetric: The metric to optimise, or `loss`, is NaN or infinite.
            AttemptStopped: The attempt is to stop, and the training loop is not Keras's own.
        """
        self.times.end()
        self.model = model
        metrics = reportable(logs)
        self._check_measured(metrics)
        metrics.update(measure(self._trial.goals.metrics, model, self.times))
        # A user's fit may train in two phases; its second one starts from epoch 0 again.
        self.step = max(self.step, epoch) + 1
        self._reports.append((self.step, metrics))
        self._trial.report(self.step, **metrics)
        validated, self._validated = self._validated, None
        if self._is_best(metrics):
            weights = weights_of(model) if validated is None else validated
            self.best = BestEpoch(self.step, metrics, weights, model)
        self.resumption.epoch_is_reported()

    def count_batches(self, epoch: int, batches: int, steps: int | None) -> None:
        """Note an epoch of a `fit` that has trained far fewer batches than its first one, or asked.

        Args:
            epoch: The epoch, from 0.
            batches: How many batches it has trained.
            steps: How many it was to train; None if unknown.
        """
        self._first_batches = self._first_batches or steps or batches
        if 2 * batches < self._first_batches and not self.remark:
            self.remark = (
                f"epoch {epoch + 1} has trained {batches} batches instead of {self._first_batches}"
                f": {USED_UP}. Give arrays, a tf.data.Dataset or a keras.utils.PyDataset, or "
                "steps_per_epoch and a generator that never ends"
            )
            log.warning("%s.", self.remark)

    def _check_measured(self, metrics: Mapping[str, float]) -> None:
        self.seen.update(metrics)
        # Validation may come every few epochs only (`validation_freq`), or in a later phase.
        is_validated = any(name.startswith("val_") for name in metrics)
        for name in self._wanted:
            may_come = name.startswith("val_") and not is_validated
            if name not in self.seen and not may_come:
                raise UnknownMetric(unknown_metric(name, self.seen))

    def _is_best(self, metrics: Mapping[str, float]) -> bool:
        goals = self._goals
        if not set(goals.metrics) <= set(metrics):
            return False
        score = goals.score(metrics)
        if self.best is None or not takes_weights(self.best.model, self.best.weights):
            return True
        before = goals.score(self.best.metrics)
        if not goals.objectives and score.violation <= before.violation:
            return True
        return goals.is_nondominated(score, [before])

    def state(self, models: Sequence[Any]) -> dict[str, Any]:
        """Return what a checkpoint holds of this recorder.

        Args:
            models: The models that were trained so far.
        """
        best, places = self.best, [id(model) for model in models]
        return {
            "step": self.step,
            "seen": sorted(self.seen),
            "reports": list(self._reports),
            "epoch_seconds": list(self.times.seconds),
            "best": best and (best.step, best.metrics, best.weights, places.index(id(best.model))),
        }

    def restore(self, state: Mapping[str, Any], models: Sequence[Any]) -> None:
        """Continue from a `state`, in another process."""
        self.step = state["step"]
        self.seen = set(state["seen"])
        self._reports = list(state["reports"])
        self.times.seconds = list(state["epoch_seconds"])
        if state["best"] is not None:
            step, metrics, weights, index = state["best"]
            self.best = BestEpoch(step, metrics, weights, models[index])
        for step, metrics in self._reports:
            # The process may have died before the study received its last reports.
            if step > (self._trial.resumed_from or 0):
                self._trial.report(step, **metrics)


@functools.cache
def _callback_class() -> Any:
    # Made when it is first needed: its base class is Keras's, which takes seconds to import.
    import keras

    class RecorderCallback(keras.callbacks.Callback):
        def __init__(self, recorder: Recorder) -> None:
            super().__init__()
            self._recorder = recorder
            self._batches = 0
            self.resumption = recorder.resumption  # where the extended CallbackList looks for it

        def __deepcopy__(self, _copies: Any) -> Any:
            return self  # as a user's `fit` may copy its callbacks for each fold

        def on_train_begin(self, _logs: Any = None) -> None:
            self._recorder.times.begin()
            self._recorder.fit_begins()

        def on_epoch_begin(self, _epoch: int, _logs: Any = None) -> None:
            self._recorder.times.begin()
            self._batches = 0

        def on_train_batch_end(self, *_: Any, **__: Any) -> None:
            self._batches += getattr(self.model, "steps_per_execution", 1)

        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            if self._batches and not self.model.stop_training:
                steps = (self.params or {}).get("steps")
                self._recorder.count_batches(epoch, self._batches, steps)
            self._recorder.epoch_ends(self.model, epoch, logs or {})

    return RecorderCallback


class EpochTimes:
    """The times of epochs.

    The first epoch of a process compiles the model, so it counts only while there is no other.

    Attributes:
        seconds: The times of all epochs that count, including those of earlier attempts.
    """

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self._first_seconds: float | None = None
        self._since = time.perf_counter()

    def begin(self) -> None:
        """Begin an epoch."""
        self._since = time.perf_counter()

    def end(self) -> None:
        """End an epoch; the next one may begin without a call of `begin`."""
        now = time.perf_counter()
        if self._first_seconds is None:
            self._first_seconds = now - self._since
        else:
            self.seconds.append(now - self._since)
        self._since = now

    @property
    def mean_seconds(self) -> float:
        """The mean; without any epoch, the time since `begin`."""
        if self.seconds:
            return sum(self.seconds) / len(self.seconds)
        if self._first_seconds is not None:
            return self._first_seconds
        return time.perf_counter() - self._since


def measure(names: Iterable[str], model: Any, times: EpochTimes) -> dict[str, float]:
    """Return those of the named metrics that hptune measures itself.

    Args:
        names: Names of any metrics.
        model: A Keras model whose weights are built.
        times: The times of its epochs.
    """
    known = {
        "params": lambda: float(sum(math.prod(w.shape) for w in model.trainable_weights)),
        "seconds_per_epoch": lambda: times.mean_seconds,
        "model_bytes": lambda: float(sum(_bytes_of(w) for w in model.weights)),
    }
    return {name: known[name]() for name in names if name in known}


def _bytes_of(weight: Any) -> float:
    # NumPy does not know bfloat16 and float8_e4m3fn; bool has no number in its name.
    bits = re.search(r"\d+", str(weight.dtype))
    return float(math.prod(weight.shape)) * (int(bits[0]) / 8 if bits else 1)
