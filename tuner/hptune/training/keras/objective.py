"""Trials of Keras models: build, train, save."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...core.attempt import Cause, Ending
from ...core.goals import ENERGY, MEASURED, Goals, unknown_metric
from ...core.trial import Direction, Goal, Score
from ...errors import ModelFileError
from ...user_code.fit_results import RETURNED, FitResult
from ...user_code.model_file import UserCode
from ...user_code.search_arguments import has_own_fit
from ..context import TrialContext, UnknownMetric, as_metrics
from ..data_cache.data_cache import call_load_data
from ..results import metrics_of
from ..resume.callback_lists import extended_callback_lists
from ..resume.checkpoint import NoRoom, room_needed
from ..resume.randomness import seed_after_loading
from ..unused_tensorflow import tensorflow_left_out
from .given_data import fit_arguments
from .recorder import Recorder, measure

if TYPE_CHECKING:  # a trial on one device does not need it
    from ..strategies.base import Strategy

MUST_RETURN = "it must return a compiled Keras model"
MODEL_FILE = "model.keras"
WEIGHTS_FILE = "model.weights.h5"

log = logging.getLogger(__name__)


def run(
    code: UserCode,
    hp: Any,
    trial: TrialContext,
    *,
    epochs: int,
    incumbents: Sequence[Score],
    strategy: Strategy | None = None,
) -> Ending:
    """Train one configuration and save its best model in the trial's directory.

    The metrics and the saved model are those of the best epoch. If the user's own `fit` returns a
    number or a dict, that is the result; unless it is that of the best epoch, the model is saved as
    `fit` leaves it. If it trains a model of its own, that one is saved. A model that one of the
    `incumbents` beats is not saved.

    Args:
        code: The user's entry points.
        hp: The hyperparameters, with the trial's values.
        trial: Where to report.
        epochs: How many epochs to train; a hyperparameter called `epochs` overrides it.
        incumbents: Scores of the study's best trials so far.
        strategy: What trains on several devices; None for Keras alone.

    Raises:
        UnknownMetric: The training does not measure the study's metric.
        AttemptStopped: The attempt was told to stop.
    """
    if strategy is None:
        return _run(code, hp, trial, epochs=epochs, incumbents=incumbents)
    from ..strategies.fit_calls import whole_training

    with whole_training(strategy):
        return _run(code, hp, trial, epochs=epochs, incumbents=incumbents)


def _run(
    code: UserCode, hp: Any, trial: TrialContext, *, epochs: int, incumbents: Sequence[Score]
) -> Ending:
    _separate_logs(code, trial.number)
    model = build(code, hp)
    recorder = Recorder(trial, returns_more=code.fit_result is not FitResult.HISTORY)
    with extended_callback_lists(recorder.resumption):
        result = _fit(code, hp, model, recorder, epochs=epochs, seed=trial.seed)
    recorder.resumption.training_returns()
    metrics, step = _read_result(result, recorder, trial.goals)
    best = recorder.best
    trained = model if best is None else best.model
    metrics = {**metrics, **measure(trial.goals.metrics, trained, recorder.times)}
    if best is not None and step == best.step:
        best.restore_weights()
    missing = [name for name in trial.goals.of_training if name not in metrics]
    if missing:
        raise UnknownMetric(unknown_metric(missing[0], metrics))
    try:
        recorder.resumption.keep_last()
    except NoRoom as error:
        # The result is complete; only training on from it is not possible.
        log.warning("The last epoch's checkpoint is not kept: %s", error)
    # The energy is not known before the process has ended.
    may_be_best = ENERGY in trial.goals.metrics or trial.goals.is_nondominated(
        trial.goals.score(metrics), incumbents
    )
    if trial.rank == 0 and may_be_best:
        of_result = best.model if best is not None and step == best.step else recorder.model
        save_model(_trained(model, of_result), trial.directory)
    is_short = trial.epochs is not None and recorder.step < trial.epochs
    # Unknown of a training that reports nothing; EarlyStopping, say, may end one.
    ended_early = (recorder.resumption.ended_early or is_short) if recorder.step else None
    return Ending(Cause.RETURNED, metrics, step, recorder.remark, ended_early=ended_early)


def _trained(built: Any, last: Any) -> Any:
    """Return the built model, or the one that a `fit` of the user's own trained in its place.

    Args:
        built: What the user's code built.
        last: The model whose training has the result; None if unknown. It may be one around the
            built model, and share its weights.
    """
    own = {id(each) for each in getattr(built, "variables", ())}
    is_other = last is not None and not own & {id(variable) for variable in last.variables}
    return last if is_other else built


def build(code: UserCode, hp: Any) -> Any:
    """Build the model of a configuration, compiled as the user asks for.

    Raises:
        ModelFileError: The user's code returned None.
    """
    model = code.hypermodel.build(hp)
    if model is None:
        raise ModelFileError(f"{code.build_text} returned None; {MUST_RETURN}")
    if code.compile_arguments:
        compiled = getattr(getattr(model, "_compile_config", None), "config", {})
        model.compile(**{**compiled, **code.compile_arguments})
    return model


def _separate_logs(code: UserCode, trial: int) -> None:
    """Let each trial write its TensorBoard logs into a folder of its own, as KerasTuner does."""
    for each in _callbacks_of(code.fit_arguments):
        if type(each).__name__ == "TensorBoard":
            each.log_dir = f"{each.log_dir}/{trial}"


def _callbacks_of(arguments: Mapping[str, Any]) -> list[Any]:
    """Return the callbacks among arguments of Keras's `fit`, which takes one, a list, or None."""
    import keras

    given = arguments.get("callbacks")
    return keras.tree.flatten(given) if given else []


def _fit(code: UserCode, hp: Any, model: Any, recorder: Recorder, *, epochs: int, seed: int) -> Any:
    data = load_data(code, hp)
    seed_after_loading(seed)
    if recorder.resumption.is_resumed and code.load_data is not None and not model.built:
        build_variables(model, data)
    return train(code, hp, model, data, callback=recorder.callback(), epochs=epochs)


def train(code: UserCode, hp: Any, model: Any, data: Any, *, callback: Any, epochs: int) -> Any:
    """Train a model as the user's code asks for, with a callback of ours.

    Args:
        code: The user's entry points.
        hp: The hyperparameters, with the trial's values.
        model: What the code built.
        data: What `load_data` returned.
        callback: A Keras callback, added after the user's own.
        epochs: How many epochs to train; a hyperparameter called `epochs` overrides it.

    Returns:
        What the training returned.
    """
    values = hp.known_values
    hp.asked.update(("epochs", "batch_size"))
    epochs = int(values.get("epochs", epochs))
    if code.fit is not None:
        return code.fit(hp, model, data, [callback], epochs)
    arguments, keywords = fit_arguments(data)
    keywords.update({"epochs": epochs, "verbose": 2, **code.fit_arguments})
    keywords["callbacks"] = [*_callbacks_of(keywords), callback]
    resumption = getattr(callback, "resumption", None)
    return call_fit(
        code.hypermodel,
        hp,
        model,
        arguments,
        keywords,
        has_begun=lambda: resumption is not None and resumption.has_begun,
    )


def build_variables(model: Any, data: Any) -> None:
    """Build a model that would otherwise get its variables from its first batch."""
    import keras

    train = data[0] if isinstance(data, tuple | list) else data
    batch = getattr(train, "element_spec", train)  # of a tf.data.Dataset
    if isinstance(train, keras.utils.PyDataset):
        batch = train[0]
    inputs = batch[0] if isinstance(batch, tuple | list) else batch

    def one(each: Any) -> Any:
        dtype = keras.backend.standardize_dtype(each.dtype)
        return keras.ops.zeros((1, *each.shape[1:]), dtype)

    try:
        # One sample is no batch to train on for PyTorch's BatchNorm.
        model(keras.tree.map_structure(one, inputs), training=False)
    except Exception as error:  # then the trial cannot continue, but starts again
        log.warning("The model cannot be built before its first batch: %s", error)


def call_fit(
    hypermodel: Any,
    hp: Any,
    model: Any,
    arguments: tuple[Any, ...],
    keywords: dict[str, Any],
    *,
    has_begun: Callable[[], bool] = lambda: False,
) -> Any:
    """Call the HyperModel's own `fit` with those of our keywords that it takes, or else Keras's.

    KerasTuner passes on the arguments of `search`, so a `fit` need not take `epochs` or `verbose`.
    Keras's takes a hyperparameter called `batch_size`.

    Args:
        hypermodel: The HyperModel.
        hp: The hyperparameters, with the trial's values.
        model: What it built.
        arguments: The data for training.
        keywords: The arguments of Keras's `fit`.
        has_begun: Returns whether the model has been trained; then `fit` cannot be called again.

    Raises:
        ModelFileError: It has trained the model, and then passes a keyword twice.
    """
    if not has_own_fit(hypermodel):
        if "batch_size" in hp.known_values:
            keywords = {**keywords, "batch_size": int(hp.known_values["batch_size"])}
        return model.fit(*arguments, **keywords)
    optional = ("epochs", "verbose")
    takes = inspect.signature(hypermodel.fit).parameters
    if all(name in takes for name in ("x", "y")[: len(arguments)]):  # in any order
        keywords = {**dict(zip(("x", "y"), arguments, strict=False)), **keywords}
        arguments = ()
    if not any(take.kind is take.VAR_KEYWORD for take in takes.values()):
        keywords = {
            name: value for name, value in keywords.items() if name in takes or name not in optional
        }
    while True:
        try:
            return hypermodel.fit(hp, model, *arguments, **keywords)
        except TypeError as error:
            # `model.fit(*args, epochs=hp.Int(…), **kwargs)` is KerasTuner's own example of tuning
            # epochs; it fails before the training begins if we pass epochs too.
            twice = [
                name
                for name in (*optional, "batch_size")
                if name in keywords
                and f"multiple values for keyword argument '{name}'" in str(error)
            ]
            if not twice:
                raise
            if has_begun():
                raise ModelFileError(
                    f"fit() has trained the model, and then calls model.fit with {twice[0]} twice: "
                    f"by name and in **kwargs. Take it out of them: fit(self, hp, model, *args, "
                    f"{twice[0]}=None, **kwargs)"
                ) from error
            keywords = {name: value for name, value in keywords.items() if name != twice[0]}


def load_data(code: UserCode, hp: Any) -> Any:
    """Call the user's `load_data`, with `hp` if it takes an argument.

    A `fit` of the user's own may make its data itself; it then gets none.

    Raises:
        ModelFileError: There is no `load_data`, and Keras's `fit` needs data.
    """
    if code.load_data is None and code.owns_fit:
        return None if code.fit is not None else ((), None)
    if code.load_data is None:
        raise ModelFileError(code.no_data)
    return call_load_data(code.load_data, hp)


def _read_result(
    result: Any, recorder: Recorder, goals: Goals
) -> tuple[dict[str, float], int | None]:
    metric = (goals.trained or goals.goal).metric
    own = [goal.metric for goal in goals.objectives if goal.metric not in MEASURED]
    if isinstance(result, list):  # of the folds, say
        result = _of_best_epochs(result, goals.trained)
    metrics = metrics_of(result, metric, own)
    if metric == RETURNED and metric not in (metrics or recorder.seen):
        found = metrics or recorder.seen or getattr(result, "history", None) or ()
        raise UnknownMetric(
            f"fit() returned a {type(result).__name__} and no number: name the metric to optimise "
            "(--objective, or OBJECTIVE in the file); the trial reports: "
            f"{', '.join(sorted(found)) or 'none'}"
        )
    best, metrics = recorder.best, metrics or {}  # none of `history.history`, a dict of lists
    if metrics and metric not in (*metrics, *MEASURED):
        raise UnknownMetric(unknown_metric(metric, metrics))
    # A fit may return what its best epoch has, as by `min(history.history["val_loss"])`.
    is_its = best and own and all(metrics.get(name) == best.metrics.get(name) for name in own)
    if metrics and (not is_its or isinstance(result, list)):
        return metrics, None
    if best is not None:
        return {**best.metrics, **metrics}, best.step
    if recorder.seen:
        raise UnknownMetric(unknown_metric(metric, recorder.seen))
    # The user's fit did not pass the callbacks on, so the model is that of the last epoch, and so
    # are the metrics.
    history = getattr(result, "history", result)
    if isinstance(history, Mapping) and history:
        log.warning("fit() did not pass the callbacks on: the last epoch counts, not the best.")
        if metric not in (*history, *MEASURED):
            raise UnknownMetric(unknown_metric(metric, history))
        return _best_of(history, None), max(map(len, history.values()))
    raise TypeError(
        f"fit() returned {type(result).__name__} and reported no epoch; allowed are the History "
        "of model.fit, a number, a dict of metrics, or a list of numbers or dicts"
    )


def _of_best_epochs(result: Any, goal: Goal | None) -> Any:
    """Return a result with the metrics of its best epoch in place of each History."""
    if isinstance(result, list):
        return [_of_best_epochs(each, goal) for each in result]
    history = getattr(result, "history", result)
    is_one = isinstance(history, Mapping) and all(isinstance(x, list) for x in history.values())
    return _best_of(history, goal) if is_one else result


def _best_of(history: Mapping[str, Sequence[float]], goal: Goal | None) -> dict[str, float]:
    """Return the metrics of a History's best epoch; of the last one without a goal, or its metric.

    Those that other epochs have are left out, as with `validation_freq`.
    """
    if goal is None or not (values := history.get(goal.metric)):
        return as_metrics({name: each[-1] for name, each in history.items() if each})
    best = values.index((max if goal.direction is Direction.MAX else min)(values))
    alike = {name: each for name, each in history.items() if len(each) == len(values)}
    return as_metrics({name: each[best] for name, each in alike.items()})


def save_model(model: Any, directory: Path) -> None:
    """Save the model in Keras's own format, or only its weights if Keras cannot save the model.

    A `fit` of the user's own may train other objects; one without a method `save` is not kept, nor
    is a model whose layers cannot save their weights. The trial still has its result.

    Raises:
        NoRoom: The disk is full.
    """
    if not hasattr(model, "save"):
        log.warning("The model is not kept: a %s has no method save.", type(model).__name__)
        return
    with room_needed("the model", directory), tensorflow_left_out():
        directory.mkdir(parents=True, exist_ok=True)
        if (error := _saved(model.save, directory / MODEL_FILE)) is None:
            return
        log.warning("The model cannot be saved whole (%s); its weights are kept.", error)
        if (error := _saved(model.save_weights, directory / WEIGHTS_FILE)) is not None:
            log.warning("The model is not kept, as its weights cannot be saved: %s", error)


def _saved(save: Callable[[Path], object], path: Path) -> Exception | None:
    """Save to a file; return the error of the user's code that prevented it, such as a layer's."""
    path.unlink(missing_ok=True)  # it is the one in best/ too if a master was killed in between
    try:
        save(path)
    except Exception as error:  # a `get_config` of the user's own may raise anything
        # Without a number it is not the disk's: inspect finds no source of a function, say.
        if isinstance(error, OSError) and error.errno is not None:
            raise
        path.unlink(missing_ok=True)
        return error
    return None
