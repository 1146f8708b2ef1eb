"""Puts a Keras training down at the end of an epoch, and picks it up in another process.

A training is taken up inside `model.fit`: the user's code runs as it always does up to there, and
`fit` then begins at a later epoch, with all that it knew. Keras offers the place for that itself:
what `model._initial_epoch` says when `on_train_begin` is over is where each of its backends
begins, which is how its own `BackupAndRestore` works too. So the user's own `fit` need not know of
any of this, as long as it passes the callbacks on.

Our callback must act when all others have done so, wherever it stands among them, and it must see
the others; so `CallbackList`, which `fit` makes, is taught to tell (`watch_callback_lists`).
"""

from __future__ import annotations

import contextlib
import functools
import logging
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ...core.trial import Halt
from ..context import TrialContext
from . import callback_state, model_state
from .checkpoint import Checkpoints, NoRoom
from .randomness import seed_epoch

log = logging.getLogger(__name__)

SHARE_OF_TIME = 0.025
"""Checkpoints take about this much of the training's time, unless the user says how often.

What is measured of them is not quite all of their cost; in all it stays under 3 %.
"""


@dataclass(frozen=True, slots=True)
class TrainingState:
    """What a training knows at the end of an epoch.

    Attributes:
        phase: The how-manieth call of `fit` it is in, from 0.
        epoch: The epoch that comes next, as `fit` counts them.
        model: The variables of the model and its optimizers.
        callbacks: The callbacks' class names and states, in their order.
        histories: Of each earlier phase, the state of Keras's `History`.
        memory: What our recorder remembers.
    """

    phase: int
    epoch: int
    model: model_state.ModelState
    callbacks: list[tuple[str, Any]]
    histories: list[dict[str, Any]]
    memory: dict[str, Any]


class Resumption:
    """Writes a training's checkpoints, and takes it up from the newest.

    Args:
        trial: The trial.
        recorder: Our callback; has `step`, `memory()` and `recall(memory, models)`.
        checkpoints: The trial's.
    """

    def __init__(self, trial: TrialContext, recorder: Any, checkpoints: Checkpoints) -> None:
        self._trial = trial
        self._recorder = recorder
        self._checkpoints = checkpoints
        self._begin_with: TrainingState | None = None
        self._budget = _Budget(trial.checkpoint_every)
        self._possible = trial.checkpoint_every != 0
        self._phase = -1
        self._models: list[Any] = []
        self._histories: list[dict[str, Any]] = []
        self._callbacks: list[Any] = []
        self._at_begin: list[dict[str, Any]] = []
        self._epochs = 0
        self._unwritten: TrainingState | None = None
        self.is_complete = False
        """Whether the latest `fit` has trained all that it was to."""
        self.ended_early = False
        """Whether it did so before its last epoch."""
        if trial.is_first_attempt:
            checkpoints.remove()  # another study's, which was in the same place
        elif (found := checkpoints.newest()) is not None:
            self._begin_with = found[1]

    @property
    def is_resumed(self) -> bool:
        """Whether the training is to begin from a checkpoint."""
        return self._begin_with is not None

    @property
    def is_told(self) -> bool:
        """Whether Keras tells how the training goes."""
        return self._phase >= 0

    # --- told by the list of callbacks ------------------------------------------------------

    def fit_begins(self, model: Any, callbacks: list[Any], params: Mapping[str, Any]) -> None:
        """All callbacks know that the training begins."""
        if self._trial.should_stop():
            self.leave()
        if self._phase >= 0:
            self._histories.append(_history(self._callbacks))
        self._phase += 1
        self._epochs = params.get("epochs") or 0
        self._callbacks = callback_state.taking_part(callbacks)
        self._at_begin = [callback_state.plain_attributes(each) for each in self._callbacks]
        if self._phase == 0:
            self._budget.begin()
        if not {"epochs", "steps", "verbose"} <= set(params):
            self._give_up("an own training loop calls the callbacks")
        elif self._models and not _holds(model, self._models[-1]):
            # The earlier model's weights would be lost, and what became of them with them.
            self._give_up("it trains several models")
        self._models.append(model)
        self._find_the_place(model)

    def before_fit(self, callbacks: Iterable[Any]) -> None:
        """No callback knows yet that the training begins."""
        import keras

        if self._begin_with is not None:
            for each in callbacks:
                if isinstance(each, keras.callbacks.CSVLogger):
                    each.append = True  # it would empty the file that it is to continue

    def epoch_begins(self, epoch: int) -> None:
        """No callback knows yet that an epoch begins."""
        self.is_complete = False
        seed_epoch(self._trial.seed, self._phase, epoch)

    def batch_ends(self) -> None:
        """A batch is trained."""
        if self._trial.should_stop() and not self._may_end_epoch:
            self.leave()

    def test_batch_ends(self) -> None:
        """A batch is validated. An epoch that is trained is not thrown away, except for good."""
        if self._trial.halt is Halt.PRUNE and not self._may_end_epoch:
            self.leave()

    def epoch_ends(self, epoch: int) -> None:
        """All callbacks know that an epoch has ended."""
        model = self._models[-1]
        self.is_complete = epoch + 1 >= self._epochs or bool(model.stop_training)
        if self.is_complete:
            # A training that ends by itself, such as by EarlyStopping, has no use for more epochs.
            self._unwritten = None
            self.ended_early = epoch + 1 < self._epochs
            if self._possible and self._trial.keeps_last and epoch + 1 >= self._epochs:
                self._unwritten = self._state(model, epoch + 1)
            return
        is_halted, is_due = self._trial.should_stop(), self._budget.is_due(self._recorder.step)
        if self._possible and (is_halted or is_due or self._budget.allows_copy()):
            with self._budget.copying():
                self._unwritten = self._state(model, epoch + 1)
        if is_halted:
            self.leave()
        elif is_due:
            self._write()

    def keep_last(self) -> None:
        """The training is over; keep its last epoch, for it to go on if there are to be more.

        Raises:
            NoRoom: The disk is full.
        """
        if self._trial.keeps_last and self.is_complete:
            self._write()

    def forget_if_ended_early(self) -> None:
        """The result is there, and a training that ended by itself will not go on from it."""
        if self.ended_early:
            self._checkpoints.remove()

    def leave(self) -> None:
        """End the attempt as it was told to; what may be taken up again is on disk then.

        Raises:
            AttemptStopped: Always.
        """
        if self._trial.halt is not Halt.PRUNE:
            try:
                self._write()
            except NoRoom as error:
                log.warning("The trial will go on from an earlier epoch: %s.", error)
        self._trial.stop_if_told()

    @property
    def _may_end_epoch(self) -> bool:
        return self._trial.stop_at.may_end_epoch(self._trial.halt)

    # --- within -----------------------------------------------------------------------------

    def _give_up(self, reason: str) -> None:
        if self._possible:
            log.warning("If it is interrupted, the trial will begin anew: %s.", reason)
        self._possible = False
        self._unwritten = self._begin_with = None
        self._checkpoints.remove()

    def _find_the_place(self, model: Any) -> None:
        state = self._begin_with
        model._initial_epoch = None  # Keras's own door for this, see above
        if state is None:
            return
        if self._phase < state.phase:
            model._initial_epoch = self._epochs  # this phase is over
            for each in self._callbacks:
                if type(each).__name__ == "History":
                    callback_state.give_back(each, state.histories[self._phase])
            return
        self._begin_with = None
        try:
            model_state.restore(model, state.model)
        except model_state.UnfitState as error:
            log.warning("The trial begins anew, as its checkpoint does not fit: %s.", error)
            self._checkpoints.remove()
            return
        self._give_callbacks_back(state)
        self._recorder.recall(state.memory, self._models)
        model._initial_epoch = state.epoch
        print(f"The trial goes on after {self._recorder.step} epochs.")  # noqa: T201 - its log

    def _give_callbacks_back(self, state: TrainingState) -> None:
        waiting = list(self._callbacks)
        for name, known in state.callbacks:
            places = [i for i, each in enumerate(waiting) if type(each).__name__ == name]
            if places:
                callback_state.give_back(waiting.pop(places[0]), known)

    def _state(self, model: Any, epoch: int) -> TrainingState:
        callbacks = [
            (type(each).__name__, callback_state.state_of(each, begin))
            for each, begin in zip(self._callbacks, self._at_begin, strict=True)
        ]
        return TrainingState(
            phase=self._phase,
            epoch=epoch,
            model=model_state.capture(model),
            callbacks=callbacks,
            histories=list(self._histories),
            memory=self._recorder.memory(self._models),
        )

    def _write(self) -> None:
        if self._unwritten is not None:
            with self._budget.writing():
                self._checkpoints.write(self._unwritten.memory["step"], self._unwritten)
            self._unwritten = None


def _holds(model: Any, earlier: Any) -> bool:
    return {id(each) for each in earlier.variables} <= {id(each) for each in model.variables}


def _history(callbacks: Iterable[Any]) -> dict[str, Any]:
    found = next((each for each in callbacks if type(each).__name__ == "History"), None)
    return {} if found is None else callback_state.plain_attributes(found)


class _Budget:
    """Says when a checkpoint may be made, by what it costs and what the training takes.

    Args:
        every: After so many epochs each; None for as often as the share of the time allows.
    """

    def __init__(self, every: int | None) -> None:
        self._every = every
        self._began = 0.0
        self._spent_seconds = 0.0
        self._copy_seconds = 0.0
        self._write_seconds = 0.0

    def begin(self) -> None:
        """The training begins."""
        self._began = time.monotonic()

    def is_due(self, step: int) -> bool:
        """Whether the checkpoint of this epoch is to be written."""
        if self._every is not None:
            return self._every > 0 and step % self._every == 0
        return self._allows(self._copy_seconds + self._write_seconds)

    def allows_copy(self) -> bool:
        """Whether the epoch may at least be kept in mind, to be written if the trial is to stop."""
        return self._allows(self._copy_seconds)

    def _allows(self, seconds: float) -> bool:
        return self._spent_seconds + seconds <= SHARE_OF_TIME * (time.monotonic() - self._began)

    @contextlib.contextmanager
    def copying(self) -> Iterator[None]:
        """Counts what is done under it."""
        began = time.monotonic()
        yield
        self._copy_seconds = time.monotonic() - began
        self._spent_seconds += self._copy_seconds

    @contextlib.contextmanager
    def writing(self) -> Iterator[None]:
        """Counts what is done under it."""
        began = time.monotonic()
        yield
        self._write_seconds = time.monotonic() - began
        self._spent_seconds += self._write_seconds


def watch_callback_lists() -> None:
    """Let Keras's lists of callbacks tell the resumption of a callback that has one."""
    import keras

    kind = keras.callbacks.CallbackList
    if not hasattr(kind, "_hptune"):
        kind._hptune = None  # of a list that has no callback of ours
        _tell(kind)


def _tell(kind: Any) -> None:
    begin, epoch_begin, epoch_end = kind.on_train_begin, kind.on_epoch_begin, kind.on_epoch_end
    batch_end, test_batch_end = kind.on_train_batch_end, kind.on_test_batch_end

    @functools.wraps(begin)
    def on_train_begin(self: Any, logs: Any = None) -> None:
        found = (getattr(each, "resumption", None) for each in self.callbacks)
        self._hptune = next((each for each in found if isinstance(each, Resumption)), None)
        if self._hptune is not None:
            self._hptune.before_fit(self.callbacks)
        begin(self, logs)
        if self._hptune is not None:
            self._hptune.fit_begins(self.model, self.callbacks, self.params)

    @functools.wraps(epoch_begin)
    def on_epoch_begin(self: Any, epoch: int, logs: Any = None) -> None:
        if self._hptune is not None:
            self._hptune.epoch_begins(epoch)
        epoch_begin(self, epoch, logs)

    @functools.wraps(epoch_end)
    def on_epoch_end(self: Any, epoch: int, logs: Any = None) -> None:
        epoch_end(self, epoch, logs)
        if self._hptune is not None:
            self._hptune.epoch_ends(epoch)

    @functools.wraps(batch_end)
    def on_train_batch_end(self: Any, batch: int, logs: Any = None) -> None:
        batch_end(self, batch, logs)
        if self._hptune is not None:
            self._hptune.batch_ends()

    @functools.wraps(test_batch_end)
    def on_test_batch_end(self: Any, batch: int, logs: Any = None) -> None:
        test_batch_end(self, batch, logs)
        if self._hptune is not None:
            self._hptune.test_batch_ends()

    for each in (on_train_begin, on_epoch_begin, on_epoch_end, on_train_batch_end,
                 on_test_batch_end):  # fmt: skip
        setattr(kind, each.__name__, each)
