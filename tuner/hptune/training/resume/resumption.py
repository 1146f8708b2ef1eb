"""Checkpoints of a Keras training at the end of epochs, and its continuation in another process.

A training continues inside `model.fit`: the user's code runs as usual up to there, and `fit` then
begins at a later epoch, with all state restored. Keras itself provides for this: all its backends
begin at `model._initial_epoch` if `on_train_begin` has set it, as its `BackupAndRestore` does. So
the user's own `fit` need not know about checkpoints, as long as it passes the callbacks on.

`callback_lists` calls a `Resumption` before and after all callbacks of the training. `progress`
decides what follows; a `Resumption` carries it out.
"""

from __future__ import annotations

import contextlib
import json
import logging
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from ...core.attempt import Halt
from ...core.spelling import plural
from ..context import AttemptStopped, TrialContext
from . import callback_state, model_state
from .checkpoint import CheckpointMissing, Checkpoints, NoRoom
from .progress import Do, Event, Progress, State
from .randomness import seed_epoch

log = logging.getLogger(__name__)

_BEGINS_AGAIN = "No checkpoint is kept, so an interrupted trial starts again: %s."
SHARE_OF_TIME = 0.025
"""Share of the training's time that checkpoints may take, unless the user sets their interval.

The measured costs are not quite complete; the real share stays under 3 %.
"""


class RecordsEpochs(Protocol):
    """The recorder of a training, as a `Resumption` needs it.

    Attributes:
        step: Epochs so far, over all calls of `fit`.
    """

    step: int

    def validation_ends(self, model: Any, callbacks: Sequence[Any]) -> None:
        """Note the end of a validation, before any callback knows of it."""

    def state(self, models: Sequence[Any]) -> dict[str, Any]:
        """Return what a checkpoint holds of the recorder."""

    def restore(self, state: Mapping[str, Any], models: Sequence[Any]) -> None:
        """Continue from a `state`."""


@dataclass(frozen=True, slots=True)
class TrainingState:
    """The state of a training at the end of an epoch.

    Attributes:
        phase: Which call of `fit` it is in, from 0.
        epoch: The next epoch, as `fit` counts them; beyond any if it has ended by itself.
        model: The variables of the model and its optimizers.
        callbacks: The callbacks' class names and states, in their order.
        results: For each phase so far, what its callbacks had at its end: class names and states.
        recorder: The state of the recorder.
    """

    phase: int
    epoch: int
    model: model_state.ModelState
    callbacks: list[tuple[str, Any]]
    results: list[list[tuple[str, dict[str, Any]]]]
    recorder: dict[str, Any]


class Resumption:
    """Writes a training's checkpoints, and continues it from the newest.

    Attributes:
        ended_early: Whether the latest complete `fit` ended by itself before its last epoch.

    Args:
        trial: The trial.
        recorder: The record of its epochs.
        checkpoints: The trial's.
        returns_more: Whether the training may return metrics that no epoch reports.
    """

    def __init__(
        self,
        trial: TrialContext,
        recorder: RecordsEpochs,
        checkpoints: Checkpoints,
        *,
        returns_more: bool = False,
    ) -> None:
        self.ended_early = False
        self._trial = trial
        self._recorder = recorder
        self._checkpoints = checkpoints
        self._budget = _Budget(trial.checkpoint_every)
        self._writes = trial.checkpoint_every != 0 and trial.rank == 0
        self._returns_more = returns_more
        self._models: list[Any] = []
        self._results: list[list[tuple[str, dict[str, Any]]]] = []
        self._callbacks: list[Any] = []
        self._attributes_at_begin: list[dict[str, Any]] = []
        self._epochs = 0
        self._done_epochs = 0
        self._unwritten: TrainingState | None = None
        self._resume_from: TrainingState | None = None
        if trial.is_first_attempt:
            checkpoints.remove()  # of another study in the same directory
        else:
            self._resume_from = self._newest()
        self._progress = Progress(is_found=self._resume_from is not None)

    def _newest(self) -> TrainingState | None:
        """Return the newest checkpoint, the same one on all ranks; None unless all have it."""
        ranks = self._trial.ranks
        found = self._checkpoints.newest() if self._trial.rank == 0 else None
        if found is None and self._writes:
            log.warning("The trial begins again, as no checkpoint of an earlier attempt is kept.")
        state = None if found is None else found[1]
        if ranks is None:
            return state
        step = json.loads(ranks.broadcast(json.dumps(found and found[0]).encode()))
        if step is None:
            return None
        reason = ""
        if ranks.rank:
            try:
                state = self._checkpoints.wait_for(step)
            except CheckpointMissing as error:
                reason = f"rank {ranks.rank} has no checkpoint of epoch {step}: {error}"
        if reason := next(filter(None, map(bytes.decode, ranks.gather(reason.encode()))), ""):
            log.warning("The trial begins again, as %s.", reason)
            return None
        return state

    @property
    def is_resumed(self) -> bool:
        """Whether the training is to continue from a checkpoint."""
        return self._resume_from is not None

    @property
    def has_begun(self) -> bool:
        """Whether a `fit` of Keras has begun."""
        return self._progress.fit >= 0

    # --- called by the extended CallbackList ------------------------------------------------

    def before_fit(self, callbacks: list[Any]) -> None:
        """Prepare for a `fit`, before any callback knows that it begins."""
        import keras

        # The recorder comes last: other callbacks may add metrics to an epoch, or change weights.
        callbacks.sort(key=lambda each: getattr(each, "resumption", None) is self)
        # It remains where only it can continue the trial; with several ranks, rank 0 alone has it.
        if self._trial.checkpoint_every != 0 or self._trial.ranks is not None:
            backups = [x for x in callbacks if isinstance(x, keras.callbacks.BackupAndRestore)]
            for each in backups:
                callbacks.remove(each)
                log.warning(
                    "BackupAndRestore is left out: hptune writes each trial's checkpoints, and "
                    "%s may have the weights of another trial.",
                    each.backup_dir,
                )
        if self._resume_from is not None:
            for each in callbacks:
                if isinstance(each, keras.callbacks.CSVLogger):
                    each.append = True  # it would empty the file that it is to continue

    def fit_begins(self, model: Any, callbacks: list[Any], params: Mapping[str, Any]) -> None:
        """Restore a checkpoint of this `fit`, after all callbacks know that it begins."""
        if self._trial.should_stop():
            self._stop()
        if not self.has_begun:
            self._budget.begin()
        self._results.append([])
        self._epochs = params.get("epochs") or 0
        self._callbacks = callback_state.with_state(callbacks)
        self._attributes_at_begin = [callback_state.plain_attributes(x) for x in self._callbacks]
        event = Event.FIT_BEGINS
        if not {"epochs", "steps", "verbose"} <= set(params):
            event = Event.LOOP_BEGINS
        elif self._models and not _contains(model, self._models[-1]):
            event = Event.OTHER_FIT_BEGINS
        elif self._resume_from is not None:
            is_past = self._progress.fit + 1 < self._resume_from.phase
            event = Event.PAST_FIT_BEGINS if is_past else Event.KEPT_FIT_BEGINS
        self._models.append(model)
        self._handle(event)

    def epoch_begins(self, epoch: int) -> None:
        """Seed an epoch, before any callback knows that it begins."""
        self._handle(Event.EPOCH_BEGINS, epoch=epoch)
        seed_epoch(self._trial.seed, max(self._progress.fit, 0), epoch)

    def batch_ends(self) -> None:
        """Stop after a training batch if that is requested, and not only after an epoch."""
        if self._trial.should_stop() and not self._may_end_epoch:
            self._stop()

    def test_batch_ends(self) -> None:
        """Stop after a validation batch if the trial is pruned.

        If it is to continue later, it first ends the epoch, which is already trained.
        """
        if self._trial.halt is Halt.PRUNE and not self._may_end_epoch:
            self._stop()

    def test_ends(self, model: Any, callbacks: list[Any]) -> None:
        """Tell the recorder of the end of a validation."""
        self._recorder.validation_ends(model, callbacks)

    def epoch_ends(self, epoch: int) -> None:
        """Write a due checkpoint, and stop on request, after all callbacks have acted."""
        self._done_epochs = epoch + 1
        # A training that ends by itself, by EarlyStopping for example, needs no more epochs.
        if self._progress.state is not State.OWN_LOOP and (
            self._done_epochs >= self._epochs or self._models[-1].stop_training
        ):
            self.ended_early = self._done_epochs < self._epochs
            self._handle(Event.LAST_EPOCH_ENDS, epoch=epoch)
            return
        is_asked = self._trial.should_stop()
        self._handle(Event.EPOCH_ENDS, epoch=epoch)
        if is_asked:
            self._stop()

    def fit_ends(self, model: Any) -> None:
        """Note what the callbacks have found, as a later phase may depend on it."""
        model._initial_epoch = None  # another `fit` of it may not have our callback
        self._handle(Event.FIT_ENDS)

    def is_evaluated(self) -> None:
        """Note that a model is evaluated or predicts: outside of a `fit`, the result may use it.

        The result of a `fit` that returns a History is that of an epoch.
        """
        if self._returns_more:
            self._handle(Event.EVALUATED)

    # --- called by the recorder and by the trial --------------------------------------------

    def epoch_is_reported(self) -> None:
        """Note a report of an epoch, which a training loop of the user's own may make itself."""
        self._handle(Event.REPORTED)

    def training_returns(self) -> None:
        """Note that the user's code has returned, with a result that counts.

        Raises:
            AttemptStopped: It does not count: the code was told to stop, or it has skipped epochs
                and not come to those after them.
        """
        self._handle(Event.RETURNED)

    def keep_last(self) -> None:
        """Write the last epoch's checkpoint, from which the trial can be given more epochs.

        Raises:
            NoRoom: The disk is full.
        """
        if self._trial.keeps_last and self._progress.state is State.DONE:
            self._write()

    # --- what follows -----------------------------------------------------------------------

    def _handle(self, event: Event, *, epoch: int | None = None) -> None:
        step = self._progress.on(event, epoch=epoch)
        for instruction in step.instructions:
            match instruction:
                case Do.SKIP:
                    self._skip(self._models[-1])
                case Do.RESTORE:
                    self._restore(self._models[-1])
                case Do.KEEP:
                    self._keep()
                case Do.KEEP_LAST:
                    self._keep_last_of_fit()
                case Do.KEEP_RESULTS:
                    self._results[-1] = self._named(callback_state.result_of)
                case Do.SAY if self._writes or step.state is State.ABANDONED:
                    log.warning(_BEGINS_AGAIN, step.reason)
                case Do.REMOVE:
                    self._unwritten = self._resume_from = None
                    del self._models[:-1]  # each may hold the memory of a GPU
                    self._checkpoints.remove()
                case Do.WRITE:
                    try:
                        self._write()
                    except NoRoom as error:
                        log.warning("The trial will continue from an earlier epoch: %s.", error)
                case Do.STOP:
                    self._trial.stop_if_told()
                case Do.RELEASE:
                    raise AttemptStopped(Halt.RELEASE)

    def _stop(self) -> None:
        """End the attempt, with a checkpoint on disk if it may continue later."""
        is_pruned = self._trial.halt is Halt.PRUNE
        self._handle(Event.PRUNE_ASKED if is_pruned else Event.STOP_ASKED)

    @property
    def _may_end_epoch(self) -> bool:
        return self._trial.stop_at.may_end_epoch(self._trial.halt)

    def _keep(self) -> None:
        halt, is_due = self._trial.halt, self._budget.is_due(self._recorder.step)
        if self._writes and (halt is not None or is_due or self._budget.allows_copy()):
            self._copy(self._done_epochs)
        if is_due and halt is None:
            self._write()

    def _keep_last_of_fit(self) -> None:
        self._unwritten = None
        is_kept = self._trial.keeps_last
        # What has called `fit` again may do so once more, as a loop of one epoch each does.
        may_go_on = self._progress.fit > 0
        is_due = may_go_on and self._budget.is_due(self._recorder.step)
        is_copied = may_go_on and (self._trial.halt is not None or self._budget.allows_copy())
        if self._writes and (is_kept or is_due or is_copied):
            # One that has ended by itself would do so again, however many epochs it is given.
            self._copy(sys.maxsize if self.ended_early else self._epochs)
        if is_due:
            self._write()

    def _skip(self, model: Any) -> None:
        if self._resume_from is not None:
            model._initial_epoch = self._epochs
            model_state.build_optimizer(model)  # Keras finalizes the weights too
            results = self._resume_from.results[self._progress.fit]
            self._for_named(results, lambda callback, had: vars(callback).update(had))

    def _restore(self, model: Any) -> None:
        state, self._resume_from = self._resume_from, None
        if state is None:
            return
        try:
            model_state.restore(model, state.model)
        except model_state.UnfitState as error:
            log.warning("The trial starts again, as its checkpoint does not fit: %s.", error)
            self._handle(Event.UNFIT)
            return
        self._for_named(state.callbacks, callback_state.restore)
        self._recorder.restore(state.recorder, self._models)
        model._initial_epoch = state.epoch
        is_last = state.epoch >= self._epochs
        self._handle(Event.RESTORED_LAST if is_last else Event.RESTORED, epoch=state.epoch)
        print(f"The trial continues after {plural(self._recorder.step, 'epoch')}.")  # noqa: T201 - its log

    def _named(self, take: Callable[[Any, Mapping[str, Any]], Any]) -> list[tuple[str, Any]]:
        """Return what is taken of each callback, with the name of its class."""
        return [
            (type(each).__name__, take(each, begin))
            for each, begin in zip(self._callbacks, self._attributes_at_begin, strict=True)
        ]

    def _for_named(
        self, states: Iterable[tuple[str, Any]], give: Callable[[Any, Any], None]
    ) -> None:
        """Give each state to the callback of its class; of several, in their order."""
        remaining = list(self._callbacks)
        for name, saved in states:
            found = [i for i, each in enumerate(remaining) if type(each).__name__ == name]
            if found:
                give(remaining.pop(found[0]), saved)

    def _copy(self, epoch: int) -> None:
        with self._budget.spending("copy"):
            self._unwritten = TrainingState(
                phase=self._progress.fit,
                epoch=epoch,
                model=model_state.capture(self._models[-1]),
                callbacks=self._named(callback_state.state_of),
                results=list(self._results),
                recorder=self._recorder.state(self._models),
            )

    def _write(self) -> None:
        if self._unwritten is not None:
            with self._budget.spending("write"):
                self._checkpoints.write(self._unwritten.recorder["step"], self._unwritten)
            self._unwritten = None


def _contains(model: Any, earlier: Any) -> bool:
    return {id(variable) for variable in earlier.variables} <= {
        id(variable) for variable in model.variables
    }


class _Budget:
    """Decides when to write a checkpoint, by its cost and the time of the training.

    Args:
        every: Epochs between two checkpoints; None for as often as `SHARE_OF_TIME` allows.
    """

    def __init__(self, every: int | None) -> None:
        self._every = every
        self._began = 0.0
        self._spent_seconds = 0.0
        self._seconds = {"copy": 0.0, "write": 0.0}

    def begin(self) -> None:
        """Start the clock, as the training begins."""
        self._began = time.monotonic()

    def is_due(self, step: int) -> bool:
        """Return whether to write the checkpoint of this epoch."""
        if self._every is not None:
            return self._every > 0 and step % self._every == 0
        return self._allows(sum(self._seconds.values()))

    def allows_copy(self) -> bool:
        """Return whether to copy the state of this epoch, to be written if the trial stops."""
        return self._allows(self._seconds["copy"])

    def _allows(self, seconds: float) -> bool:
        return self._spent_seconds + seconds <= SHARE_OF_TIME * (time.monotonic() - self._began)

    @contextlib.contextmanager
    def spending(self, on: str) -> Iterator[None]:
        """Count the time of a "copy" or a "write"."""
        began = time.monotonic()
        yield
        self._seconds[on] = time.monotonic() - began
        self._spent_seconds += self._seconds[on]
