"""The trial as the training sees it: reports, requests to stop, and files."""

from __future__ import annotations

import difflib
import functools
import inspect
import json
import math
import os
from collections.abc import Callable, Mapping
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, ParamSpec, SupportsFloat, SupportsInt, TypeVar

from ..core.attempt import NEVER_ASKED, CameBack, Cause, Halt, Report, StopAt
from ..core.goals import Goals
from ..core.messages import Event, Reported, Start
from ..core.trial import Params
from .report_file import ReportFile
from .rung_answer import RungAnswer

if TYPE_CHECKING:
    from .parallel.ranks import Ranks

_P = ParamSpec("_P")
_R = TypeVar("_R")
_DECLARATIONS = ("Int", "Float", "Choice", "Boolean", "Fixed")


class AttemptStopped(BaseException):
    """Ends an attempt that was told to stop.

    Not an Exception, so that a user's `except Exception` does not swallow it.

    Attributes:
        halt: Why it was told to stop.
        reason: The same for the user.
    """

    def __init__(self, halt: Halt, more: str = "") -> None:
        super().__init__(halt, more)
        self.halt = halt
        self.reason = "; ".join(filter(None, (halt.reason, more)))


class TrialPruned(Exception):
    """Raised by the user's code: the trial is poor, and ends as pruned with what it reported."""


_STATED = {
    ("keras_tuner", "FatalError"): Cause.FATAL,
    ("keras_tuner", "FailedTrialError"): Cause.GIVEN_UP,
    ("optuna", "TrialPruned"): Cause.PRUNED,
    ("hptune", "TrialPruned"): Cause.PRUNED,
    ("hptune", "RankLost"): Cause.RANK_LOST,
}


def stated_cause(error: BaseException) -> Cause | None:
    """Return what the user's code says by an exception of KerasTuner's, Optuna's or ours.

    The exceptions are known by name, as their libraries need not be imported.

    >>> stated_cause(TrialPruned()), stated_cause(ValueError())
    (<Cause.PRUNED: 'pruned'>, None)
    """
    kinds = ((kind.__module__.partition(".")[0], kind.__name__) for kind in type(error).__mro__)
    return next((_STATED[kind] for kind in kinds if kind in _STATED), None)


def explains_its_call(example: str) -> Callable[[Callable[_P, _R]], Callable[_P, _R]]:
    """Let a call with other arguments than a function takes say how one is written."""

    def decorated(function: Callable[_P, _R]) -> Callable[_P, _R]:
        signature = inspect.signature(function)

        @functools.wraps(function)
        def call(*given: _P.args, **metrics: _P.kwargs) -> _R:
            try:
                signature.bind(*given, **metrics)
            except TypeError as error:
                name = example.partition("(")[0]
                raise TypeError(f"{name}: {error}; write {example}") from None
            return function(*given, **metrics)

        return call

    return decorated


def _whole(step: SupportsInt) -> int:
    """Return the step as an int, which Python, NumPy and the frameworks have types for.

    Raises:
        TypeError: It is no whole number.
    """
    try:
        whole = int(step)
        if whole == step:
            return whole
    except (TypeError, ValueError, OverflowError):
        pass
    raise TypeError(
        f"trial.report: the step is {step!r}; a step is a whole number, and each metric has a "
        "name: write trial.report(epoch, loss=0.5)"
    )


class OtherTuners:
    """Base class of what the user's code gets: its errors name the method that may be meant."""

    _title: ClassVar[str] = "the trial"

    def __getattr__(self, name: str) -> Any:
        hint = ""
        if name in _DECLARATIONS:
            hint = "; the hyperparameters come first: objective(hp, trial)"
        elif name.startswith("suggest_"):
            hint = (
                "; hyperparameters are declared with hp.Float, hp.Int, hp.Choice and hp.Boolean "
                "(`hptune help from-optuna`)"
            )
        elif not name.startswith("_"):
            known = [each for each in dir(self) if not each.startswith("_")]
            near = difflib.get_close_matches(name, known, 1)
            hint = f"; did you mean {near[0]}?" if near else ""
        raise AttributeError(f"{self._title} has no attribute {name!r}{hint}")


class NonFiniteMetric(Exception):
    """A metric became NaN or infinite. The trial ends as a bad configuration."""


class UnknownMetric(Exception):
    """The training does not measure a metric that the study needs."""


class _Trial(OtherTuners):
    """What a trial has, whether a study runs or not."""

    runs_elsewhere = False
    """Whether the work is done where its use of the machine is not measured."""

    @property
    def port(self) -> int:
        """A port for the trial's own processes, which no other trial of the node has.

        It is that of the variable MASTER_PORT, for all ranks of a parallel trial.
        """
        return int(os.environ.get("MASTER_PORT", "29500"))


class TrialContext(_Trial):
    """One attempt of a trial, which `objective(hp, trial)` gets as `trial`.

    Attributes:
        number: The trial's number, from 0.
        has_read_params: Whether the configuration was asked for as a whole, by `params`.
        seed: The trial's seed, which follows from the study's. Python's `random`, NumPy and the
            framework are already seeded with it.
        goals: What the study optimises.
        metric: The first metric that the training itself measures, among those to optimise.
        epochs: Epochs to train, from `--epochs` or `EPOCHS`; None if neither is given.
        resumed_from: The last step that an earlier attempt of the trial has reported; None if
            there was none. The files of that attempt in `checkpoint_dir` are still there.
        checkpoint_every: Epochs between two checkpoints; None for as often as costs little, 0 for
            none.
        keeps_last: Whether to keep the checkpoint of the last epoch, to train on later.
        stop_at: When a Keras training stops on request: after a batch or an epoch.
        ranks: This process among those of a parallel trial, for the framework's strategies; None
            if the trial has one process.
    """

    def __init__(
        self,
        start: Start,
        *,
        directory: Path,
        goals: Goals,
        epochs: int | None,
        checkpoint_every: int | None = None,
        stop_at: StopAt = StopAt.BATCH,
        send: Callable[[Event], None],
    ) -> None:
        self.number = start.attempt.trial
        self.has_read_params = False
        self._params = start.params
        self.seed = start.seed
        self.goals = goals
        self.metric = (goals.trained or goals.goal).metric
        self.epochs = epochs
        self.resumed_from = start.resume_from
        self.checkpoint_every = checkpoint_every
        self.keeps_last = start.keep_last
        self.stop_at = stop_at
        self._attempt = start.attempt
        self._directory = directory
        self._send = send
        self.ranks: Ranks | None = None
        self._halt: Halt | None = None
        self._agreed: Halt | None = None
        self._has_asked = self._was_told = False
        self._reports: list[Report] = []
        self._earlier: list[Report] = []
        self._file: ReportFile | None = None
        self._answer = RungAnswer(start.rungs, last_step=start.resume_from or 0)

    @property
    def rank(self) -> int:
        """This process among those of a parallel trial, from 0; 0 if the trial has one process."""
        return 0 if self.ranks is None else self.ranks.rank

    @property
    def world_size(self) -> int:
        """Number of processes (ranks) of the trial."""
        return 1 if self.ranks is None else self.ranks.world_size

    @property
    def local_rank(self) -> int:
        """The rank among those on this node, from 0."""
        return 0 if self.ranks is None else self.ranks.local_rank

    @explains_its_call("trial.report(epoch, loss=0.5)")
    def report(self, step: int, **metrics: SupportsFloat) -> None:
        """Report metrics to the study. Of a parallel trial, rank 0's reports count.

        Args:
            step: Epochs done (or whatever you count), from 1; it rises with each report of what is
                optimised. Several trainings count on, or are reported as their mean so far.
            metrics: What was measured, by name.

        Raises:
            NonFiniteMetric: The metric to optimise, or `loss`, is NaN or infinite. Do not catch it:
                it ends the trial as a bad configuration.
            TypeError: The step is missing or not a whole number, a metric is not a number, or has
                no name.
            ValueError: The step is negative, or has more than 63 bits.
        """
        measured = as_metrics(metrics)
        for name in (metric for metric in metrics if _writable(metric) not in measured):
            raise TypeError(f"trial.report: {name} is {metrics[name]!r}; a metric is a number")
        report = Report(_whole(step), measured)
        self._reports.append(report)
        if self.rank:
            return
        if self._file is not None:
            self._file.add(report)
        if all(goal.metric in measured for goal in self.goals.objectives):
            self._answer.reported(report.step)
        self._send(Reported(0.0, self._attempt, report))
        if name := self._diverged(measured):
            word = "step" if self.epochs is None else "epoch"
            raise NonFiniteMetric(f"{name} is {measured[name]} at {word} {step}")

    def _diverged(self, metrics: Mapping[str, float]) -> str:
        """Return the metric of a report that ends the trial as NaN or infinite; else ""."""
        judged = (self.metric, "loss")
        return next((name for name in judged if not math.isfinite(metrics.get(name, 0.0))), "")

    @property
    def params(self) -> Params:
        """The configuration."""
        self.has_read_params = True
        return self._params

    def keep_reports(self) -> None:
        """Keep reports on disk too, and repeat those of earlier attempts that the ledger lacks.

        All ranks call it: they learn rank 0's `resumed_from`.
        """
        if not self.rank:
            self._read_reports()
        if self.ranks is not None:
            self.resumed_from = json.loads(
                self.ranks.broadcast(json.dumps(self.resumed_from).encode())
            )

    def _read_reports(self) -> None:
        file = ReportFile(self._directory)
        if not self.is_first_attempt:
            known = self.resumed_from or 0
            reports = [each for each in file.read() if not self._diverged(each.metrics)]
            judged = [each for each in reports if self.goals.goal.metric in each.metrics]
            for report in judged or reports:  # steps of other metrics may count something else
                if report.step <= known:
                    self._earlier.append(report)
                    continue
                self.report(report.step, **report.metrics)
                self.resumed_from = max(self.resumed_from or 0, report.step)
        self._file = file

    def should_stop(self) -> bool:
        """Return whether the study wants this attempt to stop.

        If so, let `objective` return: nothing, or a result, which counts only if all epochs are
        reported. `halt` tells the reason: the trial is poor, it is paused for better ones and may
        continue later, or the study ends.

        After a report at a rung of early stopping, the first call waits for the study's answer: at
        most a second, and at most half of the time since the report before.

        Every rank of a parallel trial calls it at the same points of its training, such as after
        each batch; all get the same answer there. Most calls take about a microsecond.

        Raises:
            RankLost: Another rank of the trial is gone. Do not catch it.
            RanksOutOfStep: Another rank of the trial did not call it at the same point.
        """
        self._has_asked = True
        self._answer.wait()
        if self.ranks is not None:
            self._agreed = self.ranks.agree(self._halt)
        return self.halt is not None

    should_prune = should_stop
    """Optuna's name: `if trial.should_prune(): raise hptune.TrialPruned`."""

    @property
    def halt(self) -> Halt | None:
        """Why the attempt is to stop; None while it may continue.

        In a parallel trial, this is what the ranks agreed on in the last `should_stop`.
        """
        self._has_asked = True
        halt = self._halt if self.ranks is None else self._agreed
        self._was_told |= halt is not None
        return halt

    def obeyed(self, result: CameBack) -> Halt | None:
        """Return the order to stop by which a training ended; None if its result counts.

        It may be one that the code has not asked for, or that the ranks have not agreed on.
        """
        halt = self._halt or self._agreed
        all_reported = self.has_reported_all
        return None if result.counts(was_told=self._was_told, all_reported=all_reported) else halt

    @property
    def has_reported_all(self) -> bool:
        """Whether the last report is of the last epoch; steps may count from 0."""
        steps = [report.step for report in self._reports]
        last = steps[-1] if steps else self.resumed_from
        if self.epochs is None or last is None:
            return False
        return last + (0 in steps) >= self.epochs

    @property
    def ended_early(self) -> bool | None:
        """Whether a training that is over has trained fewer epochs than it was to; None if unknown.

        It has if one more report would have been due. Reports may come every few epochs only, and
        may count from 0.
        """
        if self.epochs is None or not self._reports:
            return None
        steps = sorted({self.resumed_from or 0, *(report.step for report in self._reports)})
        interval = max(later - step for step, later in pairwise(steps)) if len(steps) > 1 else 1
        return steps[-1] + interval < self.epochs

    @property
    def reported(self) -> set[str]:
        """Names of all metrics that this attempt has reported."""
        return {name for report in self._reports for name in report.metrics}

    def report_of(self, metric: str, value: float | None) -> Report | None:
        """Return the report that a result belongs to; None if there is none.

        It is the last report with this value, as an objective may return that of its best epoch;
        without one, the last report. Those of earlier attempts count.

        Args:
            metric: A metric of the result.
            value: Its value; None for any, if the result does not say it.
        """
        reports = [*self._earlier, *self._reports]
        measured = (report for report in reversed(reports) if metric in report.metrics)
        same = (report for report in measured if value in (None, report.metrics[metric]))
        return next(same, reports[-1] if reports else None)

    def stop_if_told(self) -> None:
        """Stop the training here if the attempt is to stop, as `halt` says.

        Raises:
            AttemptStopped: The attempt is to stop.
        """
        self._answer.wait()
        if (halt := self.halt) is not None:
            raise AttemptStopped(halt)

    def end_if_told(self) -> None:
        """Stop this process if it was told to, though other ranks have not agreed.

        For waits before the training: the other ranks are ended from outside.

        Raises:
            AttemptStopped: The attempt is to stop.
        """
        if self._halt is not None:
            raise AttemptStopped(self._halt)

    @property
    def missed(self) -> str:
        """That the code never asked whether the pruner stops the trial; empty if it need not."""
        is_judged = self._answer.was_due or self._halt in (Halt.PRUNE, Halt.PAUSE)
        return NEVER_ASKED if is_judged and not self._has_asked else ""

    @property
    def is_first_attempt(self) -> bool:
        """Whether the trial has never run before."""
        return self._attempt.number == 0

    @property
    def checkpoint_dir(self) -> Path:
        """The trial's private directory, which its later attempts find as this one leaves it.

        That of the best trial is kept in the study's `best/`.
        """
        directory = self._directory / "checkpoint"
        directory.mkdir(parents=True, exist_ok=True)
        return directory

    @property
    def directory(self) -> Path:
        """The trial's directory, which holds its log."""
        return self._directory

    def request_stop(self, halt: Halt) -> None:
        """Tell the attempt to stop; may be called from another thread."""
        self._halt = halt
        self._answer.stop()

    def may_continue(self, step: int) -> None:
        """Note that the study lets the trial train beyond a rung; as `request_stop`."""
        self._answer.continue_after(step)

    @property
    def continued(self) -> int:
        """The last step at a rung after which the study let this attempt continue; 0 for none."""
        return self._answer.continued


class StandInTrial(_Trial):
    """What an objective gets as its trial where no study runs."""

    number = 0
    seed = 0
    epochs: int | None = None
    resumed_from = None
    halt = None
    is_first_attempt = True
    rank = 0
    world_size = 1
    local_rank = 0
    ranks = None

    def __init__(self, params: Mapping[str, Any]) -> None:
        self.params = params


def as_metrics(metrics: Mapping[str, Any]) -> dict[str, float]:
    """Return the metrics that are numbers, as floats; others (lists, texts) are left out."""
    measured = {}
    for name, value in metrics.items():
        if isinstance(value, str | bytes):  # which `float` would read
            continue
        try:
            measured[_writable(str(name))] = as_number(value)
        except (TypeError, ValueError, OverflowError):
            continue
    return measured


def _writable(name: str) -> str:
    r"""Return the name of a metric as files and tables take it.

    >>> _writable("val_f1"), _writable("\ud800")
    ('val_f1', '\\ud800')
    """
    return name if name.isascii() else name.encode(errors="backslashreplace").decode()


def reportable(logs: Mapping[str, Any]) -> dict[str, float]:
    """Return the metrics in a framework's logs as `report` takes them.

    One called `step` is left out: with Lightning, it is the axis of the others.
    """
    return {name: value for name, value in as_metrics(logs).items() if name != "step"}


def as_number(value: Any) -> float:
    """Return a number, or the only element of an array or tensor, as a float.

    Keras's F1Score of a model with one output is an array of one element, which NumPy does not
    convert by itself.

    Raises:
        TypeError: It is something else.
        ValueError: It has several elements.
    """
    if hasattr(value, "detach"):  # of torch, which warns of a tensor that has a gradient
        value = value.detach()
    try:
        return float(value)
    except TypeError:
        array = value.numpy() if hasattr(value, "numpy") else value  # of a tensor of TensorFlow
        if not hasattr(array, "item"):
            raise
        return float(array.item())


_current: TrialContext | None = None


def enter(context: TrialContext) -> None:
    """Make this the trial of the process, for `hptune.report`."""
    global _current  # noqa: PLW0603 - a process runs one attempt
    _current = context


def current() -> TrialContext | None:
    """Return the trial of this process; None outside of a trial."""
    return _current


@explains_its_call("hptune.report(epoch, loss=0.5)")
def report(step: int, **metrics: SupportsFloat) -> None:
    """Report metrics from a training loop that has no `trial`.

    Outside of a trial, for example if the model file is run by itself, it does nothing.

    Args:
        step: Epochs done (or whatever you count), from 1.
        metrics: What was measured, by name.
    """
    if _current is not None:
        _current.report(step, **metrics)
