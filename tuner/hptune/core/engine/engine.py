"""The study's state machine: events in, commands out.

The engine knows no clock, network, file or thread. What happens outside reaches it as an event of
`core.messages`; what is to be done leaves it as a command. A study is therefore exactly its list
of events: the same events, in the same order, lead to the same state.

The way of one trial::

    WorkerJoined              -> [Ask(numbers=(0,))]
    Suggested(0, [params])    -> [Tell(WAITING), Start(attempt 0.0, placement, seed)]
    AttemptStarted, Reported  -> []
    AttemptEnded(returned)    -> [Tell(COMPLETE), KeepBest(0), Ask(numbers=(1,))]
    WorkerLeft (instead)      -> []          # the trial waits for a placement, as attempt 0.1

With a pruner (`core.pruner`) that lets the trial continue at a rung, stops it or pauses it::

    Reported(0.0, step 3)     -> [Tell(RUNNING), Continue(0.0, step 3)]

    Reported(0.0, step 3)     -> [Tell(RUNNING), Stop(0.0, PRUNE)]
    AttemptEnded(pruned)      -> [Tell(PRUNED), Discard(0), Ask(numbers=(1,))]

    Reported(0.0, step 3)     -> [Tell(RUNNING), Stop(0.0, PAUSE)]
    AttemptEnded(paused)      -> [Tell(PAUSED), Ask(numbers=(1,))]
    AttemptEnded(1.0, …)      -> [Tell(PAUSED), Start(attempt 0.1, resume_from=3)]   # promoted

A repeat that confirms one of the best configurations is a trial with its own number, and so with
its own training seed::

    AttemptEnded(49.0, …)     -> [Tell(COMPLETE), Discard(49),
                                  Tell(50, "confirm of 12"), …, Start(attempt 50.0), …]
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import assert_never

from ...errors import InvalidTransition
from ..attempt import FROM_OUTSIDE, Attempt, AttemptId, Cause, Ending, Halt
from ..budget import Device
from ..goals import Goals
from ..messages import (
    AttemptEnded,
    AttemptStarted,
    AttemptWaits,
    Command,
    DecideSplit,
    Event,
    ExcludeNode,
    Finish,
    FinishReason,
    GrowSpace,
    Measured,
    NodeExcluded,
    PackingDecided,
    ParametersUsed,
    Reported,
    SplitChosen,
    StopRequested,
    StudyClosed,
    StudyOpened,
    Suggested,
    UserRequested,
    WorkerJoined,
    WorkerLeaving,
    WorkerLeft,
    WorkerRefused,
    all_over,
)
from ..pruner import PrunerMaker, never_prune
from ..resources import Resources
from ..snapshot import RunningAttempt, StudySnapshot
from ..study_config import StudyConfig
from ..trial import Params, Suggestion, Trial, TrialState
from ..user_requests import UserAction
from ..workers import Phase, RosterEvent, Worker, Workers
from .dispatch import Dispatch
from .lifecycle import Lifecycle
from .records import AttemptRecord, LeasedAttempt, TrialRecords
from .suggestion_requests import SuggestionRequests

_NO_STUDY = StudyOpened(0.0, StudyConfig(trials=0, goals=Goals(()), seed=0))
"""What an engine has before its study is opened."""


class Engine:
    """Decides, from what happened, what is to be done.

    One thread calls `handle`, with events in the order in which they are written to the ledger.
    Late and repeated messages about attempts that are over (a worker that was taken for dead) are
    ignored.

    It has four parts: `Workers` (who there is), `Lifecycle` (the state of every trial), `Dispatch`
    (what is free on the workers, and which trial starts there) and `SuggestionRequests` (how many
    suggestions the study still needs). The last three return commands, and the engine joins them.

    Attributes:
        workers: The roster, for others to read.
        active_seconds: How long masters have worked on this study; the time between them does not
            count.
    """

    def __init__(self, make_pruner: PrunerMaker = never_prune) -> None:
        self._make_pruner = make_pruner
        self._is_opened = False
        self._lifecycle = Lifecycle(_NO_STUDY, make_pruner)
        self._dispatch = Dispatch(self._lifecycle)
        self._requests = SuggestionRequests()
        self.workers = Workers()
        self._is_split_due = False
        self._added: list[Suggestion] = []  # by the user, while a request to the sampler is open
        self._paused_by = ""
        self._stop_reason: Finish | None = None
        self._finished: Finish | None = None
        self._has_master = False
        self._is_closed = False
        self._latest_at = 0.0
        self._last_event_at = 0.0
        self.active_seconds = 0.0

    @property
    def _records(self) -> TrialRecords:
        return self._lifecycle.records

    # --- in ---------------------------------------------------------------------------------

    def handle(self, event: Event) -> list[Command]:
        """Take in what happened, and return what is to be done, in order.

        Raises:
            InvalidTransition: The event is illegal in this state; a bug in hptune.
        """
        if isinstance(event, UserRequested) and event.action is UserAction.NOTE:
            return []  # it may be written while no master runs: not even time has passed
        if not self._is_opened and not isinstance(event, StudyOpened):
            raise InvalidTransition(f"{type(event).__name__} before the study was opened")
        self._pass_time(event)
        self._records.at = event.at
        commands = self._react(event)
        if isinstance(event, StudyOpened):
            self._is_closed = False
        if not self._is_closed:
            if self._dispatch.budget.is_over():
                commands += self._stop(self._dispatch.budget.finish)
            question = self._question
            commands += self._advance(event.at) if question is None else [question]
            if question is None and self._stop_reason is None and not self._finished:
                commands += self._dispatch.packing_questions()
        self._dispatch.queue_waiting()
        return commands

    def _react(self, event: Event) -> list[Command]:
        match event:
            case StudyOpened():
                return self._open(event)
            case WorkerJoined() | WorkerRefused() | WorkerLeft():
                return self._update_workers(event)
            case WorkerLeaving(worker=worker):
                # Also if it takes no attempts already, as its node is excluded.
                return [*self._update_workers(event), *self._lifecycle.release(worker)]
            case NodeExcluded(node=node):
                for loss in self.workers.losses_on(node):
                    self._records[loss.trial].forgive(loss.cause)
                return self._update_workers(event)
            case Suggested():
                return self._suggested(event)
            case AttemptWaits(attempt=name, reason=reason):
                if record := self._records.running.get(name):
                    self._records.put_attempt(record, replace(record.attempt, reason=reason))
            case AttemptStarted(at=at, attempt=name):
                if record := self._records.running.get(name):
                    started = replace(record.attempt, started_at=at, reason="")
                    self._records.put_attempt(record, started)
                    self._dispatch.started(record)
            case Reported(attempt=name, report=report):
                if name in self._records.running:
                    return self._lifecycle.report(name, report)
            case Measured(attempt=name, usage=usage):
                if record := self._records.running.get(name):
                    self._records.put_attempt(record, replace(record.attempt, usage=usage))
                    self._dispatch.measured(event)
            case PackingDecided(plan=plan):
                self._dispatch.packing_decided(plan, at=event.at)
            case SplitChosen(resources=resources):
                self._is_split_due = False
                if resources != self._lifecycle.config.resources:
                    self._lifecycle.config = replace(self._lifecycle.config, resources=resources)
                    self._dispatch.usual_changed()
            case ParametersUsed():
                return self._parameters_used(event)
            case AttemptEnded(at=at, attempt=name, ending=ending):
                if name in self._records.running:
                    return self._end_attempt(at, name, ending)
            case StopRequested(finish_reason=finish_reason, reason=reason):
                return self._stop(Finish(finish_reason, reason))
            case UserRequested():
                return self._user_requested(event)
            case StudyClosed():
                self._is_closed = True
            case _:
                assert_never(event)
        return []

    def _pass_time(self, event: Event) -> None:
        if self._is_closed or isinstance(event, StudyOpened | StudyClosed):
            self._latest_at = event.at  # the time between two masters does not count
        elif event.at > self._latest_at:
            seconds = event.at - self._latest_at
            self.active_seconds += seconds
            self._dispatch.budget.pass_time(seconds)
            self._latest_at = self._last_event_at = event.at

    # --- events -----------------------------------------------------------------------------

    def _open(self, event: StudyOpened) -> list[Command]:
        if not self._is_opened:
            self._is_opened = True
            self._lifecycle = Lifecycle(event, self._make_pruner)
            self._dispatch = Dispatch(self._lifecycle)
        lost_at = self._last_event_at or event.at
        leased = self.leased
        had_master, self._has_master = self._has_master, not event.without_master
        lost = [name for name in self._records.running if name not in leased]
        commands = self._lifecycle.open(event, lost, lost_at=lost_at)
        commands += self._lifecycle.add(event.added)
        self._dispatch.open(event.config, has_sizes=not event.without_master)
        for name in leased:
            self._dispatch.started(self._records.running[name])
            if had_master or self._has_master:  # whose clock is another one than that of programs
                self._records.running[name].last_sign_at = event.at
        self.workers.handle(event)
        self._is_split_due = False
        searched = self._requests.searched + len(event.added)
        counts, first = self._records.counts, event.config.first
        is_tried = counts.get(TrialState.COMPLETE) or counts.get(TrialState.PRUNED)
        self._requests = SuggestionRequests(
            event.config.trials,
            ask_ahead=event.config.ask_ahead,
            searched=searched,
            first=counts.get(TrialState.FAILED, 0) + first if first and not is_tried else None,
        )
        self._paused_by = self._paused_by if event.keeps_pause else ""
        self._stop_reason = None
        self._finished = None
        return commands

    def _update_workers(self, event: RosterEvent) -> list[Command]:
        commands: list[Command] = []
        for worker in self.workers.handle(event):
            if worker.phase is Phase.REFUSED:
                continue
            if not worker.is_program:
                self._is_split_due = self._lifecycle.config.splits
            match worker.phase:
                case Phase.JOINED:
                    self._dispatch.worker_joined(worker)
                case Phase.DRAINING:
                    self._dispatch.cluster_state.follow(worker)
                case Phase.LEFT if isinstance(event, WorkerLeft):
                    commands += self._worker_left(worker, event.reason)
                case _:
                    pass
        return commands

    def _worker_left(self, worker: Worker, reason: str) -> list[Command]:
        commands: list[Command] = []
        for name in self._records.running_on(worker.name):
            attempt = self._records.running[name].attempt
            if not any(each in self.workers for each in attempt.placement.workers):
                # The order for it came to a worker that was about to leave.
                never_ran = worker.was_drained and attempt.started_at is None
                cause = Cause.RELEASED if never_ran else Cause.WORKER_LOST
                ending = Ending(cause, reason=reason)
                commands += self._end_attempt(worker.since, name, ending)
            # Else the executor ends the processes on the other workers, and then the attempt.
        self._dispatch.worker_left(worker)
        return commands

    def _suggested(self, event: Suggested) -> list[Command]:
        if event.first_number != len(self._records):
            raise InvalidTransition(
                f"suggestions from trial {event.first_number} on, expected {len(self._records)}"
            )
        self._requests.answered(event)
        return self._lifecycle.add(event.suggestions)

    def _user_requested(self, event: UserRequested) -> list[Command]:
        if event.refused:
            return []
        match event.action:
            case UserAction.STOP_TRIAL if event.trial is not None:
                self._dispatch.withdrawn(event.trial)
                return self._lifecycle.stop_trial(event.trial, by=event.by)
            case UserAction.ENQUEUE:
                self._added += event.added
            case UserAction.PAUSE:
                self._paused_by = event.by
            case UserAction.RESUME:
                self._paused_by = ""
            case _:
                pass
        return []

    def _parameters_used(self, event: ParametersUsed) -> list[Command]:
        commands: list[Command] = []
        if event.attempt in self._records.running:
            if event.declared:
                self._requests.space_grew()
                commands.append(GrowSpace(event.declared))
            commands += self._lifecycle.drew(event.attempt, event.values, event.unused)
        return commands

    def _end_attempt(self, at: float, name: AttemptId, ending: Ending) -> list[Command]:
        run, is_leased = self._records.running[name], self.is_leased(name)
        if run.halt is not Halt.STOP and not is_leased:  # else the whole study may be killed
            self.workers.attempt_ended(run.attempt, ending.cause, at)
        has_worker = run.attempt.placement.worker in self.workers and not is_leased
        is_of_node = ending.cause in FROM_OUTSIDE and has_worker and len(run.attempt.nodes) == 1
        self._records[name.trial].lost_on = run.attempt.node if is_of_node else ""
        self._dispatch.ended(name, ending.cause, at=at)
        commands, finish = self._lifecycle.end(at, name, ending)
        return commands if finish is None else [*commands, *self._stop(finish)]

    def _stop(self, finish: Finish) -> list[Command]:
        if self._stop_reason is not None:
            return []
        self._stop_reason = finish
        return self._lifecycle.stop_all()

    # --- what follows -----------------------------------------------------------------------

    @property
    def _question(self) -> ExcludeNode | DecideSplit | None:
        """What must be answered before anything starts; None for nothing."""
        if not self.may_start or self._finished:
            return None
        if node := self.workers.to_exclude:
            return ExcludeNode(node)
        if not self._is_split_due:
            return None
        joined = tuple(
            worker.capacity
            for worker in self.workers
            if worker.phase is Phase.JOINED and not worker.is_program
        )
        return DecideSplit(joined, self._trials_left, self._lifecycle.config.resources)

    @property
    def _trials_left(self) -> int | None:
        """How many trials still run or could begin, besides repeats that confirm later on."""
        total = self._lifecycle.config.trials
        if total is None:
            return None
        counts = self._records.counts.items()
        unfinished = sum(count for state, count in counts if not state.is_final)
        return unfinished + max(0, total - self._requests.searched)

    def _advance(self, at: float) -> list[Command]:
        records, dispatch = self._records, self._dispatch
        commands: list[Command] = []
        if self._finished:
            return commands  # what happens now waits for the next master
        if self._stop_reason is None and self._added and not self._requests.is_open:
            self._requests.added(len(self._added))
            commands += self._lifecycle.add(self._added)
            self._added = []
        if self.may_start:
            commands += dispatch.place(at, others_come=not self._requests.is_over)
            request = self._requests.next(
                len(records),
                waiting=records.waiting,
                running=len(records.running),
                free_slots=functools.partial(dispatch.slots_for_more, at=self._latest_at),
            )
            if request is not None:
                commands.append(request)
        if self._is_waiting_for_ends:
            return commands
        if self._stop_reason is None and self._paused_by:
            return commands
        if self._stop_reason is None and dispatch.is_affordable:
            if records.waiting or not self._requests.is_over:
                return commands
            more = self._lifecycle.promote(is_last=True)
            if not more:
                commands += self._lifecycle.prune_paused()
                more = self._lifecycle.train_again()
            if more:
                commands += [*more, *dispatch.place(at, others_come=False)]
                if records.running or dispatch.is_affordable:
                    return commands
        self._finished = self._finish()
        return [*commands, self._finished]

    @property
    def _is_waiting_for_ends(self) -> bool:
        """Whether attempts run that end before the study does.

        A master that stops leaves programs their trials, which they may tell after its end.
        """
        if self._has_master and self._stop_reason is not None:
            return any(not self.is_leased(name) for name in self._records.running)
        return bool(self._records.running)

    @property
    def may_start(self) -> bool:
        """Whether trials may start: the study neither stops nor is paused."""
        return self._stop_reason is None and not self._paused_by

    def _finish(self) -> Finish:
        """Return how the study ends, now that nothing runs and nothing else can start."""
        if self._stop_reason is not None:
            return self._stop_reason
        if not self._dispatch.is_affordable:
            return self._dispatch.budget.finish
        if self._requests.is_exhausted:
            tried = self._requests.searched
            all_tried = "the only configuration" if tried == 1 else f"all {tried} configurations"
            reason = f"{all_tried} of the search space {'was' if tried == 1 else 'were'} tried"
            return Finish(FinishReason.EXHAUSTED, reason)
        return Finish(FinishReason.DONE, all_over(len(self._records)))

    # --- out --------------------------------------------------------------------------------

    @property
    def leased(self) -> Mapping[AttemptId, LeasedAttempt]:
        """The running attempts of programs that asked for them, by their names."""
        return {
            name: LeasedAttempt(run.attempt, run.halt, run.is_told, lease, run.last_sign_at)
            for name, run in self._records.running.items()
            if (lease := self._lease_seconds(run)) is not None
        }

    def is_leased(self, name: AttemptId) -> bool:
        """Return whether an attempt runs in a program that asked for it."""
        run = self._records.running.get(name)
        return run is not None and self._lease_seconds(run) is not None

    def _lease_seconds(self, run: AttemptRecord) -> float | None:
        worker = self.workers.get(run.attempt.placement.worker)
        return None if worker is None else worker.lease_seconds

    @property
    def usual(self) -> Resources:
        """What a trial asks for by default."""
        return self._lifecycle.config.resources

    @property
    def is_asking(self) -> bool:
        """Whether the sampler has yet to answer."""
        return self._requests.is_open

    @property
    def is_stopping(self) -> bool:
        """Whether the study stops, or has stopped."""
        return self._stop_reason is not None

    @property
    def has_trials(self) -> bool:
        """Whether a worker that joins now may be given a trial."""
        if self._finished or not (self.may_start and self._dispatch.is_affordable):
            return False
        is_coming = bool(self._records.waiting) or not self._requests.is_over
        return is_coming or self._lifecycle.promotion(is_last=False) is not None

    @property
    def _confirmations(self) -> int:
        return len(self._records) - self._requests.searched

    def take_changes(self) -> tuple[list[Trial], list[Attempt]]:
        """Return the trials and attempts that changed since the last call."""
        return self._records.take_changes()

    @property
    def trials(self) -> Iterable[Trial]:
        """All trials, by number."""
        return (record.trial for record in self._records)

    @property
    def results(self) -> Iterable[Trial]:
        """The same as a sampler was told of them."""
        return (record.result for record in self._records)

    def trial(self, number: int) -> Trial | None:
        """Return one trial; None if there is no such number."""
        return self._records[number].trial if 0 <= number < len(self._records) else None

    @property
    def added(self) -> Sequence[Params]:
        """The configurations that users added and that are no trials yet, but will be."""
        return [each.params for each in self._added]

    def story(self, trial: int) -> tuple[str, ...]:
        """Return a trial's history, one line for each thing that happened to it."""
        return self._records[trial].story

    @property
    def front(self) -> tuple[Trial, ...]:
        """The best trials so far, sorted by the first objective; at most one for one objective."""
        return self._lifecycle.retention.ranking.best

    @property
    def kept(self) -> frozenset[int]:
        """The trials whose models are or may be needed."""
        return self._lifecycle.retention.ranking.kept

    @property
    def able_to_go_on(self) -> tuple[int, ...]:
        """The complete trials whose last checkpoint is kept, the best first."""
        if self._confirmations:
            return ()  # their means would be of trainings of different lengths
        return self._lifecycle.retention.able_to_go_on

    @property
    def checkpoints(self) -> tuple[int, ...]:
        """The complete trials whose last checkpoint is kept and not in use, the best first."""
        return self._lifecycle.retention.checkpoints

    @property
    def able_to_retry(self) -> tuple[int, ...]:
        """The failed trials that may begin again; a failed repeat is counted as such for good."""
        return tuple(
            trial.number
            for trial in self.trials
            if trial.state is TrialState.FAILED and trial.confirms is None
        )

    def last_step(self, trial: int) -> int:
        """Return the highest step that a trial has reported; 0 before the first report."""
        return self._records[trial].reached

    @property
    def ended_early(self) -> frozenset[int]:
        """The complete trials that ended by themselves before their last epoch."""
        return frozenset(self._lifecycle.retention.ended_early)

    @property
    def epochs(self) -> int | None:
        """The full training of a trial in epochs, by the last master; None if unknown."""
        return self._lifecycle.config.pruner.epochs

    def overspent(self, at: float) -> StopRequested | None:
        """Return the request to stop if the budget is spent at a time; None if it is not."""
        budget, stops = self._dispatch.budget, self._is_closed or self._stop_reason is not None
        if stops or not budget.is_over(max(0.0, at - self._latest_at)):
            return None
        return StopRequested(at, budget.finish.finish_reason, budget.finish.reason)

    def device_hours(self, device: Device) -> float:
        """Return how many hours of a device attempts have held."""
        return self._dispatch.budget.hours(device)

    @property
    def snapshot(self) -> StudySnapshot:
        """The study at this instant, for displays."""
        config, records = self._lifecycle.config, self._records
        cluster_state = self._dispatch.cluster_state
        searched = self._requests.searched
        total = None if config.trials is None else max(config.trials, searched)
        return StudySnapshot(
            goals=config.goals,
            budget_trials=None if total is None else total + self._confirmations,
            counts=records.counts,
            front=self.front,
            running=tuple(
                RunningAttempt(trial.trial, record.attempt, record.latest, trial.seconds)
                for record in records.running.values()
                for trial in (records[record.attempt.id.trial],)
            ),
            workers=len(self.workers),
            cpus=cluster_state.cpus,
            cpus_held=cluster_state.cpus_held,
            gpus=cluster_state.gpus,
            gpus_held=cluster_state.gpus_held,
            stall_reason=self._stall_reason,
            paused_by=self._paused_by,
            packing=self._dispatch.packing,
            packing_advice=self._dispatch.packing_advice,
            stopping="" if self._stop_reason is None else self._stop_reason.reason,
            interrupted=records.interrupted,
            usual=self.usual,
            sizes=self._dispatch.sizes(with_waiting=self.may_start, without=self.leased),
            unfit_nodes=self.workers.unfit_nodes,
            is_first=self._requests.first is not None,
        )

    @property
    def _stall_reason(self) -> str:
        if self._finished:
            return ""
        if self._paused_by:
            return f"paused by {self._paused_by}; `hptune resume` starts trials again"
        running = self._records.running
        if running and not self.has_trials and all(map(self.is_leased, running)):
            return "waiting for programs, which have the trials that are left, or for their leases"
        return self._dispatch.stall_reason(at=self._latest_at, refused=self.workers.refused)
