"""A training without Keras that is interrupted anywhere, and continues as `Progress` decides.

A model is a number, which each epoch changes depending on the calls of `fit` before it. So a
result that follows from an epoch that was skipped, or trained twice, is another one.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from hptune.training.resume.progress import Do, Event, Progress, State, Step


class Loop(enum.Enum):
    """How a training loop of the user's own calls the callbacks."""

    LIST = "as Keras does"
    LIKE_FIT = "as Keras does, with the parameters of a fit, but always from epoch 0"
    EPOCHS = "at the beginning and end of epochs only"
    REPORTS = "at the end of epochs only, without the list of callbacks"


class Fails(enum.Enum):
    """Where a fit fails. The user's code catches it."""

    BEFORE_EPOCHS = "before its first epoch"
    IN_SECOND_EPOCH = "in its second epoch"
    AFTER_EPOCHS = "before its end"


@dataclass(frozen=True, slots=True)
class Action:
    """What the user's code does.

    Attributes:
        what: "fit", "loop", "evaluate", "train on a batch" or "build".
        epochs: How many a fit or a loop trains; of a fit, None for what the one before it found.
        stops_after: Epochs after which a fit ends by itself; None if it does not.
        fails: Where a fit fails; None if it does not.
        loop: How a loop calls the callbacks.
    """

    what: str
    epochs: int | None = 2
    stops_after: int | None = None
    fails: Fails | None = None
    loop: Loop = Loop.LIST


@dataclass(frozen=True, slots=True)
class Code:
    """What the user's code does, and whether its result may follow from more than one epoch."""

    actions: Sequence[Action]
    returns_more: bool = False


class Interrupted(BaseException):
    """The attempt ends here, and another one follows."""


class FitFailed(Exception):
    """What the user's code catches."""


@dataclass(frozen=True, slots=True)
class Kept:
    """A checkpoint."""

    fit: int
    epoch: int
    weights: int
    history: tuple[int, ...]
    results: tuple[tuple[int, ...], ...]
    step: int
    best: int


@dataclass(slots=True)
class Study:
    """What outlives an attempt.

    Attributes:
        every: Epochs between two checkpoints.
        checkpoints: Those on disk, by their steps.
        reports: What was reported, by its step.
        contradictions: Steps of which another value was reported later.
        said: Why the trial begins again.
        has_written: Whether there ever was a checkpoint.
        is_silent: Whether an attempt has begun again after that, and none has said why.
    """

    every: int = 1
    checkpoints: dict[int, Kept] = field(default_factory=dict)
    reports: dict[int, int] = field(default_factory=dict)
    contradictions: list[int] = field(default_factory=list)
    said: list[str] = field(default_factory=list)
    has_written: bool = False
    is_silent: bool = False


@dataclass(frozen=True, slots=True)
class Interruption:
    """A kill after some moments of an attempt, or a request to stop, which it sees later."""

    moments: int
    is_kill: bool = True


def trial(
    code: Code, interruptions: Sequence[Interruption] = (), *, every: int = 1
) -> tuple[object, Study]:
    """Return the result of a trial that is interrupted so, and what its attempts have left."""
    study = Study(every)
    left = list(interruptions)
    while True:
        attempt = _Attempt(code, study, left.pop(0) if left else None)
        try:
            return attempt.run(), study
        except Interrupted:
            continue


class _Attempt:
    def __init__(self, code: Code, study: Study, interruption: Interruption | None) -> None:
        self._code = code
        self._study = study
        self._interruption = interruption
        self._moments = 0
        self._resume_from = study.checkpoints[max(study.checkpoints)] if study.checkpoints else None
        self._progress = Progress(is_found=self._resume_from is not None)
        self._weights = [0]
        self._models: list[int] = []
        self._first_epoch = 0
        self._epochs = 0
        self._history: tuple[int, ...] = ()
        self._results: list[tuple[int, ...]] = []
        self._step = self._best = 0
        self._done_epochs = 0
        self._unwritten: Kept | None = None
        study.is_silent |= study.has_written and not study.checkpoints and not study.said

    def run(self) -> object:
        """Return the result of the user's code."""
        seen: list[object] = []
        for action in self._code.actions:
            self._moment()
            if action.what == "fit":
                try:
                    self._fit(action)
                except FitFailed:
                    seen.append("failed")
                seen.append(self._history)
            elif action.what == "loop":
                self._loop(action.loop, action.epochs or 1)
                seen.append(self._weights[-1])
            elif action.what == "build":
                self._weights.append(-len(self._weights))
            else:
                if self._code.returns_more:
                    self._take(Event.EVALUATED)
                if action.what == "train on a batch":
                    self._weights[-1] = hash((self._weights[-1], "batch"))
                seen.append(self._weights[-1])
        self._take(Event.RETURNED)
        self._study.is_silent |= self._resume_from is not None
        is_done = self._progress.state is State.DONE
        return (is_done, self._best, seen if self._code.returns_more else seen[-1:])

    # --- what Keras does ------------------------------------------------------------------------

    def _fit(self, action: Action) -> None:
        epochs = 1 + sum(self._history) % 3 if action.epochs is None else action.epochs
        self._begin_fit(epochs)
        if action.fails is Fails.BEFORE_EPOCHS:
            raise FitFailed
        for epoch in range(self._first_epoch, epochs):
            self._take(Event.EPOCH_BEGINS, epoch=epoch)
            if action.fails is Fails.IN_SECOND_EPOCH and epoch == 1:
                raise FitFailed
            self._train(epoch)
            if self._ends_epoch(epoch, is_last=epoch + 1 in (epochs, action.stops_after)):
                break
        if action.fails is Fails.AFTER_EPOCHS:
            raise FitFailed
        self._take(Event.FIT_ENDS)

    def _begin_fit(self, epochs: int, event: Event = Event.FIT_BEGINS) -> None:
        self._poll()
        self._first_epoch, self._epochs, self._history = 0, epochs, ()
        self._results.append(())
        model = len(self._weights) - 1
        if event is Event.FIT_BEGINS and self._models and self._models[-1] != model:
            event = Event.OTHER_FIT_BEGINS
        elif event is Event.FIT_BEGINS and self._resume_from is not None:
            is_past = self._progress.fit + 1 < self._resume_from.fit
            event = Event.PAST_FIT_BEGINS if is_past else Event.KEPT_FIT_BEGINS
        self._models.append(model)
        self._take(event)

    def _train(self, epoch: int) -> None:
        self._moment()
        self._poll()
        self._weights[-1] = hash((self._weights[-1], max(self._progress.fit, 0), epoch))
        self._report(epoch)
        self._moment()

    def _report(self, epoch: int) -> None:
        self._step = max(self._step, epoch) + 1
        value = self._weights[-1] % 1000
        self._history += (value,)
        self._best = max(self._best, value)
        if self._study.reports.setdefault(self._step, value) != value:
            self._study.contradictions.append(self._step)
        self._take(Event.REPORTED)

    def _ends_epoch(self, epoch: int, *, is_last: bool) -> bool:
        self._done_epochs = epoch + 1
        self._take(Event.LAST_EPOCH_ENDS if is_last else Event.EPOCH_ENDS, epoch=epoch)
        if not is_last:
            self._poll()
        return is_last

    def _loop(self, how: Loop, epochs: int) -> None:
        if how is Loop.LIST:
            self._begin_fit(epochs, Event.LOOP_BEGINS)
        elif how is Loop.LIKE_FIT:
            self._begin_fit(epochs)
        for epoch in range(epochs):
            if how is not Loop.REPORTS:
                self._take(Event.EPOCH_BEGINS, epoch=epoch)
            self._train(epoch)
            if how is not Loop.REPORTS:
                is_last = epoch + 1 == epochs and self._progress.state is not State.OWN_LOOP
                self._ends_epoch(epoch, is_last=is_last)
        if how in (Loop.LIST, Loop.LIKE_FIT):
            self._take(Event.FIT_ENDS)

    # --- interruptions --------------------------------------------------------------------------

    def _moment(self) -> None:
        self._moments += 1
        order = self._interruption
        if order is not None and order.is_kill and self._moments > order.moments:
            raise Interrupted

    @property
    def _is_asked(self) -> bool:
        order = self._interruption
        return order is not None and not order.is_kill and self._moments > order.moments

    def _poll(self) -> None:
        if self._is_asked:
            self._take(Event.STOP_ASKED)

    # --- instructions ---------------------------------------------------------------------------

    def _take(self, event: Event, *, epoch: int | None = None) -> None:
        step = self._progress.on(event, epoch=epoch)
        for each in step.instructions:
            self._moment()
            self._carry_out(each, step)

    def _carry_out(self, instruction: Do, step: Step) -> None:
        actions: dict[Do, Callable[[], object]] = {
            Do.SKIP: self._skip,
            Do.RESTORE: self._restore,
            Do.KEEP: lambda: self._keep(self._done_epochs),
            Do.KEEP_LAST: self._keep_last,
            Do.KEEP_RESULTS: self._keep_results,
            Do.SAY: lambda: self._study.said.append(step.reason),
            Do.REMOVE: self._remove,
            Do.WRITE: self._write,
            Do.STOP: lambda: self._is_asked and self._stop(),
            Do.RELEASE: self._stop,
        }
        actions[instruction]()

    def _skip(self) -> None:
        assert self._resume_from is not None
        self._first_epoch = self._epochs
        self._history = self._resume_from.results[self._progress.fit]

    def _restore(self) -> None:
        kept, self._resume_from = self._resume_from, None
        assert kept is not None
        self._weights[-1], self._history = kept.weights, kept.history
        self._step, self._best, self._first_epoch = kept.step, kept.best, kept.epoch
        is_last = kept.epoch >= self._epochs
        self._take(Event.RESTORED_LAST if is_last else Event.RESTORED, epoch=kept.epoch)

    def _keep(self, epoch: int) -> None:
        self._unwritten = Kept(
            fit=self._progress.fit,
            epoch=epoch,
            weights=self._weights[-1],
            history=self._history,
            results=tuple(self._results),
            step=self._step,
            best=self._best,
        )
        if self._step % self._study.every == 0:
            self._write()

    def _keep_last(self) -> None:
        self._unwritten = None
        if self._progress.fit > 0:
            self._keep(self._epochs)

    def _keep_results(self) -> None:
        self._results[-1] = self._history

    def _write(self) -> None:
        if self._unwritten is not None:
            self._study.checkpoints[self._unwritten.step] = self._unwritten
            self._study.has_written, self._unwritten = True, None

    def _remove(self) -> None:
        self._unwritten = self._resume_from = None
        self._study.checkpoints.clear()

    @staticmethod
    def _stop() -> Any:
        raise Interrupted
