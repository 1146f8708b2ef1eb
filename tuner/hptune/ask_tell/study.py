"""`open_study`: a study whose trials programs ask for, and tell the results of."""

from __future__ import annotations

import os
import random
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, overload

from ..clusters.layout import check_budget_without_gpus
from ..config.asked import asked
from ..config.kinds import duration
from ..config.reference import OPEN_STUDY, in_python
from ..config.resolved import resolve
from ..config.settings import FIELDS, StudySettings
from ..core.messages import FinishReason
from ..core.spelling import did_you_mean
from ..core.trial import Trial
from ..errors import HptuneError, NoTrialError, StudyExistsError, StudyOverError, UsageError
from ..master.plan import check_named, plan_start
from ..master.resume_plan import TOTALS, Changes
from ..storage.directory import StudyDirectory
from ..storage.ledger import Ledger
from ..storage.turn import MasterRunsError, acquired
from ..storage.whose import Use
from ..study.study import Study
from ..training.context import explains_its_call
from ..user_code.source import Found, ObjectiveSource
from .opening import MasterWaitsError, changes_nothing, opened
from .places import SETTINGS_OF_PROGRAMS, AskersPlaces, check_settings
from .session import Session
from .spaces import read_space
from .trial import AskedTrial, asked_trial, asked_trials

LEASE_SECONDS = 3600.0

_ASKS_SECONDS = 5.0
_ASKS_SLURM_SECONDS = 60.0
"""How long a program waits at most before it asks again; Slurm must not be asked often."""
_AS_ASKED = (
    FinishReason.DONE,
    FinishReason.EXHAUSTED,
    FinishReason.TIME_UP,
    FinishReason.BUDGET_SPENT,
)
"""How a study ends that nothing has stopped but its own limits."""


def open_study(
    path: str | os.PathLike[str],
    space: Any = None,
    objective: str | Sequence[str] | None = None,
    *,
    lease: str | float = LEASE_SECONDS,
    accept_space: bool = False,
    retry_failed: bool = False,
    **settings: Any,
) -> AskedStudy:
    """Open a study to ask it for trials and to tell their results; it is created if there is none.

    Any number of processes may do so, on all machines that see the directory. No process of hptune
    runs in between. What an existing study is given must be as it was, or be what a resumed study
    may change, such as a larger `trials`.

    Example::

        study = hptune.open_study(
            "studies/x",
            space={"lr": hptune.Float(1e-4, 0.1, sampling="log"), "units": hptune.Int(16, 256)},
            objective="val_loss:min",
            trials=100,
        )
        for trial in study.trials_to_run():
            with trial:
                for epoch in range(1, 11):
                    trial.report(epoch, val_loss=train(trial["lr"], trial["units"]))
                    if trial.should_stop():
                        break

    Args:
        path: The study's directory.
        space: The search space: a mapping of names to `hptune.Float`, `Int`, `Choice` (or a list),
            `Boolean` or fixed values; a function of `hp`; a .toml or .json file; or a model file.
            None for that of an existing study, or for what trials ask for by `trial.hp`.
        objective: The metric to optimise, such as "val_loss:min", or several.
        lease: How long a trial may report nothing before another program gets it, such as "1h".
        accept_space: Whether an existing study may continue in another search space.
        retry_failed: Whether the failed trials of an existing study begin again.
        settings: Options of `hptune run` by the names that `Tuner` gives them, but for those of
            workers: search, trials, epochs, pruner, budget, timeout, constraints, confirm, seed,
            start_points, warm_start, on_failure and others.

    Raises:
        UsageError: An argument is unknown or not allowed, or differs from what the study has.
        StudyError: It would change a study that a master runs, or the study cannot be written.
    """
    try:
        directory = StudyDirectory(path)
        given = _by_field(settings)
        if objective is not None:
            given["objectives"] = objective
        lease_seconds = _lease(lease)
        declared = None if space is None else read_space(space)
        if not directory.has_ledger:
            _create(directory, declared or read_space(None), given)
        session = Session(directory)
        changes = Changes(settings=given, accept_space=accept_space, retry_failed=retry_failed)
        open_session(session, changes, None if declared is None else declared[0])
    except HptuneError as error:
        error.message = in_python(error.message, OPEN_STUDY)
        error.args = (error.message, error.detail)
        raise
    return AskedStudy(session, lease_seconds=lease_seconds)


class AskedStudy(Study):
    """A study that this program asks for trials; also its results, as `Study` has them."""

    def __init__(self, session: Session, *, lease_seconds: float = LEASE_SECONDS) -> None:
        super().__init__(session.directory, _reader=session.reader)
        self.session = session
        self._lease_seconds = lease_seconds

    @overload
    def ask(self) -> AskedTrial: ...

    @overload
    def ask(self, count: int) -> list[AskedTrial]: ...

    def ask(self, count: int | None = None) -> AskedTrial | list[AskedTrial]:
        """Return the next trial, which no other program has; or up to `count` of them as a list.

        Raises:
            StudyOverError: The study has no more: its trials are over, or its budget is spent.
            NoTrialError: All trials that are left run in other programs; one may become free.
        """
        if count is not None and (not isinstance(count, int) or count < 1):
            raise UsageError(f"ask has the count {count!r}; allowed are whole numbers from 1 on")
        trials = asked_trials(self.session, count or 1, lease_seconds=self._lease_seconds)
        return trials[0] if count is None else trials

    @explains_its_call("study.tell(trial, loss=0.5)")
    def tell(
        self,
        trial: AskedTrial | int | str,
        *,
        failed: str | Exception | None = None,
        **metrics: Any,
    ) -> Trial:
        """Tell a trial's result, once.

        Args:
            trial: The trial, or its number if another process has asked for it.
            failed: Why it has no result, such as "diverged", or the exception; None if it has one.
            metrics: The result, by name; those of the last report need not be repeated.

        Raises:
            UsageError: A metric of the study is missing, or there is no such trial.
            StudyError: The trial is over already, or its lease was; nothing has changed.
        """
        of_this = self.asked_trial(trial)
        if failed is not None and metrics:
            raise UsageError("a trial is told either a result or why it failed, and not both")
        return of_this.tell(**metrics) if failed is None else of_this.fail(failed)

    def trials_to_run(self) -> Iterator[AskedTrial]:
        """Yield one trial after the other until the study is over.

        A trial that the loop did not tell is told by what it has reported. While other programs
        have all trials that are left, or the job of the study's master waits, this waits. It warns
        if failures or a user have stopped the study.
        """
        seconds = 0.1
        while True:
            try:
                trial = self.ask()
            except StudyOverError as over:
                if not (finish := self.session.finish) or finish.finish_reason not in _AS_ASKED:
                    warnings.warn(over.message, stacklevel=2)
                return
            except NoTrialError as none:
                time.sleep(seconds * random.uniform(0.5, 1.0))  # noqa: S311 - not all at once
                most = _ASKS_SLURM_SECONDS if isinstance(none, MasterWaitsError) else _ASKS_SECONDS
                seconds = min(2 * seconds, most)
                continue
            seconds = 0.1
            try:
                yield trial
            except GeneratorExit as left:
                trial.__exit__(GeneratorExit, left, None)
                raise
            trial.__exit__(None, None, None)

    def asked_trial(self, trial: AskedTrial | int | str) -> AskedTrial:
        """Return a trial that a program has asked for; see `trial.asked_trial`."""
        return asked_trial(self.session, trial)


def enlarge(session: Session, count: int, points: Sequence[Mapping[str, object]] = ()) -> None:
    """Let the study have this many trials more than it has begun, among them the points.

    Other programs may do so at the same moment: its total never becomes less. One that is being
    stopped stays as it is.
    """
    with session.guard, acquired(session.directory, is_brief=True) as lock:
        study = session.state.caught_up(lock)
        if study.engine.is_stopping and study.finish is None:
            return
        total = max(study.past.settings.budget_trials or 0, study.past.suggested + count)
        settings = {"trials": total} | ({"start_points": points} if points else {})
        session.finish = opened(session.state, study, lock, Changes(settings=settings)).finish


def open_again(directory: StudyDirectory, changes: Changes) -> str:
    """Open a study without code to programs, and return what the user is told.

    Raises:
        UsageError: It cannot be changed so.
    """
    directory.open(Use.RUN)
    check_settings(changes.settings)
    session = Session(directory)
    open_session(session, changes)
    if (finish := session.finish) is not None:
        is_all = finish.finish_reason is FinishReason.EXHAUSTED
        total = TOTALS.get(finish.finish_reason, "--trials")
        more = "" if is_all else f"; a larger {total} asks for more"
        return f"the study in {directory} is over: {finish.reason}{more}"
    return (
        f"the study in {directory} has no code that hptune could run. It is open: programs ask for "
        "its trials, by hptune.open_study in Python or by `hptune ask`"
    )


def open_session(session: Session, changes: Changes, found: Found | None = None) -> None:
    """Open the study for programs, unless it is open and nothing changes.

    One that has ended before all its trials were over continues. One that a master runs is
    open if nothing changes.

    Raises:
        UsageError: The study cannot be changed so.
        StudyError: A master runs the study, or its job waits, and something changes; or it
            cannot be written.
    """
    with session.guard:
        seen = session.state.seen()
        session.finish = seen.finish
        if seen.goes_on and changes_nothing(seen, changes, found):
            return
        try:
            with acquired(session.directory, is_brief=True) as lock:
                study = opened(session.state, session.state.caught_up(lock), lock, changes, found)
            session.finish = study.finish
        except (MasterRunsError, MasterWaitsError):
            seen = session.state.seen()
            session.finish = seen.finish
            if not changes_nothing(seen, changes, found):
                raise


def _lease(lease: str | float) -> float:
    try:
        return float(duration().read(lease))
    except (ValueError, TypeError):
        raise UsageError(f"lease is {lease!r}; allowed are {duration().allowed}") from None


def _by_field(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings by the names of the fields of `StudySettings`."""
    for name in given.keys() - FIELDS.keys():
        known = [each for each, field in FIELDS.items() if field in SETTINGS_OF_PROGRAMS]
        hint = did_you_mean(name, known) or " help(hptune.open_study) lists its arguments."
        raise UsageError(f"open_study has no argument {name!r}.{hint}")
    for name in ("search", "pruner"):
        if not isinstance(given.get(name), str | None):
            raise UsageError(f"{name} is {given[name]!r}; allowed are a name, and module:Name")
    fields = {FIELDS[name]: value for name, value in given.items()}
    check_settings(fields)
    return fields


def _create(
    directory: StudyDirectory, declared: tuple[Found, ObjectiveSource], given: Mapping[str, Any]
) -> None:
    """Create the study, unless another program does so at this moment."""
    found, source = declared
    settings = StudySettings(source=source, **given)
    if not settings.objectives and "OBJECTIVE" not in found.constants and not found.is_keras:
        raise UsageError('a new study needs its objective, such as objective="val_loss:min"')
    check_named(settings)
    check_budget_without_gpus(settings)  # a program is counted as one core
    plan = plan_start(resolve(asked(settings), found), AskersPlaces(), directory)
    try:
        directory.check_place()
        directory.create()
        with acquired(directory, is_brief=True) as lock:
            if not directory.has_ledger:
                facts = plan.first_facts(created_at=time.time())
                Ledger.create(directory, facts, lock=lock).close()
    except StudyExistsError:  # another program has created it since
        pass
    finally:
        directory.give_up()
