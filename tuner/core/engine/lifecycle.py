"""The course of the trials: what becomes of each by what is reported of it and how it ends."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from ..failure_policy import Action
from ..goals import Goals
from ..messages import Command, Finish, FinishReason, KeepBest, Start, Stop, StudyOpened, Tell
from ..pruner import Decision, PrunerMaker, never_prune
from ..resources import Placement
from ..seeds import training_seed
from ..trial import (
    CONFIRMS,
    NO_BETTER,
    AttemptId,
    Cause,
    Ending,
    Halt,
    Outcome,
    Params,
    Report,
    Suggestion,
    TrialState,
)
from .early_stopping import EarlyStopping
from .failures import MAX_FRUITLESS, FailureTally, answer_to, judged, outcome_of
from .records import AttemptRecord, TrialRecord, TrialRecords
from .retention import Retention

_WITH_THE_MASTER = (Cause.KILLED, Cause.WORKER_LOST)
"""So attempts end when all processes of a command are ended, and not its master alone."""


class Lifecycle:
    """Moves trials on: from waiting, through rests and retries, to their ends.

    It knows nothing of workers. Methods return what is to be done, in order.

    Args:
        opened: How the study was taken up first.
        make_pruner: Makes the pruner that a study's settings name.

    Attributes:
        records: Where every trial stands.
        keeping: Whose models are kept.
        config: The configuration of the study.
    """

    def __init__(self, opened: StudyOpened, make_pruner: PrunerMaker = never_prune) -> None:
        self.records = TrialRecords()
        self.keeping = Retention(opened.config.goals)
        self._early_stopping = EarlyStopping(make_pruner)
        self.config = opened.config
        self._failures = FailureTally(max_failures=None, same_failure_limit=0)

    @property
    def _goals(self) -> Goals:
        return self.config.goals

    def open(self, opened: StudyOpened, *, lost_at: float) -> list[Command]:
        """A master takes the study up; what ran for the one before was lost at that time."""
        commands: list[Command] = []
        for name in list(self.records.running):
            ending = Ending(Cause.MASTER_LOST, reason="the master that ran it is gone")
            commands += self.end(lost_at, name, ending)[0]
        config = self.config = opened.config
        front = self.keeping.front
        self._failures = FailureTally(
            max_failures=config.max_failures,
            same_failure_limit=config.same_failure_limit,
            any_success=bool(front),
        )
        if front:
            commands.append(KeepBest(front))
        for record, decision in self._early_stopping.renew(
            config.pruner, config.goals.goal, self.records
        ):
            commands += self._prune(record) if decision is Decision.STOP else self._go_on(record)
        for number in opened.go_on:
            # Whatever comes of it, the trial is no worse for that.
            self.records.reopen(self.records[number])
            commands += self._go_on(self.records[number])
        return [*commands, *self.keeping.set_limit(config.keep_checkpoints, opened.go_on)]

    # --- a trial begins ---------------------------------------------------------------------

    def add(self, suggestions: Iterable[Suggestion]) -> list[Command]:
        """Create a trial for each of these suggestions."""
        trials = [self.records.add(suggestion) for suggestion in suggestions]
        for trial in trials:
            self.keeping.expect(trial)
        return [Tell(trial) for trial in trials]

    def confirm(self) -> list[Command]:
        """The search is over: train the best configurations again, as often as is missing."""
        return self.add(
            Suggestion(
                trial.params, f"{CONFIRMS}{trial.number}", self.records[trial.number].resources
            )
            for trial in self.keeping.wanting(self.config.confirm, self.config.confirm_repeats)
        )

    def drew(self, name: AttemptId, params: Params) -> list[Command]:
        """A trial drew other hyperparameters than were suggested."""
        record = self.records[name.trial]
        self.records.put(record, replace(record.trial, params=dict(params)))
        return [Tell(record.trial)]

    def start(self, number: int, placement: Placement, *, node: str, at: float, why: str) -> Start:
        """A trial that waited has a place: how its next attempt begins.

        Args:
            number: The trial's.
            placement: What it holds.
            node: The machine that this is on.
            at: Now, in seconds since the epoch.
            why: Why it is given so much; empty where that is what was asked for.
        """
        run = self.records.start(number, placement, node=node, at=at, why=why)
        record = self.records[number]
        confirms = record.trial.confirms is not None
        return Start(
            attempt=run.attempt.id,
            params=record.trial.params,
            placement=placement,
            seed=training_seed(self.config.seed, number),
            # One that confirms may have to stand for its configuration.
            incumbents=() if confirms else self.keeping.scores,
            resume_from=record.last_step or None,
            keep_last=self.keeping.limit > 0 and not confirms,
        )

    # --- a trial runs -----------------------------------------------------------------------

    def report(self, name: AttemptId, report: Report) -> list[Command]:
        """A running attempt measured something."""
        run, record = self.records.running[name], self.records[name.trial]
        run.latest = report
        since = record.last_step
        if not record.take_note(report, self._goals) or record.trial.confirms is not None:
            return []
        commands: list[Command] = []
        if new := self._early_stopping.report(record, since=since):
            self.records.put(record, replace(record.trial, rungs={**record.trial.rungs, **new}))
            commands.append(Tell(record.trial))
        if run.told is None:
            match self._early_stopping.decide(record.trial):
                case Decision.CONTINUE:
                    pass
                case Decision.PAUSE:
                    commands.append(self._stop(run, Halt.PAUSE))
                case Decision.STOP:
                    commands.append(self._stop(run, Halt.PRUNE))
        return commands

    def let_go(self) -> list[Command]:
        """Let everything stop that runs."""
        running = self.records.running.values()
        return [self._stop(run, Halt.LET_GO) for run in running if run.told is None]

    def _stop(self, run: AttemptRecord, halt: Halt) -> Stop:
        run.told = halt
        return Stop(run.attempt.id, halt)

    # --- a trial rests ----------------------------------------------------------------------

    def promote(self, *, is_last: bool) -> list[Command]:
        """Let the paused trial wait that deserves a place most; empty if there is none."""
        number = self.promotion(is_last=is_last)
        return [] if number is None else self._go_on(self.records[number])

    def promotion(self, *, is_last: bool) -> int | None:
        """The paused trial that deserves a place most, if one does."""
        if not self.records.count(TrialState.PAUSED):
            return None
        return self._early_stopping.promotion(is_last=is_last)

    def give_up_paused(self) -> list[Command]:
        """Nothing that is to come will let them go on."""
        if not self.records.count(TrialState.PAUSED):
            return []
        paused = (each for each in self.records if each.trial.state is TrialState.PAUSED)
        return [command for record in paused for command in self._prune(record)]

    def _go_on(self, record: TrialRecord) -> list[Command]:
        self.records.wait(record)
        self._early_stopping.moved(record.trial)
        return [Tell(record.trial)]

    def _measure(self, record: TrialRecord) -> None:
        """A trial stops short of its end; its last report says how far it came."""
        if record.last is not None:
            last, trial = record.last, record.trial
            value = last.metrics[self._goals.goal.metric]
            measured = replace(trial, value=value, step=last.step, metrics=dict(last.metrics))
            self.records.put(record, self._goals.judged(measured))

    # --- a trial ends -----------------------------------------------------------------------

    def end(
        self, at: float, name: AttemptId, ending: Ending
    ) -> tuple[list[Command], Finish | None]:
        """An attempt is over; returns how the study is to finish as well, if it is to."""
        commands: list[Command] = []
        finish: Finish | None = None
        record = self.records[name.trial]
        ending = judged(ending, self._goals)
        answer = answer_to(ending.cause, self.config.failure_rules)
        if self.records.running[name].told is Halt.LET_GO and ending.cause in _WITH_THE_MASTER:
            outcome = Outcome.LOST  # by whatever ends the study; the trial had no part in it
        else:
            losses = record.losses.get(ending.cause, 0)
            record.losses[ending.cause] = losses + 1
            outcome = outcome_of(ending.cause, losses, answer)
        if self._is_fruitless(record, ending.cause):
            outcome = Outcome.ERRORED
            reason = (
                f"its worker had to go {MAX_FRUITLESS} times before it had reported anything; give "
                "it workers that live longer (as by a longer walltime), or let it report sooner"
            )
            ending = replace(ending, reason=reason)
        run = self.records.end(name, at, outcome, ending)
        record.ran_out(run.attempt, ending.cause)
        match outcome:
            case Outcome.FINISHED:
                commands = self._complete(record, run, ending)
            case Outcome.ERRORED:
                commands, finish = self._fail(record, ending)
                if answer is not None and answer.action is Action.STOP:
                    reason = f"{ending.reason or ending.cause} (--on-failure {answer})"
                    finish = Finish(FinishReason.TOO_MANY_FAILURES, reason, ending.detail)
                return commands, finish
            case Outcome.PRUNED:
                commands = self._prune(record)
            case Outcome.RELEASED | Outcome.LOST:
                # What was decided stays decided, however the attempt ended.
                if run.told is Halt.PRUNE:
                    commands = self._prune(record)
                elif run.told is Halt.PAUSE:
                    if record.before is None:  # else it stands by the result that it has
                        self._measure(record)
                    self._move(record, TrialState.PAUSED)
                    commands = [Tell(record.trial)]
                else:
                    self.records.wait(record)
        if ending.cause is Cause.NO_ROOM:
            # The next one would find none either, and each loses the work since its checkpoint.
            finish = Finish(FinishReason.NO_ROOM, ending.reason)
        return commands, finish

    def _is_fruitless(self, record: TrialRecord, cause: Cause) -> bool:
        """Whether a trial has come no further so often that it never will."""
        run = None if record.running is None else self.records.running[record.running]
        if run is None or run.attempt.started_at is None:
            return False  # it never began
        if run.latest is not None:
            record.fruitless = 0
        elif cause is Cause.RELEASED:
            record.fruitless += 1
        return record.fruitless >= MAX_FRUITLESS

    def _complete(self, record: TrialRecord, run: AttemptRecord, ending: Ending) -> list[Command]:
        self._failures.count_success()
        metrics = dict(ending.metrics)
        value = metrics[self._goals.goal.metric]
        measured = replace(record.trial, value=value, step=ending.step, metrics=metrics)
        measured = self._goals.judged(measured)
        if record.before is not None:
            before, after = record.before.score, measured.score
            if self._goals.weakly_dominates(before, after) or not self._goals.weakly_dominates(
                after, before
            ):
                self.records.put_attempt(run, replace(run.attempt, reason=NO_BETTER))
                return self._close_again(record)
            record.before = None
        self.records.put(record, measured)
        return self._is_over(record, TrialState.COMPLETE, ended_early=ending.ended_early)

    def _fail(self, record: TrialRecord, ending: Ending) -> tuple[list[Command], Finish | None]:
        if record.before is not None:
            return self._close_again(record), None
        reason = ending.reason or str(ending.cause)
        self.records.put(record, replace(record.trial, reason=reason, detail=ending.detail))
        commands = self._is_over(record, TrialState.FAILED)
        return commands, self._failures.count_failure(replace(ending, reason=reason))

    def _prune(self, record: TrialRecord) -> list[Command]:
        self._failures.count_success()
        if record.before is not None:
            return self._close_again(record)
        self._measure(record)
        return self._is_over(record, TrialState.PRUNED)

    def _close_again(self, record: TrialRecord) -> list[Command]:
        """A trial that trained on is what it was before."""
        self.records.restore(record)
        self._early_stopping.moved(record.trial)
        return [Tell(record.trial), *self.keeping.no_better(record.trial)]

    def _is_over(
        self, record: TrialRecord, state: TrialState, *, ended_early: bool | None = None
    ) -> list[Command]:
        self._move(record, state)
        if ended_early is None:
            # Nobody said so: neither a simulation does, nor did trials of long ago.
            epochs = self.config.pruner.epochs
            ended_early = epochs is not None and record.last_step < epochs
        return [Tell(record.trial), *self.keeping.over(record.trial, ended_early=ended_early)]

    def _move(self, record: TrialRecord, state: TrialState) -> None:
        self.records.move(record, state)
        self._early_stopping.moved(record.trial)

    # --- for the doubtful -------------------------------------------------------------------

    def validate(self, *, is_done: bool) -> None:
        """Check that the books add up.

        Args:
            is_done: Whether nothing is left to do.

        Raises:
            AssertionError: They do not.
        """
        self.records.validate()
        self.keeping.validate(record.result for record in self.records)
        if is_done and self.records.count(TrialState.PAUSED):
            raise AssertionError("all is done, and trials are paused")
        wanting = self.keeping.wanting(self.config.confirm, self.config.confirm_repeats)
        if is_done and wanting:
            raise AssertionError(f"all is done, and {wanting} are not confirmed")
