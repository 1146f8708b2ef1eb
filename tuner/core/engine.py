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

import heapq
import math
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import assert_never

from ..errors import InvalidTransition
from .failures import FailureTally, judged, outcome_of
from .messages import (
    Ask,
    AttemptEnded,
    AttemptStarted,
    Command,
    Discard,
    Event,
    Finish,
    GrowSpace,
    KeepBest,
    Measured,
    ParametersUsed,
    Reported,
    Start,
    Stop,
    StopRequested,
    StudyOpened,
    Suggested,
    Tell,
    Verdict,
    WorkerJoined,
    WorkerLeft,
)
from .picture import RunningAttempt, StudyPicture
from .placement import Places
from .pruner import Decision, NeverPrune, Pruner, PrunerMaker, never_prune
from .ranking import Ranking
from .resources import Placement, Resources
from .seeds import training_seed
from .trial import (
    CONFIRMS,
    NO_BETTER,
    Attempt,
    AttemptId,
    Cause,
    Ending,
    Halt,
    Outcome,
    Report,
    Suggestion,
    Trial,
    TrialState,
)


@dataclass(slots=True)
class _TrialRecord:
    trial: Trial
    losses: dict[Cause, int] = field(default_factory=dict)
    running: AttemptId | None = None
    # Of the reports with the goal's metric, the highest step and the best value; and, while the
    # trial is not over, the last report itself.
    last_step: int = 0
    best_value: float | None = None
    last: Report | None = None
    # What the trial was when it was complete, while it trains on.
    before: Trial | None = None


@dataclass(slots=True)
class _AttemptRecord:
    attempt: Attempt
    latest: Report | None = None
    told: Halt | None = None


_WITHOUT_RESULT = Trial(0, {}, "", TrialState.WAITING)


class Engine:
    """Decides, from what happened, what is to be done.

    `handle` is called by one thread, with events in the order in which they are written to the
    ledger. Late and repeated messages about attempts that are over (a worker thought dead that
    answers after all) are ignored.

    Args:
        make_pruner: Makes the pruner that a study's settings name.
    """

    def __init__(self, make_pruner: PrunerMaker = never_prune) -> None:
        self._make_pruner = make_pruner
        self._pruner: Pruner = NeverPrune()
        self._trials: list[_TrialRecord] = []
        # Those that have run before come first, then by number.
        self._waiting: list[tuple[bool, int]] = []
        self._running: dict[AttemptId, _AttemptRecord] = {}
        self._running_on: dict[str, dict[AttemptId, None]] = {}
        self._places = Places(Resources())
        self._counts = dict.fromkeys(TrialState, 0)
        self._ranking: Ranking | None = None
        # The best complete trials, best first, whose last checkpoints are kept.
        self._checkpoints: list[int] = []
        self._confirmations = 0
        self._opened: StudyOpened | None = None
        self._asked = 0
        self._exhausted = False
        self._grown = False
        self._ending: Finish | None = None
        self._finished = False
        self._trials_at_opening = 0
        self._failures = FailureTally(max_failures=None, same_failure_limit=0)
        self._latest_at = 0.0
        self._active_seconds = 0.0
        self._changed_trials: set[int] = set()
        self._changed_attempts: dict[AttemptId, Attempt] = {}

    # --- the door in ------------------------------------------------------------------------

    def handle(self, event: Event) -> list[Command]:
        """Take in what happened and answer with what is to be done, in that order.

        Raises:
            InvalidTransition: The event cannot happen in this state; a bug in hptune.
        """
        if self._opened is None and not isinstance(event, StudyOpened):
            raise InvalidTransition(f"{type(event).__name__} before the study was opened")
        commands: list[Command] = []
        match event:
            case StudyOpened():
                self._open(event, commands)
            case WorkerJoined(worker=worker, node=node, capacity=capacity):
                if worker in self._places:
                    raise InvalidTransition(f"worker {worker} joined twice")
                self._places.add(worker, node, capacity)
            case WorkerLeft():
                self._worker_left(event, commands)
            case Suggested():
                self._suggested(event, commands)
            case AttemptStarted(at=at, attempt=name):
                if record := self._running.get(name):
                    self._put_attempt(record, replace(record.attempt, started_at=at))
            case Reported(attempt=name, report=report):
                if record := self._running.get(name):
                    record.latest = report
                    self._compare(record, report, commands)
            case Measured(attempt=name, usage=usage):
                if record := self._running.get(name):
                    self._put_attempt(record, replace(record.attempt, usage=usage))
            case ParametersUsed():
                self._parameters_used(event, commands)
            case AttemptEnded(at=at, attempt=name, ending=ending):
                if name in self._running:
                    self._end_attempt(at, name, ending, commands)
            case StopRequested(verdict=verdict, reason=reason):
                self._let_go(Finish(verdict, reason), commands)
            case _:
                assert_never(event)
        if isinstance(event, StudyOpened):
            self._latest_at = event.at
        elif event.at > self._latest_at:
            self._active_seconds += event.at - self._latest_at
            self._latest_at = event.at
        self._advance(event.at, commands)
        return commands

    # --- events -----------------------------------------------------------------------------

    def _open(self, event: StudyOpened, commands: list[Command]) -> None:
        for name in list(self._running):
            ending = Ending(Cause.MASTER_LOST, reason="the master that ran it is gone")
            self._end_attempt(event.at, name, ending, commands)
        before, self._opened = self._opened, event
        if self._ranking is None:
            self._ranking = Ranking(event.aims)
        self._running_on = {}
        self._places = Places(event.resources)
        self._asked = 0
        self._exhausted = self._grown = False
        self._ending = None
        self._finished = False
        self._trials_at_opening = len(self._trials)
        self._failures = FailureTally(
            max_failures=event.max_failures,
            same_failure_limit=event.same_failure_limit,
            any_success=bool(self.front),
        )
        if self.front:
            commands.append(KeepBest(self.front))
        if before is None or (before.pruner, before.goal) != (event.pruner, event.goal):
            self._renew_pruner(commands)
        for number in event.go_on:
            self._reopen(self._trials[number], commands)
        commands.extend(Discard(number) for number in sorted(self._drop_checkpoints()))

    def _worker_left(self, event: WorkerLeft, commands: list[Command]) -> None:
        if event.worker not in self._places:
            return
        for name in list(self._running_on.get(event.worker, ())):
            ending = Ending(Cause.WORKER_LOST, reason=event.reason)
            self._end_attempt(event.at, name, ending, commands)
        self._running_on.pop(event.worker, None)
        self._places.remove(event.worker)

    def _suggested(self, event: Suggested, commands: list[Command]) -> None:
        if event.first_number != len(self._trials):
            raise InvalidTransition(
                f"suggestions from trial {event.first_number} on, expected {len(self._trials)}"
            )
        self._asked = 0
        # An answer to a question from before the space grew knows nothing of what is new.
        self._exhausted = self._exhausted or (event.exhausted and not self._grown)
        self._grown = False
        for suggestion in event.suggestions:
            self._add_trial(suggestion, commands)

    def _add_trial(self, suggestion: Suggestion, commands: list[Command]) -> None:
        number = len(self._trials)
        trial = Trial(number, suggestion.params, suggestion.origin, TrialState.WAITING)
        self._trials.append(_TrialRecord(trial))
        self._counts[TrialState.WAITING] += 1
        self._changed_trials.add(number)
        heapq.heappush(self._waiting, (True, number))
        self._ranks.expect(trial)
        commands.append(Tell(trial))

    def _parameters_used(self, event: ParametersUsed, commands: list[Command]) -> None:
        if event.attempt not in self._running:
            return
        record = self._trials[event.attempt.trial]
        self._put_trial(record, replace(record.trial, params=dict(event.values)))
        if event.declared:
            self._exhausted = False
            self._grown = bool(self._asked)
            commands.append(GrowSpace(event.declared))
        commands.append(Tell(record.trial))

    # --- endings ----------------------------------------------------------------------------

    def _end_attempt(
        self, at: float, name: AttemptId, ending: Ending, commands: list[Command]
    ) -> None:
        record = self._running.pop(name)
        del self._running_on[record.attempt.placement.worker][name]
        trial = self._trials[name.trial]
        trial.running = None
        self._places.give_back(record.attempt.placement)
        ending = judged(ending, self._config.aims)
        losses = trial.losses.get(ending.cause, 0)
        trial.losses[ending.cause] = losses + 1
        outcome = outcome_of(ending.cause, losses)
        ended = replace(
            record.attempt, ended_at=at, outcome=outcome, reason=ending.reason or str(ending.cause)
        )
        self._put_attempt(record, ended)
        match outcome:
            case Outcome.FINISHED:
                self._complete(trial, record, ending, commands)
            case Outcome.ERRORED:
                self._fail(trial, ending, commands)
            case Outcome.PRUNED:
                self._prune(trial, commands)
            case Outcome.RELEASED | Outcome.LOST:
                # What was decided stays decided, however the attempt ended.
                if record.told is Halt.PRUNE:
                    self._prune(trial, commands)
                elif record.told is Halt.PAUSE:
                    self._rest(trial, TrialState.PAUSED)
                    commands.append(Tell(trial.trial))
                else:
                    self._wait(trial)
        if ending.cause is Cause.NO_ROOM:
            # The next one would find none either, and each loses the work since its checkpoint.
            self._let_go(Finish(Verdict.NO_ROOM, ending.reason), commands)

    def _complete(
        self,
        trial: _TrialRecord,
        record: _AttemptRecord,
        ending: Ending,
        commands: list[Command],
    ) -> None:
        self._failures.count_success()
        aims = self._config.aims
        metrics = dict(ending.metrics)
        value = metrics[aims.goal.metric]
        measured = replace(trial.trial, value=value, step=ending.step, metrics=metrics)
        measured = aims.judged(measured)
        if trial.before is not None:
            before = trial.before.score
            if aims.covers(before, measured.score) or not aims.covers(measured.score, before):
                self._put_attempt(record, replace(record.attempt, reason=NO_BETTER))
                self._close_again(trial, commands)
                return
            trial.before = None
        self._put_trial(trial, measured)
        self._set_state(trial, TrialState.COMPLETE)
        commands.append(Tell(trial.trial))
        self._rank(trial.trial, commands)

    def _rank(self, trial: Trial, commands: list[Command]) -> None:
        """A trial is over: keep its model if it is one of the best, and no other's."""
        best, kept = self.front, self._ranks.kept
        self._ranks.over(trial)
        if self.front != best:
            commands.append(KeepBest(self.front))
        if trial.state is TrialState.COMPLETE and trial.confirms is None:
            self._checkpoints = sorted({*self._checkpoints, trial.number}, key=self._standing)
        needless = {*kept, trial.number} - self._ranks.kept
        needless |= self._drop_checkpoints()
        commands.extend(
            Discard(number, number in self._checkpoints)
            for number in sorted(needless)
            if self._trials[number].before is None  # else it trains on
        )

    def _standing(self, number: int) -> tuple[float, float, int]:
        trial = self._trials[number].before or self._trials[number].trial
        return trial.violation, self._config.aims.first_goal_key(trial.score), number

    def _drop_checkpoints(self) -> set[int]:
        """Keep no more checkpoints of complete trials than are wanted; returns whose are not."""
        dropped = self._checkpoints[self._config.keep_checkpoints :]
        del self._checkpoints[self._config.keep_checkpoints :]
        return {n for n in dropped if self._trials[n].before is None} - self._ranks.kept

    def _reopen(self, trial: _TrialRecord, commands: list[Command]) -> None:
        """A complete trial trains on; whatever comes of it, it is no worse for that."""
        trial.before = trial.trial
        self._counts[TrialState.COMPLETE] -= 1
        self._counts[TrialState.RUNNING] += 1
        self._put_trial(trial, replace(trial.trial, state=TrialState.RUNNING))
        self._go_on(trial, commands)

    def _close_again(self, trial: _TrialRecord, commands: list[Command]) -> None:
        """The trial is what it was before it trained on."""
        before, trial.before = trial.before, None
        if before is None:
            raise InvalidTransition(f"trial {trial.trial.number} was not complete before")
        now = trial.trial
        self._put_trial(trial, replace(before, state=now.state, attempts=now.attempts))
        self._put_trial(trial, replace(trial.trial, params=now.params, rungs=now.rungs))
        self._set_state(trial, TrialState.COMPLETE)
        commands.append(Tell(trial.trial))
        if before.number not in self._ranks.kept:
            commands.append(Discard(before.number, before.number in self._checkpoints))

    def _fail(self, trial: _TrialRecord, ending: Ending, commands: list[Command]) -> None:
        if trial.before is not None:
            self._close_again(trial, commands)
            return
        reason = ending.reason or str(ending.cause)
        self._put_trial(trial, replace(trial.trial, reason=reason, detail=ending.detail))
        self._set_state(trial, TrialState.FAILED)
        commands.append(Tell(trial.trial))
        self._rank(trial.trial, commands)
        finish = self._failures.count_failure(replace(ending, reason=reason))
        if finish is not None:
            self._let_go(finish, commands)

    def _let_go(self, finish: Finish, commands: list[Command]) -> None:
        if self._ending is None:
            self._ending = finish
            for record in self._running.values():
                self._stop(record, Halt.LET_GO, commands)

    def _stop(self, record: _AttemptRecord, halt: Halt, commands: list[Command]) -> None:
        if record.told is None:
            record.told = halt
            commands.append(Stop(record.attempt.id, halt))

    # --- early stopping ---------------------------------------------------------------------

    def _compare(self, run: _AttemptRecord, report: Report, commands: list[Command]) -> None:
        goal = self._config.goal
        value = report.metrics.get(goal.metric, math.nan)
        trial = self._trials[run.attempt.id.trial]
        # A trial that had to begin anew says nothing new until it is as far as it was.
        if not math.isfinite(value) or report.step <= trial.last_step:
            return
        reached, trial.last_step, trial.last = trial.last_step, report.step, report
        if goal.direction.better(value, trial.best_value):
            trial.best_value = value
        if trial.trial.confirms is not None:
            return  # it is to be measured, however poor it is
        if self._config.aims.broken(report.metrics):
            return  # it is no measure for those that keep the constraints
        number, best = trial.trial.number, trial.best_value or 0.0
        self._pruner.report(number, report.step, best)
        if new := {rung: best for rung in self._pruner.rungs if reached < rung <= report.step}:
            self._put_trial(trial, replace(trial.trial, rungs={**trial.trial.rungs, **new}))
            commands.append(Tell(trial.trial))
        if run.told is None:
            match self._pruner.decide(number):
                case Decision.CONTINUE:
                    self._pruner.moved(number, TrialState.RUNNING)
                case Decision.PAUSE:
                    self._stop(run, Halt.PAUSE, commands)
                case Decision.STOP:
                    self._stop(run, Halt.PRUNE, commands)

    def _prune(self, trial: _TrialRecord, commands: list[Command]) -> None:
        self._failures.count_success()
        if trial.before is not None:
            self._close_again(trial, commands)
            return
        self._rest(trial, TrialState.PRUNED)
        commands.append(Tell(trial.trial))
        self._rank(trial.trial, commands)

    def _rest(self, trial: _TrialRecord, state: TrialState) -> None:
        """A trial stops short of its end; its last report says how far it came."""
        if trial.last is not None:
            last = trial.last
            value = last.metrics[self._config.goal.metric]
            measured = replace(trial.trial, value=value, step=last.step, metrics=dict(last.metrics))
            self._put_trial(trial, self._config.aims.judged(measured))
        self._set_state(trial, state)

    def _wait(self, trial: _TrialRecord) -> None:
        """A trial that was not new is to run; it has no result until it has, or its old one."""
        result = trial.before or _WITHOUT_RESULT
        names = ("value", "step", "metrics", "further", "violation")
        had = {name: getattr(result, name) for name in names}
        self._put_trial(trial, replace(trial.trial, **had))
        self._set_state(trial, TrialState.WAITING)
        heapq.heappush(self._waiting, (False, trial.trial.number))

    def _promote(self, commands: list[Command], *, is_last: bool) -> bool:
        """Let the paused trial wait that deserves a place most; False if there is none."""
        if not self._counts[TrialState.PAUSED]:
            return False
        number = self._pruner.promotion(is_last=is_last)
        if number is None:
            return False
        self._go_on(self._trials[number], commands)
        return True

    def _go_on(self, trial: _TrialRecord, commands: list[Command]) -> None:
        self._wait(trial)
        self._pruner.moved(trial.trial.number, TrialState.WAITING)
        commands.append(Tell(trial.trial))

    def _renew_pruner(self, commands: list[Command]) -> None:
        """Begin to prune by other settings: all that is known is told to another pruner."""
        self._pruner = self._make_pruner(self._config.pruner, self._config.goal)
        for record in self._trials:
            if record.trial.confirms is not None:
                continue
            for step, value in record.trial.rungs.items():
                self._pruner.report(record.trial.number, step, value)
            if record.best_value is not None:
                self._pruner.report(record.trial.number, record.last_step, record.best_value)
            if record.trial.state is not TrialState.PAUSED:
                self._pruner.moved(record.trial.number, record.trial.state)
        for record in self._trials:
            if record.trial.state is not TrialState.PAUSED:
                continue
            match self._pruner.decide(record.trial.number):
                case Decision.CONTINUE:
                    self._go_on(record, commands)
                case Decision.PAUSE:
                    self._pruner.moved(record.trial.number, TrialState.PAUSED)
                case Decision.STOP:
                    self._prune(record, commands)

    # --- what follows -----------------------------------------------------------------------

    def _advance(self, at: float, commands: list[Command]) -> None:
        if self._ending is None:
            self._place_waiting(at, commands)
            self._ask_for_more(commands)
        if self._finished or self._running:
            return
        if self._ending is not None:
            self._finished = True
            commands.append(self._ending)
        elif not self._waiting and not self._asked and not self._left_to_ask(1):
            if self._promote(commands, is_last=True):
                self._place_waiting(at, commands)
                return
            self._give_up_paused(commands)
            if self._confirm(commands):
                self._place_waiting(at, commands)
                return
            self._finished = True
            if self._exhausted and (self._budget is None or self._searched < self._budget):
                reason = f"all {self._searched} configurations of the search space were tried"
                commands.append(Finish(Verdict.EXHAUSTED, reason))
            else:
                commands.append(Finish(Verdict.DONE, f"{len(self._trials)} trials are over"))

    def _give_up_paused(self, commands: list[Command]) -> None:
        if self._counts[TrialState.PAUSED]:
            for record in self._trials:
                if record.trial.state is TrialState.PAUSED:
                    self._prune(record, commands)

    def _confirm(self, commands: list[Command]) -> bool:
        """The search is over: train the best configurations again, as often as is missing."""
        config = self._config
        wanting = self._ranks.wanting(config.confirm, config.confirm_repeats)
        for trial in wanting:
            self._add_trial(Suggestion(trial.params, f"{CONFIRMS}{trial.number}"), commands)
        self._confirmations += len(wanting)
        return bool(wanting)

    def _place_waiting(self, at: float, commands: list[Command]) -> None:
        while self._waiting or self._counts[TrialState.PAUSED]:
            if not self._places.rooms(at_most=1):
                return
            self._promote(commands, is_last=False)
            placement = self._places.take() if self._waiting else None
            if placement is None:
                return
            _, number = heapq.heappop(self._waiting)
            commands.append(self._start(at, number, placement))

    def _start(self, at: float, number: int, placement: Placement) -> Start:
        record = self._trials[number]
        name = AttemptId(number, record.trial.attempts)
        attempt = Attempt(name, placement, self._places.node(placement.worker), placed_at=at)
        self._running[name] = _AttemptRecord(attempt)
        self._running_on.setdefault(placement.worker, {})[name] = None
        self._changed_attempts[name] = attempt
        record.running = name
        self._put_trial(record, replace(record.trial, attempts=record.trial.attempts + 1))
        self._set_state(record, TrialState.RUNNING)
        return Start(
            attempt=name,
            params=record.trial.params,
            placement=placement,
            seed=training_seed(self._config.seed, number),
            # One that confirms may have to stand for its configuration.
            incumbents=() if record.trial.confirms is not None else self._ranks.scores,
            resume_from=record.last_step or None,
            keep_last=self._config.keep_checkpoints > 0 and record.trial.confirms is None,
        )

    def _ask_for_more(self, commands: list[Command]) -> None:
        # While a trial waits, there is no room for it.
        spare = self._to_keep_ready() - len(self._waiting)
        if self._asked or (self._waiting and spare <= 0):
            return
        left = self._left_to_ask(len(self._places) * 1_000_000)
        if not left:
            return
        rooms = 0 if self._waiting else self._places.rooms(at_most=left)
        self._asked = min(rooms + spare, left)
        if self._asked:
            first = len(self._trials)
            commands.append(Ask(tuple(range(first, first + self._asked))))

    def _to_keep_ready(self) -> int:
        running = len(self._running)
        return math.ceil(self._config.ask_ahead * running) if running > 1 else 0

    def _left_to_ask(self, at_most: int) -> int:
        if self._exhausted:
            return 0
        return at_most if self._budget is None else max(0, self._budget - self._searched)

    # --- books ------------------------------------------------------------------------------

    @property
    def _config(self) -> StudyOpened:
        if self._opened is None:
            raise InvalidTransition("the study was not opened")
        return self._opened

    @property
    def _ranks(self) -> Ranking:
        if self._ranking is None:
            raise InvalidTransition("the study was not opened")
        return self._ranking

    @property
    def _budget(self) -> int | None:
        return self._config.trials

    @property
    def _searched(self) -> int:
        """How many trials were suggested; the others confirm."""
        return len(self._trials) - self._confirmations

    def _put_trial(self, record: _TrialRecord, trial: Trial) -> None:
        record.trial = trial
        self._changed_trials.add(trial.number)

    def _set_state(self, record: _TrialRecord, state: TrialState) -> None:
        before = record.trial.state
        if before.is_final:
            raise InvalidTransition(
                f"trial {record.trial.number}: {before} -> {state}", (repr(record.trial),)
            )
        self._counts[before] -= 1
        self._counts[state] += 1
        self._put_trial(record, replace(record.trial, state=state))
        # That it was let through is told where it is decided; a retry has no part in that.
        if record.trial.confirms is None and (state is TrialState.PAUSED or state.is_final):
            self._pruner.moved(record.trial.number, state)
        if state.is_final:
            record.last = None

    def _put_attempt(self, record: _AttemptRecord, attempt: Attempt) -> None:
        record.attempt = attempt
        self._changed_attempts[attempt.id] = attempt

    # --- the doors out ----------------------------------------------------------------------

    def take_changes(self) -> tuple[list[Trial], list[Attempt]]:
        """The trials and attempts that changed since the last call."""
        trials = [self._trials[number].trial for number in sorted(self._changed_trials)]
        attempts = list(self._changed_attempts.values())
        self._changed_trials.clear()
        self._changed_attempts.clear()
        return trials, attempts

    @property
    def trials(self) -> Iterable[Trial]:
        """All trials, by number."""
        return (record.trial for record in self._trials)

    @property
    def front(self) -> tuple[Trial, ...]:
        """The best trials so far, the first goal's best first; one at most for one goal."""
        return () if self._ranking is None else self._ranking.best

    @property
    def kept(self) -> frozenset[int]:
        """The trials whose models are needed, or may be."""
        return frozenset() if self._ranking is None else self._ranking.kept

    @property
    def able_to_go_on(self) -> tuple[int, ...]:
        """The complete trials whose last checkpoint is kept, the best first."""
        if self._confirmations:
            return ()  # their means would be of trainings of different lengths
        state = TrialState.COMPLETE
        return tuple(n for n in self._checkpoints if self._trials[n].trial.state is state)

    @property
    def epochs(self) -> int | None:
        """The full training of a trial, in epochs, as the last master had it, if there was one."""
        return None if self._opened is None else self._opened.pruner.epochs

    @property
    def best(self) -> Trial | None:
        """The best trial so far, by the first goal."""
        return self.front[0] if self.front else None

    @property
    def active_seconds(self) -> float:
        """How long masters have worked on this study; the time between them does not count."""
        return self._active_seconds

    @property
    def picture(self) -> StudyPicture:
        """The study as it stands, for those who show it."""
        config = self._config
        return StudyPicture(
            aims=config.aims,
            budget_trials=None if config.trials is None else config.trials + self._confirmations,
            counts={state: count for state, count in self._counts.items() if count},
            front=self.front,
            running=tuple(
                RunningAttempt(self._trials[name.trial].trial, record.attempt, record.latest)
                for name, record in self._running.items()
            ),
            workers=len(self._places),
            cpus=self._places.cpus,
            cpus_held=self._places.cpus_held,
            gpus=self._places.gpus,
            gpus_held=self._places.gpus_held,
            notice=self._notice(),
            stopping="" if self._ending is None else self._ending.reason,
        )

    def _notice(self) -> str:
        if self._running or self._finished:
            return ""
        if not len(self._places):
            return "waiting for the first worker"
        wanted = self._config.resources
        if not self._places.could_ever_hold_one():
            gpus = f" and {wanted.gpus} GPUs" if wanted.gpus else ""
            memory = f", {wanted.memory_bytes / 1e9:.3g} GB" if wanted.memory_bytes else ""
            return (
                f"no worker can hold a trial of {wanted.cpus} cores{gpus}{memory}: "
                "waiting for a larger one (or ask for less)"
            )
        return ""

    def validate(self) -> None:
        """Check every invariant; for tests and for the doubtful.

        Raises:
            AssertionError: One of them does not hold.
        """
        states = [record.trial.state for record in self._trials]
        for state in TrialState:
            if self._counts[state] != states.count(state):
                raise AssertionError(f"{state}: counted {self._counts[state]}")
        waiting = [n for n, state in enumerate(states) if state is TrialState.WAITING]
        if sorted(number for _, number in self._waiting) != waiting:
            raise AssertionError(f"waiting {sorted(self._waiting)}, states say {waiting}")
        running = {record.running for record in self._trials if record.running is not None}
        if running != set(self._running):
            raise AssertionError(f"running {set(self._running)}, trials say {running}")
        for name, run in self._running.items():
            if name not in self._running_on[run.attempt.placement.worker]:
                raise AssertionError(f"attempt {name} is not known to run on its worker")
        if sum(map(len, self._running_on.values())) != len(self._running):
            raise AssertionError(f"more runs on workers than runs: {self._running_on}")
        for number, record in enumerate(self._trials):
            trial = record.trial
            if trial.number != number:
                raise AssertionError(f"trial {trial.number} stands at {number}")
            if (trial.state is TrialState.RUNNING) != (record.running is not None):
                raise AssertionError(f"trial {number} is {trial.state}, runs {record.running}")
            rests = trial.state in (TrialState.PRUNED, TrialState.PAUSED) and record.last_step
            has_result = trial.state is TrialState.COMPLETE or record.before is not None
            if (has_result or bool(rests)) != (trial.value is not None):
                raise AssertionError(f"trial {number} is {trial.state} with {trial.value}")
            if any(rung > record.last_step for rung in trial.rungs):
                raise AssertionError(f"trial {number} has reached {trial.rungs}")
        self._places.validate([record.attempt.placement for record in self._running.values()])
        self._validate_ranks()
        if self._opened and self._ending is None and self._places.rooms(at_most=1):
            if self._waiting:
                raise AssertionError(f"{self._waiting} wait, and there is room")
            if (
                self._counts[TrialState.PAUSED]
                and self._pruner.promotion(is_last=False) is not None
            ):
                raise AssertionError("a paused trial could go on, and there is room")
        if self._finished and self._running:
            raise AssertionError("finished with attempts running")
        if self._finished and self._ending is None and self._counts[TrialState.PAUSED]:
            raise AssertionError("all is done, and trials are paused")
        budget = None if self._opened is None else self._opened.trials
        if budget is not None and self._searched > max(budget, self._trials_at_opening):
            raise AssertionError(f"{self._searched} trials of {budget}")

    def _validate_ranks(self) -> None:
        trials = [record.before or record.trial for record in self._trials]
        if sum(trial.confirms is not None for trial in trials) != self._confirmations:
            raise AssertionError(f"{self._confirmations} confirmations were counted")
        complete = [trial for trial in trials if trial.state is TrialState.COMPLETE]
        scores = {(trial.number, trial.score) for trial in complete}
        for trial in self.front:
            if (trial.number, trial.score) not in scores or trial.number not in self._ranks.kept:
                raise AssertionError(f"trial {trial.number} is one of the best, and not complete")
        if self._opened is None:
            return
        wanting = self._ranks.wanting(self._opened.confirm, self._opened.confirm_repeats)
        if self._finished and self._ending is None and wanting:
            raise AssertionError(f"all is done, and {wanting} are not confirmed")
        if self._ranks.confirmed:
            return
        aims, best = self._opened.aims, [trial.score for trial in self.front]
        for trial in complete:
            if trial.confirms is None and aims.joins(trial.score, best):
                raise AssertionError(f"trial {trial.number} is better than the best, {self.front}")
