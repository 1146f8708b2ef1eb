"""Tuner: the Keras-like face of a study, for scripts and notebooks."""

from __future__ import annotations

import contextlib
import difflib
import inspect
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from .config.model_file import (
    BuildFunction,
    ObjectiveSource,
    SourceKind,
    StoredData,
    UserCode,
    save,
)
from .config.settings import StudySettings
from .config.validation import in_python
from .core.messages import FinishReason
from .core.trial import Direction
from .errors import UsageError
from .master.observers import RunDisplay
from .master.run import resume, start
from .reporting.terminal.display import make_progress
from .samplers.registry import AUTO
from .storage.directory import StudyDirectory, study_exists
from .study import Study

OBJECTIVE_FILE = "objective.pkl"
DATA_FILE = "data.joblib"

_SETTLED = {
    *("source", "working_directory", "search", "grid_resolution", "surrogate", "seed"),
    *("objectives", "constraints", "direction", "start_points", "warm_start", "priors"),
}
"""Settings that a study keeps when it is resumed."""


class Tuner:
    """Searches the hyperparameters of a model; `fit` takes what Keras's `fit` takes.

    For scripts and notebooks. Every trial trains in a process of its own, so `model_fn` and the
    data are sent there: the data as arrays, or as a function that makes them.

    >>> def build_model(hp):                                          # doctest: +SKIP
    ...     units = hp.Int("units", 32, 512, sampling="log")
    ...     model = keras.Sequential([keras.layers.Dense(units), keras.layers.Dense(10)])
    ...     model.compile("adam", "mse", metrics=["mae"])
    ...     return model
    >>> tuner = Tuner(build_model, objective="val_mae", trials=20)     # doctest: +SKIP
    >>> study = tuner.fit(x, y, validation_data=(xv, yv), epochs=10)   # doctest: +SKIP
    >>> study.best_trial.value, study.best_hyperparameters             # doctest: +SKIP

    Args:
        model_fn: `build_model(hp)` returning a compiled Keras model, a `keras_tuner.HyperModel`
            (class or instance), or `objective(hp, trial)` returning a number or metrics.
        objective: The metric to optimise, or several (each may be `metric:min` or `metric:max`),
            of which the Pareto front is sought; None for `val_accuracy` where the model measures
            it, `val_loss` elsewhere, and the returned number of an objective function.
        constraints: What to keep to, each such as "params<2e6".
        search: How to search, as `--search` of the command line; "auto" chooses.
        trials: The total number of trials; None for 50, or for the whole grid with
            `search="grid"`.
        direction: "max" or "min"; None to tell from the metric's name.
        directory: Where to keep the study; None for `studies/MODEL_FN-N`.
        resume: Go on with the study in `directory`, if there is one, with the model function as
            it is now (its search space may not have changed). Start points that were not tried
            yet are tried next.
        seed: Makes a run repeat itself.
        client: A `distributed.Client` whose workers to use; None to start workers here.
        quiet: Show no progress.
        settings: Further settings, named and described in `tuner.config.settings.StudySettings`:
            `connect`, `workers`, `cpus_per_trial`, `gpus_per_trial`, `memory_per_trial_bytes`,
            `pack`, `executor`, `timeout_seconds`, `trial_timeout_seconds`, `max_failures`,
            `same_failure_limit`, `grid_resolution`, `surrogate`, `confirm`, `confirm_repeats`,
            `pruner`, `reduction_factor`, `min_epochs`, `brackets`, `pruner_mode`,
            `start_points`, `warm_start`, `priors`.

    Raises:
        UsageError: A setting makes no sense.
    """

    def __init__(
        self,
        model_fn: Any,
        objective: str | Sequence[str] | None = None,
        *,
        constraints: Sequence[str] = (),
        search: str = AUTO,
        trials: int | None = None,
        direction: str | None = None,
        directory: str | os.PathLike[str] | None = None,
        resume: bool = False,
        seed: int | None = None,
        client: Any = None,
        quiet: bool = False,
        **settings: Any,
    ) -> None:
        self._code = _user_code(model_fn)
        self._name = getattr(model_fn, "__name__", type(model_fn).__name__)
        self._directory = None if directory is None else StudyDirectory(directory)
        self._resume = resume
        self._client = client
        self._quiet = quiet
        if direction not in (None, "max", "min"):
            raise UsageError(f"direction is {direction!r}; allowed are 'max' and 'min'")
        _check_names(settings)
        with _in_words_of_python():
            self._settings = StudySettings(
                source=ObjectiveSource(SourceKind.PICKLE, OBJECTIVE_FILE),
                working_directory=str(Path.cwd()),
                search=search,
                trials=trials,
                objectives=_texts(objective),
                constraints=_texts(constraints),
                direction=None if direction is None else Direction(direction),
                seed=seed,
                **settings,
            )

    def fit(
        self,
        x: Any = None,
        y: Any = None,
        *,
        validation_data: Any = None,
        epochs: int | None = None,
        sample_weight: Any = None,
        **fit_arguments: Any,
    ) -> Study:
        """Run the study.

        Args:
            x: Training inputs: an array, or lists or dicts of arrays; or a function without
                arguments that returns `(train, validation)`, each arrays or a dataset, and is
                called in each trial.
            y: Training targets.
            validation_data: `(x, y)` or `(x, y, sample_weight)`.
            epochs: Epochs of a trial, at most; None for 10.
            sample_weight: Weights of the training samples.
            fit_arguments: Further arguments of Keras's `fit`, such as `batch_size`,
                `class_weight`, `validation_split` or `callbacks`.

        Returns:
            The study, with its best trial, model and table of trials.

        Raises:
            UsageError: The model function, the data or a setting is wrong.
            StudyError: The study could not go on; `resume=True` goes on with it.
            KeyboardInterrupt: It was interrupted; `resume=True` goes on with it.
        """
        progress = make_progress(sys.stderr, quiet=self._quiet)
        watch = RunDisplay(progress, is_quiet=self._quiet)
        directory = self._directory or StudyDirectory.free(self._name)
        settings = self._settings if epochs is None else replace(self._settings, epochs=epochs)
        settings = settings.found_in(directory.path)
        exists = directory.database.exists()
        if exists and not self._resume:
            raise study_exists(directory)
        try:
            # A study that is resumed without data goes on with what it was given before.
            if not exists or x is not None:
                if exists:
                    # Not while a master's trials read them.
                    directory.acquire().release()
                load_data = _load_data(directory, x, y, validation_data, sample_weight)
                code = replace(self._code, load_data=load_data, fit_arguments=fit_arguments)
                save(code, directory.path / OBJECTIVE_FILE)
            with _in_words_of_python():
                if exists:
                    result = resume(
                        directory,
                        _changes(settings),
                        watch=watch,
                        tries=settings.start_points,
                        client=self._client,
                    )
                else:
                    result = start(settings, directory, watch=watch, client=self._client)
        finally:
            if not directory.database.exists():
                for name in (OBJECTIVE_FILE, DATA_FILE):
                    (directory.path / name).unlink(missing_ok=True)
                directory.give_up()
        if result.finish.finish_reason is FinishReason.INTERRUPTED:
            raise KeyboardInterrupt(result.finish.reason)
        return Study(directory)


@contextlib.contextmanager
def _in_words_of_python() -> Iterator[None]:
    try:
        yield
    except UsageError as error:
        error.message = in_python(error.message)
        error.args = (error.message, error.detail)
        raise


def _load_data(
    directory: StudyDirectory, x: Any, y: Any, validation: Any, sample_weight: Any
) -> Callable[[], Any] | None:
    """What the trials' processes get their data from; arrays are written beside the study."""
    directory.path.mkdir(parents=True, exist_ok=True)
    if x is None or (callable(x) and y is None):
        load: Callable[[], Any] | None = x
        return load
    train = (x,) if y is None else (x, y)
    if sample_weight is not None:
        train = (*train, sample_weight)
    return StoredData.store((train, validation), directory.path / DATA_FILE)


def _texts(said: str | Sequence[str] | None) -> tuple[str, ...]:
    if said is None:
        return ()
    return (said,) if isinstance(said, str) else tuple(said)


def _user_code(model_fn: Any) -> UserCode:
    if inspect.isclass(model_fn) and hasattr(model_fn, "build"):
        return UserCode(hypermodel=model_fn())
    if hasattr(model_fn, "build"):
        return UserCode(hypermodel=model_fn)
    if not callable(model_fn):
        raise UsageError(
            f"model_fn is {model_fn!r}; allowed are build_model(hp), a HyperModel, or "
            "objective(hp, trial)"
        )
    needed = [
        parameter
        for parameter in inspect.signature(model_fn).parameters.values()
        if parameter.default is parameter.empty
        and parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
    ]
    if len(needed) == 2:
        return UserCode(objective=model_fn)
    return UserCode(hypermodel=BuildFunction(model_fn))


_MEANT = {"study": "directory", "max_trials": "trials", "metric": "objective"}


def _check_names(settings: Mapping[str, Any]) -> None:
    own = set(inspect.signature(Tuner).parameters) - {"model_fn", "settings"}
    hidden = {"source", "working_directory", "objectives"}
    known = own | (set(StudySettings.__dataclass_fields__) - hidden)
    for name in settings:
        if name not in known:
            near = difflib.get_close_matches(name, known, 1)
            meant = _MEANT.get(name) or (near[0] if near else "")
            hint = f"did you mean {meant}? " if meant else ""
            raise UsageError(f"Tuner knows no {name!r}; {hint}it takes {', '.join(sorted(known))}")


def _changes(settings: StudySettings) -> dict[str, Any]:
    """What a resumed study takes over of settings given anew."""
    values = {name: getattr(settings, name) for name in StudySettings.__dataclass_fields__}
    return {name: v for name, v in values.items() if name not in _SETTLED and v is not None}
