"""The lifecycle of the trials: what follows for each from its reports and from its ends."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from ..attempt import NO_BETTER, AttemptId, Cause, Ending, Halt, Outcome, Report, known_sum
from ..goals import ENERGY, JOULES_PER_KWH, Goals
from ..messages import Command, Continue, Finish, KeepBest, Start, Stop, StudyOpened, Tell
from ..pruner import Decision, PrunerMaker
from ..resources import Placement
from ..seeds import training_seed
from ..trial import CONFIRMS, Params, Suggestion, Trial, TrialState
from .early_stopping import EarlyStopping
from .records import AttemptRecord, TrialEvent, TrialRecord, TrialRecords
from .retention import Retention
from .retry_policy import OUTCOMES, EndDecision, FailureTally, checked, decide

_STOPPED = (Outcome.PRUNED, Outcome.RELEASED)

Followed = tuple[list[Command], Finish | None]
"""What is to be done, and how the study ends by it; None if it continues."""


class Lifecycle:
    """Moves trials on: from waiting, through pauses and retries, to their ends.

    It knows nothing of workers. Its methods return what is to be done, in order.

    Attributes:
        records: The trials and the running attempts.
        retention: The trials whose models and checkpoints are kept.
        config: The configuration of the study.
    """

    def __init__(self, opened: StudyOpened, make_pruner: PrunerMaker) -> None:
        self.records = TrialRecords()
        self.records.at = opened.at
        self.retention = Retention(opened.config.goals)
        self._early_stopping = EarlyStopping(make_pruner)
        self.config = opened.config
        self._failures = FailureTally(max_failures=None, same_failure_limit=0)

    @property
    def _goals(self) -> Goals:
        return self.config.goals

    def open(
        self, opened: StudyOpened, lost: Sequence[AttemptId], *, lost_at: float
    ) -> list[Command]:
        """Begin with a new master.

        Args:
            opened: The opening.
            lost: The attempts that ended with the last master.
            lost_at: When that was, in seconds since the epoch.
        """
        commands: list[Command] = []
        for name in lost:
            ending = Ending(Cause.MASTER_LOST, reason="the master that ran it is gone")
            if opened.was_handed_over:
                ending = Ending(Cause.RELEASED, reason="the job of its master was requeued")
            commands += self.end(lost_at, name, ending)[0]
        config = self.config = opened.config
        if not opened.was_handed_over:
            for record in self.records:
                record.releases_without_progress = 0  # the user may have asked for longer jobs
        front = self.retention.ranking.best
        self._failures = FailureTally(
            max_failures=config.max_failures,
            same_failure_limit=config.same_failure_limit,
            any_success=any(r.result.state.is_final and r.result.values for r in self.records),
            is_resumed=len(self.records) > 0,
        )
        if front:
            commands.append(KeepBest(front))
        for number in opened.retried:
            record = self.records[number]
            self.records.begin_again(record)
            commands.append(self._moved(record))
        if opened.retried:
            self._early_stopping.forget()
        for record, decision in self._early_stopping.renew(
            config.pruner, config.goals.objectives, self.records
        ):
            commands += self._prune(record) if decision is Decision.STOP else self._promote(record)
        for number in opened.go_on:
            record = self.records[number]
            self.records.reopen(record)
            commands.append(self._moved(record))
        return [*commands, *self.retention.set_limit(config.keep_checkpoints, opened.go_on)]

    # --- a trial begins ---------------------------------------------------------------------

    def add(self, suggestions: Iterable[Suggestion]) -> list[Command]:
        """Create a trial for each suggestion."""
        trials = [self.records.add(suggestion) for suggestion in suggestions]
        for trial in trials:
            self.retention.ranking.expect(trial)
        return [Tell(trial) for trial in trials]

    def train_again(self) -> list[Command]:
        """Create the repeats that confirm the best configurations, once the search is over."""
        return self.add(
            Suggestion(
                trial.params, f"{CONFIRMS}{trial.number}", self.records[trial.number].resources
            )
            for trial in self.to_confirm()
        )

    def to_confirm(self) -> list[Trial]:
        """Return the trials to train again now, each once for every missing repeat."""
        config = self.config
        return self.retention.ranking.to_confirm(config.confirm, config.confirm_repeats)

    def drew(self, name: AttemptId, params: Params, unused: tuple[str, ...]) -> list[Command]:
        """Record that an attempt drew other hyperparameters than were suggested, or fewer."""
        record = self.records[name.trial]
        self.records.put(record, replace(record.trial, params=dict(params), unused=unused))
        return [Tell(record.result)]

    def start(
        self, number: int, placement: Placement, *, nodes: tuple[str, ...], at: float, why: str
    ) -> Start:
        """Begin the next attempt of a waiting trial.

        Args:
            number: The trial's number.
            placement: What the attempt holds.
            nodes: The machine of each rank of the placement.
            at: The present time, in seconds since the epoch.
            why: Why it is granted this much; empty if that is what was asked for.
        """
        epochs = self.config.pruner.epochs
        run = self.records.start(number, placement, nodes=nodes, at=at, why=why, epochs=epochs)
        record = self.records[number]
        confirms = record.trial.confirms is not None
        return Start(
            attempt=run.attempt.id,
            params=record.trial.params,
            placement=placement,
            seed=training_seed(self.config.seed, number),
            # A repeat keeps its model: it may have to stand for its configuration.
            incumbents=() if confirms else self.retention.ranking.scores,
            resume_from=record.reached or None,
            keep_last=self.retention.limit > 0 and not confirms,
            rungs=() if confirms else self._early_stopping.rungs,
        )

    # --- a trial runs -----------------------------------------------------------------------

    def report(self, name: AttemptId, report: Report) -> list[Command]:
        """Take in a report of a running attempt, which is answered by its order to stop."""
        run, record = self.records.running[name], self.records[name.trial]
        if run.latest is None:
            run.first_step = report.step
            record.first_step = report.step if record.first_step is None else record.first_step
        run.latest, run.last_sign_at = report, self.records.at
        commands = self._compare(run, record, report)
        run.is_told = run.halt is not None
        return commands

    def _compare(self, run: AttemptRecord, record: TrialRecord, report: Report) -> list[Command]:
        """Compare an attempt with other trials, if its report is one of a rung."""
        since = record.compared_step
        if not record.observe(report, self._goals) or record.trial.confirms is not None:
            return []
        commands: list[Command] = []
        reached = self._early_stopping.report(record, since=since)
        if reached and record.best is not None:
            rungs = {**record.trial.rungs, **dict.fromkeys(reached, record.best)}
            self.records.put(record, replace(record.trial, rungs=rungs))
            commands.append(Tell(record.result))
        return [*commands, *self._judge(run, record, report, is_at_rung=bool(reached))]

    def _judge(
        self, run: AttemptRecord, record: TrialRecord, report: Report, *, is_at_rung: bool
    ) -> list[Command]:
        """Ask the pruner for a decision on an attempt, after a report.

        Several epochs of milliseconds may pass before an order to prune has left. It holds only if
        what was reported meanwhile does not change the decision.
        """
        is_told = run.halt is Halt.PRUNE and not run.stopped_by
        if run.halt is not None and not is_told:
            return []
        name = run.attempt.id
        match self._early_stopping.decide(record.trial):
            case Decision.CONTINUE if is_told:
                run.halt = None
                if run.next_halt is not None:
                    return [self._stop(run, run.next_halt)]
                self.records.note(name.trial, f"attempt {name} may continue after all")
                return [Continue(name, report.step)]
            case Decision.CONTINUE if is_at_rung:
                return [Continue(name, report.step)]
            case Decision.PAUSE if not is_told:
                return [self._stop(run, Halt.PAUSE)]
            case Decision.STOP if not is_told:
                return [self._stop(run, Halt.PRUNE)]
        return []

    def release(self, worker: str) -> list[Command]:
        """Stop the attempts of which a part is on a worker that is about to leave.

        A worker itself releases the attempts that are on it as a whole.
        """
        runs = [self.records.running[name] for name in self.records.running_on(worker)]
        divided = [run for run in runs if len(run.attempt.placement.workers) > 1]
        return self._stop_all(divided, Halt.RELEASE)

    def stop_trial(self, number: int, *, by: str) -> list[Command]:
        """Stop a trial for good: one that runs, waits or is paused. One that is over stays so.

        A trial that does not run is over at once.
        """
        if number >= len(self.records):
            return []
        record = self.records[number]
        if record.running is None:
            return [] if record.trial.state.is_final else self._withdraw(record, by=by)
        run = self.records.running[record.running]
        run.stopped_by = by
        if run.halt is None:
            return [self._stop(run, Halt.PRUNE)]
        run.halt = Halt.PRUNE  # it stops already, and now it does not run again
        return []

    def _withdraw(self, record: TrialRecord, *, by: str) -> list[Command]:
        self.records.put(record, replace(record.trial, reason=f"stopped by {by}"))
        return self._drop(record)  # a trial that never ran is no success

    def stop_all(self) -> list[Command]:
        """Stop all running attempts."""
        return self._stop_all(self.records.running.values(), Halt.STOP)

    def _stop_all(self, runs: Iterable[AttemptRecord], halt: Halt) -> list[Command]:
        """Stop attempts; one that stops already does so even if its order is taken back."""
        commands: list[Command] = []
        for run in runs:
            if run.halt is None:
                commands.append(self._stop(run, halt))
            else:
                run.next_halt = halt
        return commands

    def _stop(self, run: AttemptRecord, halt: Halt) -> Stop:
        run.halt = halt
        name = run.attempt.id
        self.records.note(name.trial, f"attempt {name} is told to stop ({halt})")
        return Stop(name, halt)

    # --- a trial is paused ------------------------------------------------------------------

    def promote(self, *, is_last: bool) -> list[Command]:
        """Promote the best paused trial, so that it waits; empty if there is none."""
        number = self.promotion(is_last=is_last)
        return [] if number is None else self._promote(self.records[number])

    def promotion(self, *, is_last: bool) -> int | None:
        """Return the paused trial to promote next; None if there is none."""
        if not self.records.count(TrialState.PAUSED):
            return None
        return self._early_stopping.promotion(is_last=is_last)

    def prune_paused(self) -> list[Command]:
        """Prune all paused trials, as nothing to come can promote them."""
        paused = (each for each in self.records if each.trial.state is TrialState.PAUSED)
        return [command for record in paused for command in self._prune(record)]

    def _promote(self, record: TrialRecord) -> list[Command]:
        self.records.wait(record, TrialEvent.PROMOTE)
        return [self._moved(record)]

    # --- an attempt ends --------------------------------------------------------------------

    def end(self, at: float, name: AttemptId, ending: Ending) -> Followed:
        """Take in the end of an attempt.

        Returns:
            What is to be done, and how the study ends by it; None if it continues.
        """
        record, run = self.records[name.trial], self.records.running[name]
        if (used := run.attempt.usage) is not None:
            record.joules = known_sum((record.joules, used.joules))
        ending = replace(ending, metrics=self._with_energy(ending.metrics, record))
        ending = checked(ending, self._goals)
        if run.stopped_by and OUTCOMES[ending.cause] in _STOPPED:
            ending = replace(ending, reason=f"stopped by {run.stopped_by}")
        decision = decide(
            record,
            run,
            ending,
            self.config.failure_rules,
            at=at,
            epochs=self.config.pruner.epochs,
        )
        if decision.is_charged:
            record.losses[ending.cause] = record.losses.get(ending.cause, 0) + 1
        record.releases_without_progress = decision.releases_without_progress
        self.records.end(name, at, decision.outcome, decision.ending)
        record.raise_memory(run.attempt, ending.cause)
        commands, finish = self._apply(decision, record, run)
        return commands, decision.finish or finish

    def _apply(self, decision: EndDecision, record: TrialRecord, run: AttemptRecord) -> Followed:
        match decision.event:
            case TrialEvent.COMPLETE:
                return self._complete(record, run, decision.ending), None
            case TrialEvent.FAIL:
                return self._fail(record, run, decision.ending)
            case TrialEvent.PRUNE:
                # One that the user's rule prunes has failed after its best epoch, as by a NaN.
                usual = OUTCOMES[decision.ending.cause]
                by_rule = decision.outcome is Outcome.PRUNED and usual is not Outcome.PRUNED
                return self._prune(record, record.best_report if by_rule else None), None
            case TrialEvent.PAUSE:
                if record.before is None:  # else it keeps the result that it has
                    self._measure(record)
                self.records.move(record, TrialEvent.PAUSE)
                return [self._moved(record)], None
            case _:
                # Samplers and pruners do not see retries.
                self.records.wait(record, decision.event)
                return [], None

    def _complete(self, record: TrialRecord, run: AttemptRecord, ending: Ending) -> list[Command]:
        self._failures.count_success()
        metrics = dict(ending.metrics)
        value = metrics[self._goals.goal.metric]
        measured = replace(record.trial, value=value, step=ending.step, metrics=metrics)
        measured = self._goals.judged(measured)
        if record.before is not None:
            before, after = record.before.score, measured.score
            dominates = self._goals.weakly_dominates
            if dominates(before, after) or not dominates(after, before):
                self.records.put_attempt(run, replace(run.attempt, reason=NO_BETTER))
                return self._restore(record)
            record.before = None
        self.records.put(record, measured)
        return self._close(record, TrialEvent.COMPLETE, ended_early=ending.ended_early)

    def _fail(self, record: TrialRecord, run: AttemptRecord, ending: Ending) -> Followed:
        reason = ending.reason or str(ending.cause)
        if record.before is not None:
            self.records.put_attempt(run, replace(run.attempt, reason=f"{NO_BETTER}: {reason}"))
            return self._restore(record), None
        self.records.put(record, replace(record.trial, reason=reason, detail=ending.detail))
        commands = self._close(record, TrialEvent.FAIL)
        return commands, self._failures.count_failure(replace(ending, reason=reason))

    def _prune(self, record: TrialRecord, best: Report | None = None) -> list[Command]:
        self._failures.count_success()
        return self._drop(record, best)

    def _drop(self, record: TrialRecord, best: Report | None = None) -> list[Command]:
        if record.before is not None:
            return self._restore(record)
        self._measure(record, best)
        return self._close(record, TrialEvent.PRUNE)

    def _measure(self, record: TrialRecord, best: Report | None = None) -> None:
        """Take a report, usually the last one, for the result of a trial that stops early."""
        if (report := best or record.last) is not None:
            value = report.metrics[self._goals.goal.metric]
            metrics = self._with_energy(report.metrics, record)
            measured = replace(record.trial, value=value, step=report.step, metrics=metrics)
            self.records.put(record, self._goals.judged(measured))

    def _with_energy(self, metrics: Mapping[str, float], record: TrialRecord) -> dict[str, float]:
        """Return metrics with the energy of the trial's attempts if it is a goal, and known."""
        if ENERGY not in self._goals.metrics:
            return dict(metrics)
        own = {name: value for name, value in metrics.items() if name != ENERGY}
        return own if record.joules is None else {**own, ENERGY: record.joules / JOULES_PER_KWH}

    def _restore(self, record: TrialRecord) -> list[Command]:
        self.records.restore(record)
        return [self._moved(record), *self.retention.no_better(record.trial)]

    def _close(
        self, record: TrialRecord, event: TrialEvent, *, ended_early: bool | None = None
    ) -> list[Command]:
        self.records.move(record, event)
        if ended_early is None:  # the executor cannot tell, as in a simulation
            epochs = self.config.pruner.epochs
            ended_early = epochs is not None and record.reached < epochs
        return [self._moved(record), *self.retention.ended(record.trial, ended_early=ended_early)]

    def _moved(self, record: TrialRecord) -> Tell:
        self._early_stopping.moved(record.trial)
        return Tell(record.result)
