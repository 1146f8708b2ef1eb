"""Where a Keras training is, and whether a checkpoint can continue it: a table, without Keras.

The user's code may call `fit` several times, of one model or of several, and do other things in
between. A checkpoint is of an epoch of one call. The next attempt runs the code from its beginning,
skips the calls before that one, and continues within it. That is right only if nothing between the
calls depends on a training that is skipped. `ROWS` has the cases that are known to be right, and
those that are known to be wrong, with the reason. What has no row counts as wrong: a trial that
begins again costs time, and one that continues wrongly has a wrong result without a word.

A trial begins again in one of two ways. If this process has skipped nothing, it trains on without
checkpoints, and begins again only if it is interrupted. If it has skipped epochs, it cannot train
them any more: the attempt is abandoned, and the next one trains all epochs.

`Resumption` delivers the events and carries out the instructions.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass


class State(enum.Enum):
    """Where a training is; the values are for people."""

    NOT_STARTED = "before its first fit"
    FOUND = "before its first fit, with a checkpoint"
    SKIPPING = "in a fit that an earlier attempt has completed"
    SKIPPED = "after a fit that an earlier attempt has completed"
    SKIPPED_EVALUATED = "after it evaluated a model that an earlier attempt has trained"
    RESTORING = "in its first fit, while the checkpoint is restored"
    RESTORING_LATER = "in a later fit, while the checkpoint is restored"
    RESTORED = "in a fit that continues, before its first epoch"
    RESTORED_LAST = "in a fit whose last epoch is restored"
    IN_FIT = "in a fit, before an epoch"
    IN_EPOCH = "in an epoch"
    TRAINED = "in a fit, after its last epoch"
    BETWEEN_FITS = "after a fit"
    EVALUATED = "after it evaluated a trained model"
    OWN_LOOP = "in a training loop of your own"
    UNKEPT = "in a training without checkpoints"
    UNKEPT_TRAINED = "after all epochs of a fit without checkpoints"
    ABANDONED = "in an attempt that is abandoned"
    DONE = "after the training"


class Event(enum.Enum):
    """What the user's code, the study or a restored checkpoint does; the values are for people."""

    FIT_BEGINS = "a fit began"
    OTHER_FIT_BEGINS = "a fit of another model began"
    PAST_FIT_BEGINS = "a fit began that an earlier attempt has completed"
    KEPT_FIT_BEGINS = "the fit of the checkpoint began"
    LOOP_BEGINS = "a training loop began"
    RESTORED = "the checkpoint was restored"
    RESTORED_LAST = "the checkpoint of a last epoch was restored"
    UNFIT = "the checkpoint did not fit"
    EPOCH_BEGINS = "an epoch began"
    OTHER_EPOCH_BEGINS = "an epoch began out of order"
    REPORTED = "an epoch was reported"
    EPOCH_ENDS = "an epoch ended"
    LAST_EPOCH_ENDS = "the last epoch ended"
    FIT_ENDS = "a fit ended"
    EVALUATED = "a model was evaluated"
    STOP_ASKED = "the study asked for a stop"
    PRUNE_ASKED = "the study pruned the trial"
    RETURNED = "the code returned"


class Do(enum.Enum):
    """An instruction."""

    SKIP = "let the fit train no epoch, and give its callbacks what they had at its end"
    RESTORE = "restore the checkpoint, and tell by an event what became of it"
    KEEP = "copy the epoch's state, and write it if that is due"
    KEEP_LAST = "the same for the last epoch of a fit"
    KEEP_RESULTS = "note what the callbacks have at the end of a fit"
    SAY = "tell the user why the trial begins again"
    REMOVE = "remove the checkpoints, and forget what was copied for one"
    WRITE = "write what was copied last and is not on disk"
    STOP = "end the attempt, if the study has asked for that"
    RELEASE = "end the attempt so that the next one trains all epochs"


@dataclass(frozen=True, slots=True)
class Step:
    """What follows an event.

    Attributes:
        state: The next state.
        instructions: What to do, in this order.
        reason: Why the trial begins again; empty if it does not.
    """

    state: State
    instructions: tuple[Do, ...] = ()
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Row:
    """Rows of the table that have the same next state: each state with each event.

    Attributes:
        states: The states.
        events: The events.
        next: The next state; None for the same one.
        instructions: What to do, in this order.
        reason: Why the trial begins again; empty if it does not. `next` is for a process that has
            skipped no epoch then, and the instructions follow.
    """

    states: tuple[State, ...]
    events: tuple[Event, ...]
    next: State | None = None
    instructions: tuple[Do, ...] = ()
    reason: str = ""

    def step(self, state: State) -> Step:
        """Return what follows in one of the states."""
        if self.reason:
            return begins_again(state, self.reason, self.next or State.UNKEPT)
        return Step(self.next or state, self.instructions)


def begins_again(state: State, reason: str, following: State = State.UNKEPT) -> Step:
    """Return how a trial begins again, as nothing may follow from the epochs that are skipped."""
    if state in _CONTINUED:
        return Step(State.ABANDONED, (Do.SAY, Do.REMOVE, Do.RELEASE), reason)
    return Step(following, (Do.SAY, Do.REMOVE), reason)


S, E = State, Event
_CONTINUED = (
    S.SKIPPING, S.SKIPPED, S.SKIPPED_EVALUATED, S.RESTORING_LATER, S.RESTORED, S.RESTORED_LAST
)  # fmt: skip
"""The process has skipped epochs, and trained none since."""
_BEFORE = (S.NOT_STARTED, S.FOUND)
_WITHIN = (S.RESTORED, S.RESTORED_LAST, S.IN_FIT, S.IN_EPOCH, S.TRAINED)
_AFTER = (S.BETWEEN_FITS, S.EVALUATED, S.SKIPPED, S.SKIPPED_EVALUATED)
_UNKEPT = (S.OWN_LOOP, S.UNKEPT, S.UNKEPT_TRAINED)
_ANYWHERE = tuple(each for each in S if each not in (S.ABANDONED, S.DONE))
_FITS = (E.FIT_BEGINS, E.OTHER_FIT_BEGINS, E.PAST_FIT_BEGINS, E.KEPT_FIT_BEGINS)
_LOOP_REASON = "a training loop of your own calls the callbacks"
_EVALUATED_REASON = "it evaluates its model between two calls of fit"
_EPOCHS = (E.EPOCH_BEGINS, E.OTHER_EPOCH_BEGINS)

ROWS = (
    # One fit, or one after another of the same model.
    Row((S.NOT_STARTED, S.BETWEEN_FITS), (E.FIT_BEGINS,), S.IN_FIT),
    Row((S.IN_FIT, S.RESTORED), (E.EPOCH_BEGINS,), S.IN_EPOCH),
    Row((S.IN_EPOCH,), (E.REPORTED,)),
    Row((S.IN_EPOCH,), (E.EPOCH_ENDS,), S.IN_FIT, (Do.KEEP,)),
    Row((S.IN_EPOCH,), (E.LAST_EPOCH_ENDS,), S.TRAINED, (Do.KEEP_LAST,)),
    Row((S.IN_FIT, S.TRAINED), (E.FIT_ENDS,), S.BETWEEN_FITS, (Do.KEEP_RESULTS,)),
    Row((S.TRAINED, S.BETWEEN_FITS, S.EVALUATED), (E.RETURNED,), S.DONE),
    # A model evaluated before the first fit, or within one, is the same in each attempt.
    Row((*_BEFORE, *_WITHIN, S.SKIPPING), (E.EVALUATED,)),
    Row((S.BETWEEN_FITS, S.EVALUATED), (E.EVALUATED,), S.EVALUATED),
    Row((S.SKIPPED, S.SKIPPED_EVALUATED), (E.EVALUATED,), S.SKIPPED_EVALUATED),
    # An attempt that continues.
    Row((S.FOUND, S.SKIPPED), (E.PAST_FIT_BEGINS,), S.SKIPPING, (Do.SKIP,)),
    Row((S.SKIPPING,), (E.FIT_ENDS,), S.SKIPPED, (Do.KEEP_RESULTS,)),
    Row((S.FOUND,), (E.KEPT_FIT_BEGINS,), S.RESTORING, (Do.RESTORE,)),
    Row((S.SKIPPED,), (E.KEPT_FIT_BEGINS,), S.RESTORING_LATER, (Do.RESTORE,)),
    Row((S.RESTORING, S.RESTORING_LATER), (E.RESTORED,), S.RESTORED),
    Row((S.RESTORING, S.RESTORING_LATER), (E.RESTORED_LAST,), S.RESTORED_LAST),
    Row((S.RESTORED_LAST,), (E.FIT_ENDS,), S.BETWEEN_FITS, (Do.KEEP_RESULTS,)),
    Row((S.RESTORED_LAST,), (E.RETURNED,), S.DONE),
    Row((S.RESTORING,), (E.UNFIT,), S.IN_FIT, (Do.REMOVE,)),
    Row((S.RESTORING_LATER,), (E.UNFIT,), S.ABANDONED, (Do.REMOVE, Do.RELEASE)),
    # An attempt that begins again, and says so.
    Row((*_BEFORE, *_AFTER), (*_EPOCHS, E.REPORTED), S.OWN_LOOP, reason=_LOOP_REASON),
    Row((*_BEFORE, *_WITHIN, *_AFTER), (E.LOOP_BEGINS,), S.OWN_LOOP, reason=_LOOP_REASON),
    # Such a loop need not begin at the epoch that a fit of Keras begins at.
    Row(
        (S.RESTORED, S.RESTORED_LAST),
        (E.OTHER_EPOCH_BEGINS,),
        reason="its training loop does not begin at the epoch of the checkpoint",
    ),
    # A checkpoint holds the variables of one model; those of the earlier one would be lost.
    Row((*_WITHIN, *_AFTER), (E.OTHER_FIT_BEGINS,), reason="it trains several models"),
    # A fit that is skipped would not fail again, and the code would take another way.
    Row(_WITHIN, (E.FIT_BEGINS,), reason="a fit of it has failed"),
    # With the fit before it skipped, it would evaluate the weights of the beginning.
    Row((S.EVALUATED,), (E.FIT_BEGINS,), reason=_EVALUATED_REASON),
    Row((S.SKIPPED_EVALUATED,), (E.PAST_FIT_BEGINS, E.KEPT_FIT_BEGINS), reason=_EVALUATED_REASON),
    Row(
        (S.SKIPPED, S.SKIPPED_EVALUATED),
        (E.RETURNED,),
        reason="it has not called fit as often as the attempt that wrote the checkpoint",
    ),
    # Without checkpoints, a fit must still be complete for its result to count.
    Row(_UNKEPT, _FITS, S.UNKEPT, (Do.REMOVE,)),
    Row(_UNKEPT, (E.LOOP_BEGINS,), S.OWN_LOOP),
    Row(_UNKEPT, (E.EVALUATED, E.FIT_ENDS)),
    Row((S.OWN_LOOP,), (*_EPOCHS, E.EPOCH_ENDS)),
    Row((S.OWN_LOOP,), (E.REPORTED,), None, (Do.STOP,)),
    Row((S.UNKEPT,), (*_EPOCHS, E.EPOCH_ENDS, E.REPORTED)),
    Row((S.UNKEPT_TRAINED,), (*_EPOCHS, E.REPORTED), S.OWN_LOOP),
    Row((S.UNKEPT,), (E.LAST_EPOCH_ENDS,), S.UNKEPT_TRAINED),
    Row((S.UNKEPT_TRAINED,), (E.RETURNED,), S.DONE),
    # The code may catch what a fit raises, or train without one.
    Row((*_BEFORE, S.IN_FIT, S.IN_EPOCH, *_UNKEPT[:2]), (E.RETURNED,), None, (Do.STOP,)),
    # The study may ask for a stop anywhere.
    Row(_ANYWHERE, (E.STOP_ASKED,), None, (Do.WRITE, Do.STOP)),
    Row(_ANYWHERE, (E.PRUNE_ASKED,), None, (Do.STOP,)),
    # The code may catch the end of the attempt, too.
    Row((S.ABANDONED,), tuple(E), None, (Do.RELEASE,)),
)

TABLE = {
    (state, event): row.step(state) for row in ROWS for state in row.states for event in row.events
}


class Progress:
    """The state of a training.

    Attributes:
        state: Where it is.
        fit: Which call of `fit` it is in or has ended, from 0; -1 before the first.

    Args:
        is_found: Whether there is a checkpoint.
    """

    def __init__(self, *, is_found: bool) -> None:
        self.state = State.FOUND if is_found else State.NOT_STARTED
        self.fit = -1
        self._next_epoch: int | None = None

    def on(self, event: Event, *, epoch: int | None = None) -> Step:
        """Take an event, and return what follows.

        Args:
            event: What happened. Whether an epoch is out of order is found here.
            epoch: The epoch that begins or ends, or the next one after a checkpoint.
        """
        if event in (*_FITS, Event.LOOP_BEGINS):
            self.fit += 1
            self._next_epoch = None
        if event is Event.EPOCH_BEGINS and self._next_epoch not in (None, epoch):
            event = Event.OTHER_EPOCH_BEGINS
        elif event in (Event.RESTORED, Event.RESTORED_LAST):
            self._next_epoch = epoch
        elif event is Event.EPOCH_ENDS and epoch is not None:
            self._next_epoch = epoch + 1
        step = TABLE.get((self.state, event))
        if step is None:
            step = begins_again(self.state, f"{event.value} {self.state.value}")
        self.state = step.state
        return step
