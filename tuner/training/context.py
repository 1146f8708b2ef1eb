"""The trial as the training sees it: report, be told to stop, keep files."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any, SupportsFloat

from ..core.goals import Goals
from ..core.messages import Event, Reported
from ..core.trial import AttemptId, Halt, Params, Report, StopAt


class AttemptStopped(BaseException):
    """The attempt was told to stop, and does.

    Not an Exception, so that a user's `except Exception` does not swallow it.

    Attributes:
        halt: Why it was told to.
    """

    def __init__(self, halt: Halt) -> None:
        super().__init__(halt)
        self.halt = halt


class NonFiniteMetric(Exception):
    """A metric became NaN or infinite: the training is a bad point and ends here."""


class UnknownMetric(Exception):
    """The training does not measure what the study optimises."""


class TrialContext:
    """One attempt of a trial, from inside: what `objective(hp, trial)` gets as `trial`.

    Attributes:
        number: The trial's number, from 0.
        params: The configuration.
        seed: Seeds derived from it repeat with the study's seed; Python's `random`, NumPy and
            the framework are already seeded with it.
        epochs: How many epochs to train, as `--epochs` or `EPOCHS` say; None if nobody said.
        resumed_from: The last step that an earlier attempt of the trial has reported; None if
            there was none. What that attempt kept in `checkpoint_dir` is still there.
        checkpoint_every: After how many epochs each to keep a checkpoint; None for as often as
            costs little, 0 for never.
        keeps_last: Whether the checkpoint of the last epoch may be wanted, to train on later.
        stop_at: When a Keras training that is told to stop does so.
    """

    def __init__(
        self,
        *,
        attempt: AttemptId,
        params: Params,
        seed: int,
        directory: Path,
        goals: Goals,
        epochs: int | None,
        resumed_from: int | None = None,
        checkpoint_every: int | None = None,
        keeps_last: bool = False,
        stop_at: StopAt = StopAt.BATCH,
        send: Callable[[Event], None],
    ) -> None:
        self.number = attempt.trial
        self.params = params
        self.seed = seed
        self.goals = goals
        self.metric = (goals.trained or goals.goal).metric
        self.epochs = epochs
        self.resumed_from = resumed_from
        self.checkpoint_every = checkpoint_every
        self.keeps_last = keeps_last
        self.stop_at = stop_at
        self._attempt = attempt
        self._directory = directory
        self._send = send
        self._halt: Halt | None = None
        self._reports: list[Report] = []

    def report(self, step: int, **metrics: SupportsFloat) -> None:
        """Tell the study what was measured after `step` epochs (or whatever you count, from 1).

        Raises:
            NonFiniteMetric: The metric to optimise, or `loss`, is NaN or infinite. Let it pass:
                it ends the trial as a bad point.
        """
        measured = as_metrics(metrics)
        told = Report(int(step), measured)
        self._reports.append(told)
        self._send(Reported(0.0, self._attempt, told))
        for name in (self.metric, "loss"):
            value = measured.get(name, 0.0)
            if not math.isfinite(value):
                raise NonFiniteMetric(f"{name} is {value} at step {step}")

    def should_stop(self) -> bool:
        """Whether the study wants this attempt to stop; then return (the value is not used).

        It is asked to because the trial is poor, because others deserve its place more (it may
        go on later), or because the study ends; `halt` tells which.
        """
        return self._halt is not None

    @property
    def halt(self) -> Halt | None:
        """Why the attempt is to stop; None while it may go on."""
        return self._halt

    @property
    def is_at_its_end(self) -> bool:
        """Whether all epochs were reported, so that an order to stop comes too late."""
        if self.epochs is None:
            return False
        return any(report.step >= self.epochs for report in self._reports)

    @property
    def ended_early(self) -> bool | None:
        """Whether a training that is over has left out epochs; None if nobody can say.

        It has if one more report would have been due: reports may come every few epochs only, and
        may count from 0.
        """
        if self.epochs is None or not self._reports:
            return None
        steps = sorted({self.resumed_from or 0, *(report.step for report in self._reports)})
        pause = max(later - step for step, later in pairwise(steps)) if len(steps) > 1 else 1
        return steps[-1] + pause < self.epochs

    @property
    def reported(self) -> set[str]:
        """The names of all metrics that this attempt has reported."""
        return {name for report in self._reports for name in report.metrics}

    def report_of(self, metric: str, value: float | None) -> Report | None:
        """The report that a result belongs to; None if this attempt has made none.

        Args:
            metric: One that the result has.
            value: Its value there. The last report that measured just this is meant (an objective
                may return its best epoch's), else the last of all.
        """
        same = (each for each in reversed(self._reports) if each.metrics.get(metric) == value)
        return next(same, self._reports[-1] if self._reports else None)

    def stop_if_told(self) -> None:
        """Leave the training here if it is to stop.

        Raises:
            AttemptStopped: It is to stop.
        """
        if self._halt is not None:
            raise AttemptStopped(self._halt)

    @property
    def is_first_attempt(self) -> bool:
        """Whether the trial has never run before."""
        return self._attempt.number == 0

    @property
    def checkpoint_dir(self) -> Path:
        """A directory of the trial's own, which its later attempts find as this one leaves it.

        The best trial's is kept as the study's `best/`.
        """
        directory = self._directory / "checkpoint"
        directory.mkdir(parents=True, exist_ok=True)
        return directory

    @property
    def directory(self) -> Path:
        """The trial's directory, where its log is."""
        return self._directory

    def request_stop(self, halt: Halt) -> None:
        """The order to stop has come; may be called from another thread."""
        self._halt = halt


def as_metrics(metrics: Mapping[str, Any]) -> dict[str, float]:
    """The metrics that are numbers, as plain floats; others (lists, None) are left out."""
    measured = {}
    for name, value in metrics.items():
        try:
            measured[str(name)] = float(value)
        except (TypeError, ValueError):
            continue
    return measured


_current: TrialContext | None = None


def enter(context: TrialContext) -> None:
    """Make this the process's trial, for `tuner.report`."""
    global _current  # noqa: PLW0603 - one attempt per process is the very idea
    _current = context


def report(step: int, **metrics: SupportsFloat) -> None:
    """Report from a training loop of your own, wherever no `trial` is at hand.

    Outside of a trial, as when the model file is run by itself, it does nothing.

    Args:
        step: Epochs done (or whatever you count), from 1.
        metrics: What was measured, by name.
    """
    if _current is not None:
        _current.report(step, **metrics)
