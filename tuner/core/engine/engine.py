"""The study's state machine: events in, commands out.

The engine knows no clock, network, file or thread. Whatever happens outside reaches it as an
event of `core.messages`; whatever is to be done leaves it as a command. A study is therefore
exactly its list of events: feed them again, in order, and the engine stands where it stood.

The way of one trial::

    WorkerJoined              -> [Ask(numbers=(0,))]
    Suggested(0, [params])    -> [Tell(WAITING), Start(attempt 0.0, placement, seed)]
    AttemptStarted, Reported  -> []
    AttemptEnded(returned)    -> [Tell(COMPLETE), KeepBest(0), Ask(numbers=(1,))]
    WorkerLeft (instead)      -> []          # the trial waits for a place, as attempt 0.1

With a pruner (`core.pruner`) that finds the trial poor, or thinks that others deserve its place::

    Reported(0.0, step 3)     -> [Tell(RUNNING), Stop(0.0, PRUNE)]
    AttemptEnded(pruned)      -> [Tell(PRUNED), Discard(0), Ask(numbers=(1,))]

    Reported(0.0, step 3)     -> [Tell(RUNNING), Stop(0.0, PAUSE)]
    AttemptEnded(paused)      -> [Tell(PAUSED), Ask(numbers=(1,))]
    AttemptEnded(1.0, …)      -> [Tell(PAUSED), Start(attempt 0.1, resume_from=3)]   # promoted

Where the best configurations are to be confirmed, a trial that trains one of them once more is a
trial of its own, with a number and so a training seed of its own::

    AttemptEnded(49.0, …)     -> [Tell(COMPLETE), Discard(49),
                                  Tell(50, "confirm of 12"), …, Start(attempt 50.0), …]
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from dataclasses import replace
from typing import assert_never

from ...errors import InvalidTransition
from ..messages import (
    AttemptEnded,
    AttemptStarted,
    AttemptWaits,
    Command,
    Event,
    Finish,
    FinishReason,
    GrowSpace,
    Measured,
    PackingDecided,
    ParametersUsed,
    Reported,
    StopRequested,
    StudyClosed,
    StudyOpened,
    Suggested,
    WorkerJoined,
    WorkerLeaving,
    WorkerLeft,
    WorkerRefused,
)
from ..pruner import PrunerMaker, never_prune
from ..snapshot import RunningAttempt, StudySnapshot
from ..trial import Attempt, AttemptId, Cause, Ending, Trial
from .dispatch import Dispatch
from .lifecycle import Lifecycle
from .records import TrialRecords
from .suggestion_requests import SuggestionRequests


class Engine:
    """Decides, from what happened, what is to be done.

    `handle` is called by one thread, with events in the order in which they are written to the
    ledger. Late and repeated messages about attempts that are over (a worker thought dead that
    answers after all) are ignored.

    It decides by three parts: `Lifecycle` (the state of every trial), `Dispatch` (what is free on
    the workers, and which trial starts there) and `SuggestionRequests` (how many suggestions are
    still wanted).

    Args:
        make_pruner: Makes the pruner that a study's settings name.
    """

    def __init__(self, make_pruner: PrunerMaker = never_prune) -> None:
        self._make_pruner = make_pruner
        self._known_course: Lifecycle | None = None
        self._known_dispatch: Dispatch | None = None
        self._asking = SuggestionRequests()
        self._refused = ""
        self._ending: Finish | None = None
        self._finished = False
        self._is_closed = False
        self._latest_at = 0.0
        self._heard_at = 0.0
        self._active_seconds = 0.0

    # --- the door in ------------------------------------------------------------------------

    def handle(self, event: Event) -> list[Command]:
        """Take in what happened and answer with what is to be done, in that order.

        Raises:
            InvalidTransition: The event cannot happen in this state; a bug in hptune.
        """
        if self._known_course is None and not isinstance(event, StudyOpened):
            raise InvalidTransition(f"{type(event).__name__} before the study was opened")
        self._pass_time(event)
        if self._known_course is not None:
            self._records.at = event.at
        commands = self._react(event)
        if isinstance(event, StudyOpened):
            self._is_closed = False
        if not self._is_closed:
            if self._dispatch.spending.is_over:
                commands += self._let_go(self._dispatch.spending.finish)
            commands += self._advance(event.at)
            if self._ending is None and not self._finished:
                commands += self._dispatch.packing_questions()
        self._dispatch.take_in()
        return commands

    def _react(self, event: Event) -> list[Command]:
        match event:
            case StudyOpened():
                return self._open(event)
            case WorkerJoined(worker=worker):
                if worker in self._dispatch.places:
                    raise InvalidTransition(f"worker {worker} joined twice")
                self._dispatch.worker_joined(event)
            case WorkerRefused(node=node, reason=reason):
                self._refused = f"{node} was refused: {reason}"
            case WorkerLeaving(worker=worker):
                self._dispatch.places.retire(worker)
            case WorkerLeft():
                return self._worker_left(event)
            case Suggested():
                return self._suggested(event)
            case AttemptWaits(attempt=name, reason=reason):
                record = self._records.running.get(name)
                if record is not None and record.attempt.started_at is None:
                    self._records.put_attempt(record, replace(record.attempt, reason=reason))
            case AttemptStarted(at=at, attempt=name):
                if record := self._records.running.get(name):
                    started = replace(record.attempt, started_at=at, reason="")
                    self._records.put_attempt(record, started)
                    self._dispatch.started(record)
            case Reported(attempt=name, report=report):
                if name in self._records.running:
                    return self._course.report(name, report)
            case Measured(attempt=name, usage=usage):
                if record := self._records.running.get(name):
                    self._records.put_attempt(record, replace(record.attempt, usage=usage))
                    self._dispatch.measured(event)
            case PackingDecided(plan=plan):
                self._dispatch.packing_decided(plan, at=event.at)
            case ParametersUsed():
                return self._parameters_used(event)
            case AttemptEnded(at=at, attempt=name, ending=ending):
                if name in self._records.running:
                    return self._end_attempt(at, name, ending)
            case StopRequested(finish_reason=finish_reason, reason=reason):
                return self._let_go(Finish(finish_reason, reason))
            case StudyClosed():
                self._is_closed = True
            case _:
                assert_never(event)
        return []

    def _pass_time(self, event: Event) -> None:
        if isinstance(event, StudyOpened | StudyClosed):
            self._latest_at = event.at  # nobody worked between two masters
        elif event.at > self._latest_at:
            seconds = event.at - self._latest_at
            self._active_seconds += seconds
            self._dispatch.spending.hours.pass_time(seconds)
            self._latest_at = self._heard_at = event.at

    # --- events -----------------------------------------------------------------------------

    def _open(self, event: StudyOpened) -> list[Command]:
        if self._known_course is None:
            self._known_course = Lifecycle(event, self._make_pruner)
            self._known_dispatch = Dispatch(self._known_course)
        lost_at = self._heard_at or event.at
        commands = self._course.open(event, lost_at=lost_at)
        commands += self._course.add(event.added)
        self._dispatch.open(event.config)
        searched = self._asking.searched + len(event.added)
        self._asking = SuggestionRequests(
            event.config.trials, ask_ahead=event.config.ask_ahead, searched=searched
        )
        self._refused = ""
        self._ending = None
        self._finished = False
        return commands

    def _worker_left(self, event: WorkerLeft) -> list[Command]:
        commands: list[Command] = []
        if event.worker not in self._dispatch.places:
            return commands
        for name in self._records.running_on(event.worker):
            ending = Ending(Cause.WORKER_LOST, reason=event.reason)
            commands += self._end_attempt(event.at, name, ending)
        self._dispatch.worker_left(event.worker)
        return commands

    def _suggested(self, event: Suggested) -> list[Command]:
        if event.first_number != len(self._records):
            raise InvalidTransition(
                f"suggestions from trial {event.first_number} on, expected {len(self._records)}"
            )
        self._asking.answered(event)
        return self._course.add(event.suggestions)

    def _parameters_used(self, event: ParametersUsed) -> list[Command]:
        commands: list[Command] = []
        if event.attempt in self._records.running:
            if event.declared:
                self._asking.space_grew()
                commands.append(GrowSpace(event.declared))
            commands += self._course.drew(event.attempt, event.values)
        return commands

    def _end_attempt(self, at: float, name: AttemptId, ending: Ending) -> list[Command]:
        self._dispatch.ended(name, ending.cause)
        commands, finish = self._course.end(at, name, ending)
        return commands if finish is None else [*commands, *self._let_go(finish)]

    def _let_go(self, finish: Finish) -> list[Command]:
        if self._ending is not None:
            return []
        self._ending = finish
        return self._course.stop_all()

    # --- what follows -----------------------------------------------------------------------

    def _advance(self, at: float) -> list[Command]:
        records, dispatch = self._records, self._dispatch
        dispatch.take_in()
        commands: list[Command] = []
        if self._finished:
            return commands  # what is heard of now waits for the next master
        if self._ending is None:
            commands += dispatch.place(at)
            question = self._asking.next(
                len(records),
                waiting=records.waiting,
                running=len(records.running),
                rooms=functools.partial(dispatch.rooms_for_more, at=self._latest_at),
            )
            if question is not None:
                commands.append(question)
        if records.running:
            return commands
        if self._ending is None and dispatch.is_affordable:
            if records.waiting or not self._asking.is_over:
                return commands
            more = self._course.promote(is_last=True)
            if not more:
                commands += self._course.prune_paused()
                more = self._course.confirm()
            if more:
                commands += [*more, *dispatch.place(at)]
                if records.running or dispatch.is_affordable:
                    return commands
        self._finished = True
        return [*commands, self._finish]

    @property
    def _finish(self) -> Finish:
        """How the study ends, now that nothing runs and nothing else can start."""
        if self._ending is not None:
            return self._ending
        if not self._dispatch.is_affordable:
            return self._dispatch.spending.finish
        if self._asking.is_exhausted:
            tried = self._asking.searched
            reason = f"all {tried} configurations of the search space were tried"
            return Finish(FinishReason.EXHAUSTED, reason)
        return Finish(FinishReason.DONE, f"{len(self._records)} trials are over")

    # --- the doors out ----------------------------------------------------------------------

    @property
    def _course(self) -> Lifecycle:
        if self._known_course is None:
            raise InvalidTransition("the study was not opened")
        return self._known_course

    @property
    def _dispatch(self) -> Dispatch:
        if self._known_dispatch is None:
            raise InvalidTransition("the study was not opened")
        return self._known_dispatch

    @property
    def _records(self) -> TrialRecords:
        return self._course.records

    @property
    def _confirmations(self) -> int:
        known = self._known_course
        return 0 if known is None else len(known.records) - self._asking.searched

    def take_changes(self) -> tuple[list[Trial], list[Attempt]]:
        """The trials and attempts that changed since the last call."""
        return ([], []) if self._known_course is None else self._records.take_changes()

    @property
    def trials(self) -> Iterable[Trial]:
        """All trials, by number."""
        known = self._known_course
        return () if known is None else (record.trial for record in known.records)

    def story(self, trial: int) -> tuple[str, ...]:
        """Return a trial's whole history, one line for each thing that happened to it.

        >>> engine.story(0)  # doctest: +SKIP
        ('2026-03-01 10:00:00 suggested by tpe',
         '2026-03-01 10:00:00 attempt 0.0 is placed on w1 (node17)',
         '2026-03-01 10:00:00 start: WAITING -> RUNNING',
         '2026-03-01 10:02:11 attempt 0.0 ended, LOST: worker lost',
         '2026-03-01 10:02:11 retry: RUNNING -> WAITING')
        """
        return self._records[trial].story

    @property
    def front(self) -> tuple[Trial, ...]:
        """The best trials so far, the first goal's best first; one at most for one goal."""
        return () if self._known_course is None else self._known_course.retention.front

    @property
    def kept(self) -> frozenset[int]:
        """The trials whose models are needed, or may be."""
        return frozenset() if self._known_course is None else self._known_course.retention.models

    @property
    def able_to_go_on(self) -> tuple[int, ...]:
        """The complete trials whose last checkpoint is kept, the best first."""
        if self._confirmations:
            return ()  # their means would be of trainings of different lengths
        return () if self._known_course is None else self._known_course.retention.checkpoints

    @property
    def ended_early(self) -> frozenset[int]:
        """The complete trials that ended by themselves before they had all their epochs."""
        known = self._known_course
        return frozenset() if known is None else known.retention.ended_early

    @property
    def is_opened(self) -> bool:
        """Whether the study has ever had a master."""
        return self._known_course is not None

    @property
    def epochs(self) -> int | None:
        """The full training of a trial, in epochs, as the last master had it, if there was one."""
        return None if self._known_course is None else self._known_course.config.pruner.epochs

    @property
    def best(self) -> Trial | None:
        """The best trial so far, by the first goal."""
        return self.front[0] if self.front else None

    @property
    def active_seconds(self) -> float:
        """How long masters have worked on this study; the time between them does not count."""
        return self._active_seconds

    def overspent(self, at: float) -> Finish | None:
        """How the study is to finish as its budget is spent by now, though nothing has happened.

        Args:
            at: Now, in seconds since the epoch.
        """
        if self._is_closed or self._ending is not None:
            return None
        return self._dispatch.spending.finish_after(max(0.0, at - self._latest_at))

    @property
    def snapshot(self) -> StudySnapshot:
        """The study as it stands, for those who show it."""
        config, records, places = self._course.config, self._records, self._dispatch.places
        return StudySnapshot(
            goals=config.goals,
            budget_trials=None if config.trials is None else config.trials + self._confirmations,
            counts=records.counts,
            front=self.front,
            running=tuple(
                RunningAttempt(trial.trial, record.attempt, record.latest, trial.seconds)
                for record in records.running.values()
                for trial in (records[record.attempt.id.trial],)
            ),
            workers=len(places),
            cpus=places.cpus,
            cpus_held=places.cpus_held,
            gpus=places.gpus,
            gpus_held=places.gpus_held,
            stall_reason=""
            if self._finished
            else self._dispatch.stall_reason(at=self._latest_at, refused=self._refused),
            packing=self._dispatch.packing,
            stopping="" if self._ending is None else self._ending.reason,
            usual=config.resources,
            sizes=self._dispatch.sizes,
        )

    def validate(self) -> None:
        """Check every invariant; for tests and for the doubtful.

        Raises:
            AssertionError: One of them does not hold.
        """
        if self._known_course is None:
            return
        records = self._records
        self._course.validate(
            is_done=self._finished and self._ending is None and self._dispatch.is_affordable
        )
        self._asking.validate()
        is_placing = self._ending is None and not self._is_closed and not self._finished
        self._dispatch.validate(is_placing=is_placing, at=self._latest_at)
        confirms = sum(record.trial.confirms is not None for record in records)
        if confirms != self._confirmations:
            raise AssertionError(f"{self._confirmations} confirmations were counted")
        if self._finished and records.running:
            raise AssertionError("finished with attempts running")
