"""KerasTuner's tuners, with hptune to run the trials: `from hptune import keras_tuner as kt`.

`RandomSearch`, `GridSearch`, `BayesianOptimization`, `Hyperband` and `Tuner` take the arguments of
KerasTuner's, and all settings of `hptune.Tuner` as further keywords. Every other name, such as
`HyperModel`, `Objective` or `oracles`, is that of the installed package, whose oracles also check
the arguments. So a script changes one import, or none with `hptune run script.py`.

Nothing here imports KerasTuner, and with it Keras, before a script uses one of these names. The
models are built and trained in the trials' processes alone.

Offers: these names, and `script.run_script`.

May import: `errors`, `core`, `config`, `user_code`, `keras_tuner`, `master`, `reporting`,
`storage`, `study`, `training`, `tuner`.
"""

from __future__ import annotations

import copy
import inspect
import os
import shutil
import sys
import tempfile
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from ..core.spelling import nearest_name
from ..errors import HptuneError, StudyError, UsageError
from .oracle_settings import directed, library, settings_of

if TYPE_CHECKING:  # a trial's process loads this module for its names, and needs no study
    from ..core.trial import Trial
    from ..study.study import Study
    from ..tuner import Tuner as HptuneTuner

__all__ = [
    "BayesianOptimization", "GridSearch", "Hyperband", "RandomSearch", "SklearnTuner", "Tuner",
]  # fmt: skip

_FIT = ("x", "y", "batch_size", "epochs", "verbose", "callbacks", "validation_split")
"""The first arguments of Keras's `fit`, in their order."""
_IGNORED = {"alpha": 1e-4, "beta": 2.6, "num_initial_points": None, "allow_new_entries": True}
"""Attributes of oracles that have no counterpart, with their defaults."""
script_settings: dict[str, Any] = {}
"""Settings given to `hptune run`, which come before those of the script."""
made: list[tuple[Path, Any]] = []
"""For each tuner of the script that runs: where the script has its study, and its oracle."""


def __getattr__(name: str) -> Any:
    if name.startswith("_"):  # asked for by tools that look at every module
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(library(), name)


class Tuner:
    """Searches as a KerasTuner oracle says, on hptune's workers.

    `search` takes what it takes in KerasTuner. A study that exists in `directory/project_name` is
    continued, unless `overwrite` is True.

    Attributes:
        oracle: The oracle, which has the trials that are over.
        hypermodel: An object with `build(hp)`.

    Args:
        oracle: One of `keras_tuner.oracles`.
        hypermodel: `build_model(hp)`, or a `HyperModel`.
        directory: Folder of the study's directory.
        project_name: Name of the study's directory.
        overwrite: Whether to remove a study that exists there.
        executions_per_trial: How often each configuration is trained; the mean is its result.
        max_model_size: Most parameters of a model that may be the best one.
        distribution_strategy: Not used: `gpus_per_trial` and `strategy` divide batches.
        tuner_id: Not used.
        logger: Not used.
        settings: `loss`, `optimizer` and `metrics` as in KerasTuner, and the settings of
            `hptune.Tuner`, which come before what follows from the oracle.

    Raises:
        UsageError: An argument is unknown, its value is not allowed, or something that the class
            or the oracle overrides would not be called.
    """

    def __init__(
        self,
        oracle: Any,
        hypermodel: Any = None,
        *,
        directory: str | os.PathLike[str] | None = None,
        project_name: str | None = None,
        overwrite: bool = False,
        executions_per_trial: int = 1,
        max_model_size: int | None = None,
        distribution_strategy: Any = None,
        tuner_id: str | None = None,
        logger: Any = None,
        **settings: Any,
    ) -> None:
        del tuner_id, logger
        _check_overrides(self, hypermodel)
        from ..user_code.model_file import BuildFunction

        own = Path(directory or ".", project_name or "untitled_project")
        made.append((own, oracle))
        self.oracle = oracle
        has_build = hasattr(hypermodel, "build")
        self.hypermodel: Any = hypermodel if has_build else BuildFunction(hypermodel)
        repeats = executions_per_trial > 1
        self._tuned = _Repeated(self.hypermodel, executions_per_trial) if repeats else hypermodel
        given = {**settings, **script_settings}
        if max_model_size:
            bounds = given.get("constraints", ())
            bounds = [bounds] if isinstance(bounds, str) else bounds
            given["constraints"] = [*bounds, f"params<={max_model_size}"]
        asked_for = Path(given.pop("directory", own))
        # It is for the first tuner: another one would remove or continue that one's study.
        self._path = asked_for if made[0][0] == own else own
        self._settings = {**settings_of(oracle, given), **given}
        oracle.max_trials = given.get("trials", oracle.max_trials)
        unused = [name for name, value in _IGNORED.items() if getattr(oracle, name, value) != value]
        unused += ["distribution_strategy"] if distribution_strategy is not None else []
        if unused:
            level = 3 if isinstance(self, _OfOracle) else 2
            warnings.warn(f"hptune does not use {', '.join(unused)}", stacklevel=level)
        # A wrong setting is told here, before a study is removed for a new one.
        self._tuner(self._path / "new" if overwrite else self._path)
        if overwrite:
            _remove_study(self._path)
        elif _exists(self._path):
            self.reload()

    if not TYPE_CHECKING:  # type checkers know the attributes

        def __getattr__(self, name: str) -> Any:
            raise AttributeError(
                f"hptune's {type(self).__name__} has no attribute {name!r}; tuner.study is an "
                "hptune.Study, which has the trials, the models and the curves",
                name=name,
                obj=self,
            )

    @property
    def project_dir(self) -> str:
        """The study's directory."""
        return str(self._path)

    @property
    def remaining_trials(self) -> int | None:
        """How many trials the study has yet to begin; None if their number is open."""
        most: int | None = self.oracle.max_trials
        return most and max(0, most - self._begun())  # `hptune resume` may have asked for more

    @property
    def study(self) -> Study:
        """The study, with all that hptune has to say about it.

        Raises:
            NoStudyError: `search` has not been called.
        """
        from ..study.study import Study

        return Study(self._path)

    def search(self, *fit_args: Any, **fit_kwargs: Any) -> None:
        """Run the study; the arguments are those of Keras's `fit`, or of `HyperModel.fit`.

        Raises:
            UsageError: The model function, the data, an argument or a setting is wrong.
            StudyError: The study cannot continue; calling `search` again continues it later.
            KeyboardInterrupt: The study was interrupted; the same script continues it.
        """
        from ..user_code.search_arguments import has_own_fit

        fits_itself = has_own_fit(self.hypermodel)
        takes = inspect.signature(self.hypermodel.fit).parameters if fits_itself else {}
        own = [name for name, take in takes.items() if take.kind is take.POSITIONAL_OR_KEYWORD]
        # Its own are those after hp, model, x and y.
        given = dict(zip((*_FIT[:2], *(own[4:] or _FIT[2:])), fit_args, strict=False)) | fit_kwargs
        epochs = given.pop("epochs", None if fits_itself else 1)  # Keras's default
        if "epochs" in self._settings:  # of Hyperband or the user, as in KerasTuner
            epochs = None
        try:
            self._tuner(self._path, is_quiet=given.get("verbose") == 0).fit(
                given.pop("x", None), given.pop("y", None), epochs=epochs, **given
            )
        except HptuneError as error:
            raise error.with_traceback(None) from None
        except KeyboardInterrupt as error:
            progress, has_begun, _ = str(error).partition(". Continue with")
            more = f". The same script continues the study in {self._path}" if has_begun else ""
            raise KeyboardInterrupt(progress + more) from None
        self.reload()

    def reload(self) -> None:
        """Let the oracle have the trials of the study as it is now.

        Raises:
            NoStudyError: There is none.
        """
        kind, space = library().engine.trial.Trial, self.study.space.to_json()
        from ..training.hyperparameters import make_hyperparameters

        status = {"complete": "COMPLETED", "pruned": "STOPPED", "failed": "FAILED"}
        for trial in sorted(self._best(*status), key=lambda each: each.number):
            shown = kind(make_hyperparameters(space, dict(trial.params)), str(trial.number))
            shown.status = "INVALID" if trial.violation else status[trial.state.lower()]
            shown.best_step = trial.step or 0
            shown.score = trial.value
            if self.oracle.objective.has_value(trial.metrics):
                shown.score = self.oracle.objective.get_value(trial.metrics)
            for name, value in trial.metrics.items():
                shown.metrics.update(name, value, step=shown.best_step)
            self.oracle.trials[shown.trial_id] = shown

    def search_space_summary(self, extended: object = None) -> None:
        """Print the hyperparameters, which a process of its own finds by building the model."""
        del extended
        from ..core.space.space import SearchSpace
        from ..master.code_reader import read_code
        from ..reporting.results.space import space_text
        from ..user_code.model_file import UserCode, save
        from ..user_code.search_arguments import read_hyperparameters
        from ..user_code.source import ObjectiveSource, SourceKind

        build = self.hypermodel.build

        def declare(hp: Any, trial: Any) -> None:
            build(hp)
            trial.should_stop()  # nothing after this line is called to find the hyperparameters

        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "declare.pkl")
            code = UserCode(
                objective=declare,
                hyperparameters=read_hyperparameters(
                    self._settings.get("hyperparameters"), given_to="hyperparameters"
                ),
                tune_new_entries=self.oracle.tune_new_entries,
            )
            save(code, path)
            # The search that follows need not import the framework again.
            found = read_code(ObjectiveSource(SourceKind.PICKLE, str(path)))
        space = SearchSpace.from_json(found.space)
        words = space_text(space, warnings=found.warnings, is_complete=found.is_complete)
        sys.stdout.write(f"{words}\n")

    def results_summary(self, num_trials: int = 10) -> None:
        """Print the best trials as a table."""
        import time

        from ..reporting.results.trials import ranked, trials_text

        view = self.study.view()
        words = trials_text(view, ranked(view)[:num_trials], now=time.time(), width=None)
        sys.stdout.write(f"{words}\n")

    def get_best_models(self, num_models: int = 1) -> list[Any]:
        """Return the Keras models of the best trials, the best first, as after their best epochs.

        A study keeps the best model, and those of `keep_checkpoints` trials; a warning says which
        are missing.
        """
        study, models = self.study, []
        for place, trial in enumerate([t for t in self._best() if t.has_result][:num_models]):
            try:
                models.append(study.trial_model(trial.number))
            except StudyError as error:
                words = (
                    f"the model of trial {trial.number} is left out: {error}. To have it, train "
                    "it again: tuner.hypermodel.build("
                    f"tuner.get_best_hyperparameters({place + 1})[{place}]).fit(…)"
                )
                if isinstance(self._tuned, _Repeated):
                    words += "; with confirm=5 in place of executions_per_trial, it is kept"
                warnings.warn(words, stacklevel=2)
        return models

    def get_best_hyperparameters(self, num_trials: int = 1) -> list[Any]:
        """Return the configurations of the best trials, the best first, each as an `hp`.

        Trials that were pruned, which KerasTuner counts as completed, follow the others.
        """
        from ..training.hyperparameters import make_hyperparameters

        space = self.study.space.to_json()
        best = [each for each in self._best() if each.value is not None]
        return [make_hyperparameters(space, dict(trial.params)) for trial in best[:num_trials]]

    def _best(self, *states: str) -> list[Trial]:
        from ..reporting.results.trials import configurations

        return configurations(self.study.view(), states=states)

    def _tuner(self, path: Path, *, is_quiet: bool = False) -> HptuneTuner:
        from ..config.reference import KERAS_TUNER
        from ..tuner import Tuner as HptuneTuner

        class TunerOfScript(HptuneTuner):
            """Shows commands at the end of a run, which leave the script as it is.

            Failed trials begin again with a script whose mistake was corrected.
            """

            _function = KERAS_TUNER

            def _shown_command(self, command: str) -> str:
                return super()._shown_command(command) if "--retry-failed" in command else command

        settings = {"quiet": is_quiet, "resume": True, **self._settings}
        if _exists(path):
            if settings.get("seed") == self.oracle.seed:  # which it draws if it is given none
                settings.pop("seed", None)
            if settings.get("trials"):  # `hptune resume` may have asked for more
                settings["trials"] = max(settings["trials"], self._begun())
        return TunerOfScript(self._tuned, directory=path, **settings)

    def _begun(self) -> int:
        """Return how many trials the study has, also those that are to continue."""
        has_trials = _exists(self._path)
        return sum(each.confirms is None for each in self.study.trials) if has_trials else 0


class _OfOracle(Tuner):
    """A tuner that makes its oracle, from those of its arguments that the oracle takes."""

    _oracle: ClassVar[str]

    def __init__(
        self, hypermodel: Any = None, objective: Any = None, *more: Any, **arguments: Any
    ) -> None:
        from ..tuner import Tuner as HptuneTuner

        kind = getattr(library().oracles, self._oracle)
        known = inspect.signature(kind).parameters
        own = dict(zip(known, (objective, *more), strict=False))
        own |= {name: arguments.pop(name) for name in [*arguments] if name in known}
        own["objective"] = directed(own.get("objective"))
        others = {*inspect.signature(Tuner).parameters, *inspect.signature(HptuneTuner).parameters}
        for name in arguments.keys() - others:
            if near := nearest_name(name, known):
                raise UsageError(f"{self._oracle} has no argument {name!r}; did you mean {near}?")
        super().__init__(kind(**own), hypermodel, **arguments)


class RandomSearch(_OfOracle):
    """Draws each hyperparameter independently."""

    _oracle = "RandomSearchOracle"


class GridSearch(_OfOracle):
    """Tries all combinations."""

    _oracle = "GridSearchOracle"


class BayesianOptimization(_OfOracle):
    """Searches with a Gaussian process."""

    _oracle = "BayesianOptimizationOracle"


class Hyperband(_OfOracle):
    """Draws configurations as KerasTuner's brackets do, and stops the poor ones at the same epochs.

    A configuration trains on where KerasTuner would start a new trial from its checkpoint.
    """

    _oracle = "HyperbandOracle"


class SklearnTuner:
    """Stands for KerasTuner's tuner of scikit-learn's models, and says what to do."""

    def __init__(self, *_arguments: Any, **_keywords: Any) -> None:
        raise UsageError(
            "SklearnTuner has no counterpart; write a function objective(hp, trial) that returns "
            "cross_val_score(build_model(hp), x, y).mean(), and give it to hptune.Tuner"
        )


class _Repeated:
    """A model that is trained several times in a trial; the mean is the trial's result."""

    def __init__(self, hypermodel: Any, count: int) -> None:
        self._hypermodel = hypermodel
        self._count = count

    def build(self, hp: Any) -> Any:
        return self._hypermodel.build(hp)

    def fit(self, hp: Any, model: Any, *data: Any, callbacks: Any = (), **keywords: Any) -> Any:
        from ..training.keras.objective import call_fit

        results = []
        for number in range(self._count):
            trained = model if number == 0 else self.build(hp)
            arguments = {**keywords, "callbacks": copy.deepcopy(list(callbacks))}
            results.append(call_fit(self._hypermodel, hp, trained, data, arguments))
        return results


def _check_overrides(tuner: Tuner, hypermodel: Any) -> None:
    """Check that nothing is overridden that hptune would not call."""
    from ..user_code.entry_points import RUN_TRIAL

    name = type(tuner).__name__
    if hasattr(type(tuner), "run_trial"):
        raise UsageError(
            f"{RUN_TRIAL.format(name)}; a keyword such as batch_size is then "
            'model.fit(*args, batch_size=hp.Int("batch_size", 32, 256), **kwargs)'
        )
    if others := [each for each in dir(type(tuner)) if each.startswith("on_")]:
        raise UsageError(
            f"{name}.{others[0]} would not be called, as hptune runs the trials; give search() a "
            "Keras callback that does the same"
        )
    if hypermodel is None:
        raise UsageError(f"{name} has no hypermodel; give build_model(hp), or a HyperModel")


def _exists(path: Path) -> bool:
    from ..storage.directory import StudyDirectory

    return StudyDirectory(path).has_ledger


def _remove_study(path: Path) -> None:
    """Remove a study, as `overwrite=True` asks.

    Raises:
        StudyLockedError: Another process runs it.
        UsageError: It is another user's.
    """
    from ..storage.directory import StudyDirectory
    from ..storage.turn import acquired
    from ..storage.whose import Use

    directory = StudyDirectory(path)
    if directory.has_ledger:
        acquired(directory.open(Use.WRITE), is_brief=True).release()
        shutil.rmtree(path)
