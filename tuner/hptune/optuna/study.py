"""Studies as Optuna's scripts create and run them."""

from __future__ import annotations

import contextlib
import gc
import math
import multiprocessing
import os
import random
import secrets
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import optuna.study
from optuna.distributions import BaseDistribution
from optuna.exceptions import DuplicatedStudyError
from optuna.trial import FrozenTrial, Trial, TrialState

from ..ask_tell.study import enlarge, open_study
from ..ask_tell.trial import AskedTrial
from ..core.attempt import Cause, Ending
from ..core.messages import FinishReason
from ..core.space.parameters import Parameter
from ..core.trial import TrialState as State
from ..errors import NoTrialError, StudyOverError, TrialOverError, UsageError
from ..storage.directory import StudyDirectory
from ..text import plural
from ..training.context import stated_cause
from ..training.results import metrics_of
from . import pruners, samplers
from .distributions import enqueued
from .jobs import WAIT_SECONDS, run_trials
from .missing import beside, refuse, refused
from .results import VALUE, Results
from .running_trial import RunningTrial
from .storages import folder_of, logger, names_in

__getattr__ = beside(globals(), optuna.study)

_WHERE = "a study of hptune.optuna"
_LEASE = "7d"
"""How long a trial may report nothing: those of Optuna need not report."""
_MANY = 1000
"""Trials that an endless study is enlarged by at a time."""

Callback = Callable[["Study", FrozenTrial], None]


class Study(optuna.study.Study):
    """A study that a script of Optuna runs; `hptune_study` has all that hptune knows of it.

    Args:
        directory: The study's directory.
        settings: What a new study gets.

    Attributes:
        study_name: The name of the directory.
        enqueued: Configurations to try next, given whole or in part.
        results: The storage from which Optuna's own methods read results.
    """

    _study_id = 0  # of the only study in the storage
    add_trial: Any = refused(_WHERE, "add_trial")
    set_metric_names: Any = refused(_WHERE, "set_metric_names")
    sampler: Any = property(refused(_WHERE, "sampler"))
    pruner: Any = property(refused(_WHERE, "pruner"))

    def __init__(self, directory: Path, **settings: Any) -> None:
        self.study_name = directory.name
        self.hptune_study = open_study(directory, lease=_LEASE, **settings)
        self.hptune_study.session.ends_with_process = True
        self.enqueued: list[Mapping[str, Any]] = []
        self._is_stopped = multiprocessing.RawValue("b", False)  # the processes of trials share it
        self._storage = self.results = Results(StudyDirectory(directory), self.hptune_study.goals)
        self._directions = self.results.get_study_directions(self._study_id)
        self._last: RunningTrial | None = None
        self._thread = threading.local()

    def __reduce__(self) -> Any:
        return type(self), (self.results.folder.parent,)

    # --- trials ---------------------------------------------------------------------------------

    def optimize(
        self,
        func: Callable[[Trial], Any],
        n_trials: int | None = None,
        timeout: float | None = None,
        n_jobs: int = 1,
        catch: type[Exception] | Iterable[type[Exception]] = (),
        callbacks: Iterable[Callback] | None = None,
        gc_after_trial: bool = False,
        show_progress_bar: bool = False,
    ) -> None:
        """Run trials in this process, or with `n_jobs` each in one of its own.

        The arguments are those of Optuna. Callbacks run in this process.
        """
        del show_progress_bar  # a line on each trial shows the progress
        if getattr(self._thread, "is_optimizing", False):
            raise UsageError(
                "study.optimize was called by an objective or a callback of the same study; create "
                "another study for it"
            )
        caught = (catch,) if isinstance(catch, type) else tuple(catch)
        until = math.inf if timeout is None else time.monotonic() + timeout
        self._is_stopped.value = False

        def run(trial: RunningTrial) -> Exception | None:
            error = self._run(func, trial)
            return None if isinstance(error, caught) else error

        def ended(trial: RunningTrial, error: Exception | None) -> None:
            self._show(trial.number)
            if gc_after_trial:
                gc.collect()
            if error is not None:
                raise error
            for callback in callbacks or ():
                callback(self, self.results.get_trial(trial.number))

        self._thread.is_optimizing = True
        try:
            jobs = n_jobs if n_jobs > 0 else len(os.sched_getaffinity(0))
            trials = self._to_run(n_trials, until)
            run_trials(trials, run, ended, jobs=jobs, caught=caught)
        finally:
            self._thread.is_optimizing = False

    def stop(self) -> None:
        """Begin no more trials in the present `optimize`."""
        self._is_stopped.value = True

    def ask(self, fixed_distributions: dict[str, BaseDistribution] | None = None) -> RunningTrial:
        """Return a trial to run.

        Raises:
            StudyOverError: All configurations are tried, or the study was stopped.
        """
        while (trial := self._next(1)) is None:
            if self._last and not self._last.asked.is_over and not len(self.hptune_study.space):
                raise UsageError(
                    f"trial {self._last.number} has no hyperparameters yet, so another one would "
                    "be the same; call its suggest methods before the next ask"
                )
            time.sleep(WAIT_SECONDS)
        for name, distribution in (fixed_distributions or {}).items():
            trial.suggest(name, distribution)
        return trial

    def _to_run(self, count: int | None, until: float) -> Iterator[RunningTrial | None]:
        """Yield trials until `optimize` is over; None while other programs have all."""
        left = math.inf if count is None else count
        while left > 0 and time.monotonic() < until and not self._is_stopped.value:
            try:
                trial = self._next(int(min(left, _MANY)))
            except StudyOverError:
                return
            left -= trial is not None
            yield trial

    def _next(self, more: int) -> RunningTrial | None:
        """Return a trial; None if other programs have all that are left.

        Args:
            more: How many trials the study is enlarged by if it has no more.
        """
        study, params = self.hptune_study, self.enqueued[0] if self.enqueued else {}
        begun, point = self._last.number if self._last else 0, dict[str, Any]()
        draw = random.Random(f"{begun} {params}").random  # noqa: S311 - of the point

        def value_of(active: Parameter) -> Any:
            point.update(enqueued(active, self.results.declared(active.name), params))
            return point.get(active.name, active.from_unit(draw()))  # as in Optuna

        whole = study.space.configure(value_of) if params else {}
        if point:
            enlarge(study.session, 1, [whole])
        for _ in range(2):
            try:
                trial = RunningTrial(self, study.ask(), params)
            except NoTrialError as none:
                finish, is_over = study.session.finish, isinstance(none, StudyOverError)
                if is_over and not (finish and finish.finish_reason is FinishReason.DONE):
                    logger.info(none.message)
                    raise
                tried = self._last.number if self._last else 0
                enlarge(study.session, max(more, tried))  # each time, all events are read again
            else:
                del self.enqueued[:1]
                self._last = trial
                return trial
        study.session.end_gone()
        return None

    def enqueue_trial(
        self,
        params: Mapping[str, Any],
        user_attrs: dict[str, Any] | None = None,
        skip_if_exists: bool = False,
    ) -> None:
        """Try a configuration, given whole or in part, in this process's next trial."""
        if user_attrs:
            refuse("hptune.optuna", "user_attrs of enqueue_trial", "set them in the objective")
        if not skip_if_exists or params not in [trial.params for trial in self.trials]:
            self.enqueued.append(params)

    def _run(self, objective: Callable[[Trial], Any], trial: RunningTrial) -> Exception | None:
        """Run a trial, and return the error with which it failed."""
        try:
            trial.asked.end(self._ending(objective(trial)))
        except Exception as error:  # of the user's code
            if stated_cause(error) is Cause.PRUNED:
                trial.asked.end(_pruned(trial.asked))
                return None
            with contextlib.suppress(TrialOverError):
                trial.asked.fail(error)
            return error
        except BaseException:
            trial.give_back()
            raise
        return None

    def tell(
        self,
        trial: Trial | int,
        values: Any = None,
        state: TrialState | None = None,
        skip_if_finished: bool = False,
    ) -> FrozenTrial:
        """Tell a trial's result, or that it failed or was pruned."""
        number = trial if isinstance(trial, int) else trial.number
        try:
            asked = self.hptune_study.asked_trial(getattr(trial, "asked", number))
            if state is TrialState.FAIL:
                ending = Ending(Cause.EXCEPTION, reason="the script told that it failed")
            else:
                is_pruned = state is TrialState.PRUNED
                ending = _pruned(asked) if is_pruned else self._ending(values)
            asked.end(ending)
        except TrialOverError:
            if not skip_if_finished:
                raise
        return self.results.get_trial(number)

    def _ending(self, result: Any) -> Ending:
        results = tuple(result) if isinstance(result, tuple | list) else (result,)
        metrics = [goal.metric for goal in self.hptune_study.goals.objectives]
        measured = metrics_of(results, "", metrics)
        if measured is None:
            allowed = f"allowed are {plural(len(metrics), 'number')}"
            reason = f"the objective returned {result!r}; {allowed}"
            return Ending(Cause.EXCEPTION, reason=reason)
        return Ending(Cause.RETURNED, measured)

    def _show(self, number: int) -> None:
        trial = self.hptune_study.trial(number)
        show = logger.warning if trial.state is State.FAILED else logger.info
        result = ", ".join(map(str, trial.values)) or trial.reason or "no result"
        show("trial %d %s: %s, %s", number, str(trial.state).lower(), result, trial.used)


def _pruned(trial: AskedTrial) -> Ending:
    halt = trial.halt
    return halt.ending if halt else Ending(Cause.PRUNED, reason="the script ended it")


def create_study(
    *,
    storage: Any = None,
    sampler: Any = None,
    pruner: Any = None,
    study_name: str | None = None,
    direction: Any = None,
    load_if_exists: bool = False,
    directions: Sequence[Any] | None = None,
) -> Study:
    """Create a study, whose directory follows from `storage` and `study_name`.

    Without `storage`, it is a new directory in `studies`.

    Raises:
        DuplicatedStudyError: It exists, and `load_if_exists` is False.
        UsageError: The storage, sampler or pruner has no counterpart.
    """
    goals = [_direction(goal) for goal in directions or [direction or "minimize"]]
    metrics = [VALUE] if len(goals) == 1 else [f"{VALUE}_{i}" for i in range(len(goals))]
    settings = {**samplers.settings_of(sampler), **pruners.settings_of(pruner, goals=len(goals))}
    folder = folder_of(storage)
    if study_name in (".", "..") or "/" in (study_name or ""):
        raise UsageError(f"study_name is {study_name!r}; allowed are names of a directory")
    if folder is None:
        path = StudyDirectory.free(study_name or "study").path
    else:
        path = folder / (study_name or f"study-{secrets.token_hex(4)}")
    if StudyDirectory(path).has_ledger:
        if load_if_exists:
            return Study(path)
        raise DuplicatedStudyError(
            f"the study {path.name!r} exists in {folder}; continue it with load_if_exists=True, "
            "or give another study_name"
        )
    logger.info("the study is in %s", path)
    objective = [f"{metric}:{goal}" for metric, goal in zip(metrics, goals, strict=True)]
    try:
        return Study(path, objective=objective, trials=1, same_failures=0, **settings)
    except UsageError:
        if load_if_exists and StudyDirectory(path).has_ledger:  # of another process since
            return Study(path)
        raise


def _direction(direction: Any) -> str:
    """Return a direction as an objective names it.

    >>> _direction("maximize"), _direction(StudyDirection.MINIMIZE)
    ('max', 'min')
    """
    name = str(getattr(direction, "name", direction)).lower()
    if name not in ("minimize", "maximize"):
        raise UsageError(f"direction is {direction!r}; allowed are 'minimize' and 'maximize'")
    return name[:3]


def load_study(
    *, study_name: str | None = None, storage: Any, sampler: Any = None, pruner: Any = None
) -> Study:
    """Load a study; it keeps the sampler and the pruner that it was created with.

    Raises:
        KeyError: There is none of this name, or no name is given and there are several.
    """
    del sampler, pruner
    folder = folder_of(storage)
    names = names_in(folder)
    name = names[0] if study_name is None and len(names) == 1 else study_name
    if folder is None or name not in names:
        raise KeyError(f"there is no study {study_name!r} in {folder}; there are {names}")
    return Study(folder / str(name))


def get_all_study_names(storage: Any) -> list[str]:
    """Return the names of the studies in a storage."""
    return names_in(folder_of(storage))
