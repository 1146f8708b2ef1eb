"""What reports say to the pruner: metrics that they lack, and steps that do not count what is done.

The contract of a step: how many epochs (or whatever the code counts) are done, from 1; each report
of the objectives has a greater one than the report before.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

from ... import text
from ...core.attempt import AttemptId, Report, ReportedValue
from ...core.goals import MEASURED, RETURNED_NUMBER, Goals, metric_meant
from ...core.messages import Reported
from ...core.trial import Direction, Goal, Trial


class ReportChecks:
    """Observes reports, and returns lines on what is wrong with them, each with its kind.

    Args:
        pruner: Name of the pruner.
        goals: What it compares trials by.
        epochs: The full training of a trial; None if unknown.
        has_own_epochs: Whether it is a hyperparameter of each trial.
    """

    def __init__(
        self, pruner: str, goals: Goals, epochs: int | None, *, has_own_epochs: bool
    ) -> None:
        self.pruner = pruner
        self._is_pruned = pruner != "none"
        self._pruner = f"--pruner {pruner}"
        self._objectives = [goal.metric for goal in goals.objectives]
        # The user has named neither a metric nor a direction.
        self._is_unnamed = goals.objectives == (Goal(RETURNED_NUMBER, Direction.MIN),)
        self._epochs = None if has_own_epochs else epochs
        self._word = text.step_word(epochs)
        self._steps: dict[AttemptId, int] = {}
        self._lacking: dict[int, set[str]] = {}
        self._reported: dict[int, dict[str, float]] = {}

    def observe_stored(self, rows: Sequence[ReportedValue]) -> list[str]:
        """Observe the stored reports of a trial, and return the first line of each kind."""
        found: dict[str, str] = {}
        parts = itertools.groupby(rows, key=lambda row: (row.attempt, row.step))
        for (attempt, step), values in parts:
            metrics = {row.metric: row.value for row in values}
            name = AttemptId(rows[0].trial, attempt)
            for kind, line in self.observe(Reported(0.0, name, Report(step, metrics))):
                found.setdefault(kind, line)
        return list(found.values())

    def observe(self, event: Reported) -> Iterator[tuple[str, str]]:
        """Observe a report."""
        if set(self._objectives) <= set(event.report.metrics):
            yield from self._check_step(event)
        if self._is_pruned:
            number = event.attempt.trial
            self._reported.setdefault(number, {}).update(event.report.metrics)
            lacking = set(self._objectives) - set(event.report.metrics)
            self._lacking[number] = min(self._lacking.get(number, lacking), lacking, key=len)

    def _check_step(self, event: Reported) -> Iterator[tuple[str, str]]:
        step, word, trial = event.report.step, self._word, f"trial {event.attempt.trial}"
        before, self._steps[event.attempt] = self._steps.get(event.attempt), step
        if step < 1:
            words = (
                f"{trial} reports {word} {step}, but a report says how many are done, from 1: this "
                f"one is not compared with other trials, and all others are one {word} off. Count "
                f"from 1; in Python: trial.report({word} + 1, …)"
            )
            yield "first step", words
        # A later attempt first repeats what the ledger lacks, and may then start over.
        elif before is not None and step <= before and not event.attempt.number:
            too = f", also by {self._pruner}" if self._is_pruned else ""
            words = (
                f"{trial} reports {word} {step} after {word} {before}. {word.capitalize()}s must "
                f"rise: only the first ones are compared{too}. Count on over several trainings; of "
                "folds, report the mean so far, once for each: trial.report(fold, …) "
                "(`hptune help noisy-results`)"
            )
            yield "order", words
        elif self._is_pruned and self._epochs is not None and step > self._epochs:
            words = (
                f"{trial} reports {word} {step}, but a trial has {self._epochs} (--epochs): "
                f"{self._pruner} compares trials before that, and one that got so far counts as "
                "trained in full. Report epochs, or give --epochs in what you count"
            )
            yield "last step", words

    def observe_complete(self, trial: Trial) -> Iterator[tuple[str, str]]:
        """Observe that a trial is complete."""
        lacking, reported = self._taken(trial.number)
        cannot = f"{self._pruner} can stop no trial"
        if lacking:
            is_apart = set(self._objectives) <= set(reported)
            names = " and ".join(self._objectives if is_apart else lacking)
            advice = self._how_to_report(lacking, reported)
            yield "pruner", f"{cannot}: no report of trial {trial.number} has {names}. {advice}"
        if self._is_pruned and trial.step is None and not (reported or trial.rungs):
            nothing = f"trial {trial.number} reported nothing before its end"
            yield "pruner", f"{cannot}: {nothing}. Call trial.report(step, …) while it trains"
        others = [text.clean(name) for name in trial.metrics if name != RETURNED_NUMBER]
        if self._is_unnamed and others:
            words = (
                f"the number that objective() returns is minimised, though trials report "
                f"{', '.join(others[:3])}; to optimise that: --objective {others[0]}:max or "
                f"{others[0]}:min"
            )
            yield "objective", words

    def forget(self, trial: Trial) -> None:
        """Forget a trial that ended otherwise."""
        self._taken(trial.number)

    def _taken(self, number: int) -> tuple[list[str], list[str]]:
        for attempt in [each for each in self._steps if each.trial == number]:
            del self._steps[attempt]
        reported = [text.clean(name) for name in self._reported.pop(number, ())]
        return sorted(self._lacking.pop(number, ())), reported

    def _how_to_report(self, lacking: Sequence[str], reported: Sequence[str]) -> str:
        names = " and ".join(map(text.clean, lacking))
        them = "them" if lacking[1:] else "it"
        if set(self._objectives) <= set(reported):
            return "Each is in another report; give them in one report of each step"
        if set(lacking) <= {*MEASURED}:
            return f"hptune measures {them} once in a trial; make {them} a --constraint"
        advice = f"It reports {', '.join(reported) or 'none'}; report {names} at each step too"
        if len(self._objectives) > len(lacking):
            return f"{advice}, or make {them} a --constraint"
        near = next(filter(None, (metric_meant(name, reported) for name in lacking)), "")
        return f"{advice}, or optimise {near or 'one of those'} (--objective)"
