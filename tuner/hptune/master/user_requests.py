"""How a master answers what users ask of it (`storage/asking`)."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from ..core.attempt import AttemptId
from ..core.engine.engine import Engine
from ..core.messages import AttemptEnded, Event, FinishReason, StopRequested, UserRequested
from ..core.space.space import SearchSpace
from ..core.trial import Params, Suggestion
from ..core.user_requests import UserAction, UserRequest
from ..errors import HptuneError, StudyError, UsageError
from ..storage.asking import check_exists, check_not_over, new_trials
from ..storage.ledger.codec import decode_event
from ..storage.requests import RequestFile
from .programs import Told, follows, past_leases, without_trial

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class UserRequests:
    """The requests to a master, and what it answers them with.

    Attributes:
        file: The requests.
        engine: The master's engine.
        space: Returns the search space as it is now.
        sized: Returns the suggestions with the resources that they ask for.
        token: The master's, which programs name.
        accepted: The configurations that were added; those that are no trials yet will be.
        over: The attempts of programs whose ends were returned. The engine may learn of them later,
            as after the measurement of training steps.
    """

    file: RequestFile
    engine: Engine
    space: Callable[[], SearchSpace]
    sized: Callable[[SearchSpace, Sequence[Suggestion]], Sequence[Suggestion]]
    token: str = ""
    accepted: list[Params] = field(default_factory=list)
    over: set[AttemptId] = field(default_factory=set)

    def __call__(self, now: float) -> list[Event]:
        """Return the answers to the requests since the last call.

        Args:
            now: The present time, in seconds since the epoch.
        """
        events = list[Event]()
        told = set[AttemptId]()
        for request in self.file.read():
            if request.action is not UserAction.TRAIN:
                events.append(self._answer(request, now))
            elif request.master == self.token:
                new = self._trained(request, now)
                told.update(each.attempt for each in new if isinstance(each, Told))
                self._note_ends(new)
                events += new
            # Else its program has learned that the earlier master has ended, and asks again.
        lost = past_leases(self.engine, now, told=told | self.over)
        self._note_ends(lost)
        return [*events, *without_trial(self.engine, now), *lost]

    def _note_ends(self, events: Sequence[Event]) -> None:
        self.over.update(each.attempt for each in events if isinstance(each, AttemptEnded))

    def _trained(self, request: UserRequest, now: float) -> Sequence[Event]:
        """Return what a program lets happen."""
        answer = UserRequested(now, request.name, request.action, request.by)
        event = None
        with contextlib.suppress(StudyError):
            event = decode_event(*request.event or ("", ""))
        try:
            return [*follows(self.engine, event, now, over=self.over), answer]
        except HptuneError as error:
            if isinstance(error, UsageError):
                log.warning("A request of %s is refused: %s", request.by, error)
            return [replace(answer, refused=error.message)]

    def _answer(self, request: UserRequest, now: float) -> Event:
        if request.action is UserAction.STOP:
            return StopRequested(now, FinishReason.INTERRUPTED, request.stop_reason)
        added: Sequence[Suggestion] = ()
        refused = ""
        try:
            is_note = request.action is UserAction.NOTE
            if self.engine.snapshot.stopping and not is_note:
                raise StudyError("the study is stopping")
            trials = tuple(self.engine.trials)
            if request.action is UserAction.STOP_TRIAL:
                check_not_over(request.trial, trials)
            elif is_note and request.trial is not None:
                check_exists(request.trial, trials)
            elif request.action is UserAction.ENQUEUE:
                space = self.space()
                # The engine has those that an earlier master accepted.
                accepted = [*self.engine.added, *self.accepted]
                new = new_trials(request.points, space, trials, accepted)
                added = self.sized(space, new)
                self.accepted.extend(each.params for each in added)
        except HptuneError as error:
            refused, added = error.message, ()
        answer = UserRequested(now, request.name, request.action, request.by, request.trial)
        return replace(answer, added=tuple(added), refused=refused, note=request.note)
