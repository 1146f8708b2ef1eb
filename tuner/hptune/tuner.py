"""Tuner: a study in Python, for scripts and notebooks; its `fit` is like that of Keras."""

from __future__ import annotations

import inspect
import os
import textwrap
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .clusters.choice import choose_cluster
from .config.asked import Asked, asked
from .config.other_tuners import argument_meant, our_method
from .config.plugins import Given
from .config.reference import NAMED, arguments_text, in_python, parameters, resume_call
from .config.settings import BY_NAME, FIELDS, StudySettings
from .core.messages import FinishReason
from .core.notice import Notice
from .core.trial import TrialState
from .errors import HptuneError, ObjectiveFailedError, UsageError
from .master.observers import RunDisplay
from .master.plan import check_named
from .master.resume_plan import Changes
from .master.run import RunResult, resume, start
from .master.workforce import check_workers
from .registry import shown_name
from .reporting.results.summary import closing_text, why_without_result
from .reporting.terminal.display import print_end, progress_on, progress_stream
from .reporting.terminal.progress import Progress, RunHeader
from .storage.directory import StudyDirectory, study_exists
from .storage.replacing import replacing
from .study.study import Study
from .training.fit_data import DATA_FILE, DATASETS, store_fit_data
from .user_code.entry_points import EntryPoint, read_entry
from .user_code.model_file import UserCode, save, user_code
from .user_code.search_arguments import check_fit_arguments, read_hyperparameters
from .user_code.source import ObjectiveSource, SourceKind
from .user_code.user_errors import first_argument

if TYPE_CHECKING:  # types of arguments, for type checkers alone
    from typing import Unpack

    from .config.tuner_settings import TunerSettings

OBJECTIVE_FILE = "objective.pkl"
CODE_AND_DATA = (OBJECTIVE_FILE, DATA_FILE, *DATASETS)


class Tuner:
    """Searches the hyperparameters of a model; `fit` takes what Keras's `fit` takes.

    Each trial trains in its own process. `model_fn` is pickled for it; the data are arrays, which
    all trials on a machine share, or a function that makes them.

    Example::

        def build_model(hp):
            units = hp.Int("units", 32, 512, sampling="log")
            model = keras.Sequential([keras.layers.Dense(units), keras.layers.Dense(10)])
            model.compile("adam", "mse", metrics=["mae"])
            return model

        tuner = Tuner(build_model, objective="val_mae", trials=20)
        study = tuner.fit(x, y, validation_data=(xv, yv), epochs=10)
        study.best_trial.value, study.best_hyperparameters

    The arguments after `metrics` are the options of `hptune run`, by the same names; those that
    few studies need come last. Times and sizes may be texts ("10m", "8GB") or numbers (seconds,
    bytes).

    Args:
        model_fn: `build_model(hp)` that returns a compiled Keras model, a `keras_tuner.HyperModel`
            (class or instance), or `objective(hp, trial)` that returns a number or metrics.
        directory: Directory of the study, as `--study` of the command; None for
            `studies/MODEL_FN-N`.
        quiet: Show no progress.
        resume: Continue the study in `directory` if there is one, with the model function as it is
            now; if its data were given to `fit` and are not given again, with those and the model
            function that are stored. The search space must be the same unless `accept_space` is
            True, and so must each setting that a resumed study cannot change, such as `search`, if
            it is given. Start points that were not tried yet are tried next.
        accept_space: With `resume`: continue although the model function declares another search
            space than before; finished trials stay.
        retry_failed: With `resume`: let the trials that have failed begin again, and use nodes
            again that were excluded.
        client: A `distributed.Client` whose workers to use; None to start workers here.
        hyperparameters: A `HyperParameters` object whose declarations replace those of the same
            name in the model function, or a dict of fixed values by name.
        tune_new_entries: Whether to search the hyperparameters that only the model function
            declares; if not, they keep their defaults.
        loss: The loss to compile each model with, instead of its own.
        optimizer: The optimizer to compile each model with, instead of its own.
        metrics: The metrics to compile each model with, instead of its own.

    Raises:
        UsageError: An argument is unknown or its value is not allowed.
    """

    _function = ""
    """What messages call `model_fn`; empty for its own name."""

    def __init__(
        self,
        model_fn: Any,
        objective: str | Sequence[str] | None = None,
        *,
        directory: str | os.PathLike[str] | None = None,
        resume: bool = False,
        accept_space: bool = False,
        retry_failed: bool = False,
        client: Any = None,
        quiet: bool = False,
        hyperparameters: Any = None,
        tune_new_entries: bool = True,
        loss: Any = None,
        optimizer: Any = None,
        metrics: Any = None,
        **settings: Unpack[TunerSettings],
    ) -> None:
        compiled = {"loss": loss, "optimizer": optimizer, "metrics": metrics}
        name = getattr(model_fn, "__name__", type(model_fn).__name__)
        self._name = name if name.isidentifier() else "study"  # not for a lambda
        is_named = name.isidentifier() and callable(model_fn)
        of_user = name if is_named else first_argument(inspect.currentframe())
        self._function = self._function or of_user
        self._directory = None if directory is None else StudyDirectory(directory)
        self._resume = resume
        self._changes = Changes(accept_space=accept_space, retry_failed=retry_failed)
        self._client = client
        self._quiet = quiet
        named = {} if objective is None else {"objective": objective}
        given: dict[str, Any] = {**settings, **named}
        try:
            self._things = _things(given)
            given |= {name: each.name for name, each in self._things.items()}
            self._code = replace(
                _user_code(model_fn),
                hyperparameters=read_hyperparameters(hyperparameters, given_to="hyperparameters"),
                tune_new_entries=tune_new_entries,
                compile_arguments={k: v for k, v in compiled.items() if v is not None},
            )
            if self._code.objective is not None and self._code.compile_arguments:
                raise UsageError(
                    f"{' and '.join(self._code.compile_arguments)} of Tuner would compile a Keras "
                    f"model, but {self._code.entry}(hp, trial) trains by itself; use them there, "
                    "and leave them out here"
                )
            self._check_place(given)
            self._given = _by_field(given)
            self._settings = StudySettings(
                source=ObjectiveSource(SourceKind.PICKLE, OBJECTIVE_FILE), **self._given
            )
            self._asked: Asked | None = None
            if not (self._directory and self._directory.database.exists()):
                self._asked = asked(self._settings)
                check_named(self._settings)
                where = Path() if self._directory is None else self._directory.path
                check_workers(self._asked, choose_cluster(self._asked, where, client))
        except UsageError as error:
            raise self._in_python(error) from None

    if not TYPE_CHECKING:  # type checkers know the attributes

        def __getattr__(self, name: str) -> Any:
            hint = our_method(name)
            words = f"Tuner has no attribute {name!r}" + (f"; {hint}" if hint else "")
            raise AttributeError(words, name=name, obj=self)

    def __repr__(self) -> str:
        shown = []
        for name in self._given:
            value, setting = getattr(self._settings, name), BY_NAME[name]
            if name in self._things:
                value = shown_name(value)
            if isinstance(value, str | float):  # as a user writes it, such as 10m
                value = setting.kind.show(value)
            shown.append(f"{setting.argument}={value!r}")
        where = [] if self._directory is None else [f"directory={str(self._directory.path)!r}"]
        return f"Tuner({', '.join((self._name, *shown, *where))})"

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
            x: Training inputs: an array, or lists or dicts of arrays; a `tf.data.Dataset`, which is
                stored as one pass over it gives its batches, and each epoch of each trial reads
                these; another object that gives batches, such as a `PyDataset`, of which each
                trial has a copy; or a function without arguments that returns
                `(train, validation)`, each arrays or a dataset, and is called in each trial.
            y: Training targets.
            validation_data: `(x, y)`, `(x, y, sample_weight)`, or a dataset as for `x`.
            epochs: Largest number of epochs of a trial; None for that of the settings.
            sample_weight: Weights of the training samples.
            fit_arguments: Further arguments of Keras's `fit`, such as `batch_size`,
                `class_weight`, `validation_split` or `callbacks`.

        Returns:
            The study, with its best trial, model and table of trials.

        Raises:
            UsageError: The model function, the data, an argument or a setting is wrong.
            StudyError: The study cannot continue; with `resume=True` it can later.
            KeyboardInterrupt: The study was interrupted; with `resume=True` it continues.
        """
        given = self._given if epochs is None else {**self._given, "epochs": epochs}
        directory = self._directory

        def code(directory: StudyDirectory) -> UserCode:
            steps = fit_arguments.get("steps_per_epoch"), fit_arguments.get("validation_steps")
            given = (x, y, sample_weight)
            load_data = store_fit_data(directory.path, given, validation_data, steps)
            return replace(self._code, load_data=load_data, fit_arguments=fit_arguments)

        try:
            self._check_fit(x, fit_arguments, epochs)
            directory = directory or StudyDirectory.free(self._name)
            with progress_on(progress_stream(), quiet=self._quiet) as progress:
                result = self._run(directory, given, code, progress, has_data=x is not None)
            if result.finish.finish_reason is FinishReason.INTERRUPTED:
                raise KeyboardInterrupt
            return self._ended(result, directory)
        except HptuneError as error:
            raise self._in_python(error) from None
        except KeyboardInterrupt:
            raise KeyboardInterrupt(self._interrupted(directory)) from None

    def _run(
        self,
        directory: StudyDirectory,
        given: Mapping[str, Any],
        code: Callable[[StudyDirectory], UserCode],
        progress: Progress,
        *,
        has_data: bool,
    ) -> RunResult:
        display = RunDisplay(_PythonProgress(progress, self._function), is_quiet=self._quiet)
        settings = replace(self._settings, **given)
        exists = directory.database.exists()
        if exists and not self._resume:
            raise study_exists(directory)
        if not exists and (self._asked is None or self._asked.settings != settings):
            self._asked = asked(settings)
        # A model that is resumed without data uses the code and the data that are stored.
        has_own = (directory.path / DATA_FILE).exists()
        code_alone = self._code.objective or (self._code.owns_fit and not has_own)
        is_given = not exists or has_data or code_alone
        if not (exists or has_data or self._code.objective or self._code.owns_fit):
            raise UsageError(
                f"fit has no data, and there is no study in {directory} whose data it could "
                "use; pass x and y, or a function that returns (train, validation)"
            )
        if not is_given and not display.is_quiet:
            display.note("fit has no data, so the model function is that of the study")
        things = self._things.values()

        def store() -> None:
            if is_given:
                save(code(directory), directory.path / OBJECTIVE_FILE)
            for thing in things:
                thing.store(directory.path)

        files = [thing.file(directory.path) for thing in things]
        stored = partial(replacing, directory, CODE_AND_DATA, files, store)
        if not exists:
            assert self._asked, "a new study was asked for"
            request = replace(self._asked, settings=settings.found_in(directory.path))
            return start(request, directory, display=display, client=self._client, stored=stored)
        # A client takes the place of the workers that the study had. Relative paths start where
        # the script runs now, as in the script itself.
        place = {} if self._client is None else {"cluster": BY_NAME["cluster"].default}
        place["working_directory"] = settings.working_directory
        source = {"source": settings.found_in(directory.path).source} if is_given else {}
        changes = replace(self._changes, settings={**given, **source, **place})
        return resume(directory, changes, display=display, client=self._client, stored=stored)

    def _check_fit(self, x: Any, fit_arguments: Mapping[str, Any], epochs: int | None) -> None:
        check_fit_arguments(fit_arguments, self._code.hypermodel, given_to="fit()")
        chosen = self._settings.epochs
        if epochs is not None and chosen not in (None, epochs):
            raise UsageError(f"Tuner has epochs={chosen}, but fit has epochs={epochs}; give one")
        if self._code.objective is not None and (x is not None or fit_arguments):
            raise UsageError(
                f"{self._code.entry}(hp, trial) trains by itself, so fit() takes no data and no "
                "arguments of Keras's fit; use them in the function"
            )

    def _ended(self, result: RunResult, directory: StudyDirectory) -> Study:
        """Show the results and return the study.

        Raises:
            ObjectiveFailedError: It has none, because its trials failed.
        """
        if result.left_behind:
            warnings.warn(result.left_behind, stacklevel=3)
        study = Study(directory)
        view = replace(study.view(), worded=partial(in_python, function=self._function))
        if view.counts.get(TrialState.FAILED) and view.best is None:
            raise ObjectiveFailedError(*why_without_result(view, result.finish))
        if not self._quiet:
            end = closing_text(view, result.finish, command=self._shown_command)
            print_end(end, progress_stream())
        return study

    def _shown_command(self, command: str) -> str:
        """Return what the end of a run shows for a command; empty for nothing."""
        return resume_call(command, self._function)

    def _check_place(self, settings: Mapping[str, Any]) -> None:
        if self._resume and self._directory is None:
            raise UsageError(
                "resume is True, but directory is not given; name the study to continue, such as "
                f"directory='studies/{self._name}-1'"
            )
        for name, is_given, lacks in (
            ("accept_space", self._changes.accept_space, "search space yet"),
            ("retry_failed", self._changes.retry_failed, "failed trials"),
        ):
            if is_given and not self._resume:
                raise UsageError(
                    f"{name} is True, but a new study has no {lacks}; give resume=True with it, "
                    "and the study's directory"
                )
        places = ("cluster", "connect", "slurm", "workers", "executor")
        sources = [name for name in places if settings.get(name) is not None]
        if self._client is not None and not hasattr(self._client, "scheduler_info"):
            raise UsageError(f"client is {self._client!r}; allowed is a distributed.Client")
        if self._client is not None and sources:
            raise UsageError(
                f"both client and {sources[0]} are given, but workers come from one place; give "
                "one of them"
            )

    def _in_python(self, error: HptuneError) -> HptuneError:
        """Return the error with the words of Python, and without hptune's frames."""
        error.message = in_python(error.message, self._function)
        error.args = (error.message, error.detail)
        return error.with_traceback(None)

    def _interrupted(self, directory: StudyDirectory | None) -> str:
        """Return how far the study came, and the line that continues it."""
        if directory is None or not directory.database.exists():
            return "interrupted before the study began"
        go_on = resume_call(f"hptune resume {directory}", self._function)
        return f"interrupted: {Study(directory).view().progress}. Continue with: {go_on}"


class _PythonProgress:
    """A display that names arguments for options."""

    def __init__(self, shown: Progress, function: str) -> None:
        self._shown = shown
        self._in_python = partial(in_python, function=function)
        self.busy = shown.busy
        self.update = shown.update
        self.stop = shown.stop

    def start(self, header: RunHeader) -> None:
        """Show what the run is about."""
        self._shown.start(replace(header, notes=[self._in_python(note) for note in header.notes]))

    def note(self, notice: Notice) -> None:
        """Show one line that stays."""
        self._shown.note(replace(notice, text=self._in_python(notice.text)))


def _user_code(model_fn: Any) -> UserCode:
    name = getattr(model_fn, "__name__", "model_fn")
    return user_code(EntryPoint(name, *read_entry(name, model_fn)))


_PLUG_INS = {each.what: each for each in NAMED.values()}
"""Arguments that name something, or are it."""


def _things(arguments: Mapping[str, Any]) -> dict[str, Given]:
    """Return the classes, functions and objects among the arguments that may also be names."""
    return {
        name: Given(registry, arguments[name])
        for name, registry in _PLUG_INS.items()
        if not isinstance(arguments.get(name), str | None)
    }


def _by_field(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return keyword arguments by the names of the fields of `StudySettings`."""
    for name in arguments.keys() - FIELDS.keys():
        hint = argument_meant(name, inspect.signature(Tuner).parameters)
        words = hint or "help(hptune.Tuner) lists its arguments"
        raise UsageError(f"Tuner has no argument {name!r}; {words}")
    return {FIELDS[name]: value for name, value in arguments.items()}


def _show_settings() -> None:
    """Put all settings into the docstring and the signature of `Tuner`."""
    own = inspect.signature(Tuner.__init__)
    first = [*own.parameters.values()][:-1]  # the last one stands for the settings
    more = [parameter for parameter in parameters() if parameter.name not in own.parameters]
    signature = own.replace(parameters=[*first, *more])
    Tuner.__init__.__signature__ = signature  # type: ignore[attr-defined]  # read by inspect
    Tuner.__doc__ = f"{Tuner.__doc__}\n{textwrap.indent(arguments_text(), '    ')}"


_show_settings()
