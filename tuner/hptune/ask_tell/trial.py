"""A trial that a program has asked for."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cached_property
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from ..core.attempt import CameBack, Cause, Ending, Report, ReportedValue
from ..core.engine.records import LeasedAttempt
from ..core.goals import unknown_metric
from ..core.messages import Event, ParametersUsed, Reported
from ..core.space.completion import opening_value
from ..core.space.space import SearchSpace
from ..core.trial import Trial
from ..errors import HptuneError, ProgramFailed, TrialOverError, UsageError
from ..training.context import AttemptStopped, TrialContext, as_metrics
from ..training.function_objective import ending_of as ending_by_result
from ..training.hyperparameters import HyperParameters, make_hyperparameters
from ..user_code.user_errors import one_line, storable, user_traceback
from ..worker.forkserver.used_parameters import used_parameters
from .calls import GivenTrial

if TYPE_CHECKING:
    from .session import Session

_MOST_CHARACTERS = 2_000
"""Longest reason of a failure."""

_NO_RESULT = "its program told no result"


class AskedTrial(TrialContext):
    """A trial that this program trains; `study.tell` ends it, or the end of a `with` block does.

    The block tells a failure if its code raises an exception, and the reported result if it has
    told none. It has what `objective(hp, trial)` gets as `trial`, and these:

    Attributes:
        params: The configuration; `trial["lr"]` is one value of it.
        attempt: Its name, such as 17.0: the trial's number, and the attempt's.
        hp: Declares hyperparameters where they are used, as in a model function. What is new gets
            what `hptune space` says is tried first, and is searched from the next trial on.
        resumed_from: The last step that an earlier attempt has reported; None if there was none.
        has_asked_all: Ends by which what it has not asked `hp` for counts as unused.
    """

    has_asked_all: Collection[Cause] = (Cause.RETURNED, Cause.PRUNED)

    def __init__(self, session: Session, given: GivenTrial) -> None:
        super().__init__(
            given.start,
            directory=session.directory.trial(given.start.attempt.trial),
            goals=session.goals,
            epochs=given.epochs,
            send=self._deliver,
        )
        # What the program does with it changes no state of the study.
        self._params = dict(given.start.params)
        self.attempt = given.start.attempt
        self.session = session
        self.is_over = False
        self._space = SearchSpace.from_json(given.space)
        if (last := self.resumed_from) is not None:  # later steps are of before it began again
            known = session.reader.reports(self.number)
            self._earlier = _joined(each for each in known if each.step <= last)

    def __repr__(self) -> str:
        return f"AskedTrial({self.attempt}, params={dict(self._params)!r})"

    def __getitem__(self, name: str) -> Any:
        try:
            return self.params[name]
        except KeyError:
            known = ", ".join(self._params) or "none yet: declare them with trial.hp"
            raise KeyError(f"trial {self.number} has no {name!r}; it has {known}") from None

    @cached_property
    def hp(self) -> HyperParameters:
        """The hyperparameters, which are declared by their use."""
        hp = make_hyperparameters(self._space.to_json(), self._params)
        hp.first_value = opening_value
        hp.on_declaration = self._declare
        return hp

    def remember(self, reports: Sequence[ReportedValue], leased: LeasedAttempt) -> None:
        """Take in what other processes have reported of this attempt, and were answered."""
        self._reports = _joined(each for each in reports if each.attempt == self.attempt.number)
        if leased.halt is not None:
            self.request_stop(leased.halt)
            self._was_told = leased.is_told

    # --- to the study -----------------------------------------------------------------------

    def _deliver(self, event: Event) -> None:
        if isinstance(event, Reported):
            halt = self.session.report(self.attempt, event.report)
            if halt is None:
                self.may_continue(event.report.step)
            else:
                self.request_stop(halt)

    def _used(self, *, is_over: bool) -> ParametersUsed | None:
        hp, declared = self.hp, len(self._space)
        return used_parameters(self.attempt, self._params, hp, declared=declared, is_over=is_over)

    def _declare(self) -> None:
        if (used := self._used(is_over=False)) is not None and used.declared:
            self.session.declare(used)
            self._params, self._space = used.values, SearchSpace(tuple(self.hp.space))

    def tell(self, **metrics: Any) -> Trial:
        """Tell the result; that of a trial that was to stop, and did, is what it has reported.

        Raises:
            UsageError: A metric of the study is missing, or is no number.
            StudyError: The trial is over already; nothing has changed.
        """
        return self.end(self._ending(metrics))

    def fail(self, reason: str | Exception, detail: str = "") -> Trial:
        """Tell that the trial has failed; the search learns that it did."""
        if isinstance(reason, Exception):
            return self.fail(one_line(reason), detail or user_traceback(reason))
        if not isinstance(reason, str):
            raise UsageError(f"failed is {reason!r}; allowed are a text, and the exception")
        reason = storable(" ".join(reason.split()) or _NO_RESULT, _MOST_CHARACTERS)
        return self.end(Ending(Cause.EXCEPTION, reason=reason, detail=detail))

    def release(self) -> Trial:
        """Give the trial back without a result: another program gets it."""
        reason = "the program that had asked for it gave it back"
        return self.end(Ending(Cause.STOPPED, reason=reason))

    def end(self, ending: Ending) -> Trial:
        """End the attempt."""
        used: ParametersUsed | None = None
        is_whole = ending.cause in self.has_asked_all
        if "hp" in self.__dict__ and is_whole and not self.has_read_params:
            used = self._used(is_over=True)
        trial = self.session.end(self.attempt, ending, used)
        self.is_over = True
        return trial

    def _ending(self, metrics: Mapping[str, Any]) -> Ending:
        measured = as_metrics(metrics)
        for name in metrics.keys() - measured.keys():
            raise UsageError(f"{name} is {metrics[name]!r}; a metric is a number")
        if not (measured or self.reported or self._earlier or self.obeyed(CameBack.NOTHING)):
            raise UsageError(
                f"trial {self.number} is told without a result; give "
                f"{' and '.join(self.goals.metrics)}, or why it has failed (failed=, --failed)"
            )
        try:
            ending = ending_by_result({}, self, measured)
        except AttemptStopped as stopped:
            return Ending(stopped.halt.cause, reason=stopped.reason)
        for metric in self.goals.metrics:
            if metric not in ending.metrics:
                raise UsageError(unknown_metric(metric, ending.metrics))
        return ending

    # --- as a context -----------------------------------------------------------------------

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        """End the trial if the block has not; an exception of the user's code ends here."""
        if isinstance(error, TrialOverError):  # the loop around the block gets the next trial
            warnings.warn(error.message, stacklevel=2)
            return True
        if self.is_over:
            return False
        try:
            self._end_of_block(error)
        except TrialOverError as over:
            if error is not None or self.session.was_lost(self.attempt):
                warnings.warn(over.message, stacklevel=2)  # else another process has told it
        except HptuneError:
            self._give_back()
            raise
        return isinstance(error, Exception) and not _is_of_hptune(error)

    def _end_of_block(self, error: BaseException | None) -> None:
        from ..worker.forkserver.error_causes import (  # `hptune tell` has no block
            Where,
            ending_by_order,
            ending_of,
        )

        if error is None:
            if not self.reported:  # here; a process that this one has started may have
                leased, _ = self.session.running_attempt(self.number, self.attempt.number)
                reports = self.session.reader.reports(self.number)
                self.remember(reports, leased)
            has_result = self.reported or self._earlier or self.obeyed(CameBack.NOTHING)
            self.tell() if has_result else self.fail(_NO_RESULT)
        elif isinstance(error, KeyboardInterrupt | GeneratorExit) or _is_of_hptune(error):
            self._give_back()  # the error ends the program, and says nothing of the trial
        else:
            by_order = ending_by_order(error, self.obeyed(CameBack.NOTHING))
            # Its program may have a GPU, of which the study does not know.
            where = Where(self.directory, has_gpu=True, has_begun=True)
            self.end(by_order or ending_of(error, where))

    def _give_back(self) -> None:
        with contextlib.suppress(HptuneError):  # what ends the program counts
            self.release()


def _is_of_hptune(error: BaseException) -> bool:
    """Return whether hptune raised an error that says nothing of the trial."""
    return isinstance(error, HptuneError) and not isinstance(error, ProgramFailed)


def _joined(reports: Iterable[ReportedValue]) -> list[Report]:
    """Return what was reported, with all metrics of a step in one report."""
    steps: dict[int, dict[str, float]] = {}
    for each in reports:
        steps.setdefault(each.step, {})[each.metric] = each.value
    return [Report(step, metrics) for step, metrics in steps.items()]


def asked_trials(session: Session, count: int, *, lease_seconds: float) -> list[AskedTrial]:
    """Ask for trials; return up to `count`, which no other program has.

    Raises:
        StudyOverError: The study has no more.
        NoTrialError: None is free now.
    """
    return [AskedTrial(session, given) for given in session.ask(count, lease_seconds=lease_seconds)]


def asked_trial(session: Session, trial: AskedTrial | int | str) -> AskedTrial:
    """Return a trial that a program has asked for, by its number or its attempt's name.

    Raises:
        UsageError: There is no such trial, or it is another study's.
        StudyError: It is over already, or no program has it.
    """
    if isinstance(trial, AskedTrial):
        if trial.session.directory.path != session.directory.path:
            raise UsageError(
                f"trial {trial.number} is of the study in {trial.session.directory}, and not "
                f"of that in {session.directory}"
            )
        return trial
    number, dot, attempt = str(trial).partition(".")
    if not number.isdecimal() or (dot and not attempt.isdecimal()):
        raise UsageError(f"the trial is {trial!r}; allowed are its number, and 17.0 or such")
    leased, given = session.running_attempt(int(number), int(attempt) if attempt else None)
    again = AskedTrial(session, given)
    again.remember(session.reader.reports(again.number), leased)
    return again
