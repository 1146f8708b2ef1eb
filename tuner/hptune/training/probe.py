"""The probe: finds the search space of the user's code by calling it with chosen values.

It runs in a child process. Every finding is sent at once: a crash or a long training then does not
hide the hyperparameters that were declared before it.
"""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..core.attempt import Cause
from ..core.goals import MEASURED
from ..core.space.enumeration import is_open
from ..core.space.parameters import (
    BooleanParameter,
    ChoiceParameter,
    Condition,
    IntParameter,
    Parameter,
)
from ..core.trial import ParamValue
from ..errors import ModelFileError, SpaceError
from ..user_code.fit_results import RETURNED, FitResult
from ..user_code.model_file import UserCode
from ..user_code.source import Found
from .context import StandInTrial, explains_its_call, stated_cause
from .function_objective import read_result
from .hyperparameters import HyperParameters, make_hyperparameters
from .keras.compiled_model import (
    check_model,
    check_names,
    compiled_metrics,
    default_metric,
    has_own_step,
    normalises_parts,
    reported_values,
)
from .keras.given_data import (
    as_arguments,
    batch_like,
    check_kinds,
    check_labels,
    check_lengths,
    fit_arguments,
    sample_shapes,
)
from .keras.objective import build, build_variables, load_data, train

_NOT_A_MISTAKE = (Cause.GIVEN_UP, Cause.PRUNED)
"""What the user's code says by an exception of a configuration that it does not want to train."""

MAX_CALLS = 60
"""Calls of the user's code for further branches; one build takes some 0.1 seconds."""
MAX_SECONDS = 30.0
"""Time for these calls in all; the user waits for them."""
QUICK_SECONDS = 0.5
"""Duration up to which an objective that never used its trial is called again."""


class _TrainingBegins(BaseException):
    """Leaves the user's code where it begins to train: all declarations come before."""


class _ProbeTrial(StandInTrial):
    """A trial for the probe; its first use means that the objective begins to train."""

    @explains_its_call("trial.report(epoch, loss=0.5)")
    def report(self, step: int, **metrics: Any) -> None:
        del step, metrics
        raise _TrainingBegins

    def should_stop(self) -> bool:
        raise _TrainingBegins

    should_prune = should_stop

    @property
    def checkpoint_dir(self) -> Path:
        raise _TrainingBegins


class _Findings:
    """The findings so far, sent after every change."""

    def __init__(self, found: Found, send: Callable[[Found | str], None]) -> None:
        self.found = found
        self._send = send

    def begin(self, what: str) -> None:
        """Say what takes time from now on."""
        self._send(what)

    def add(self, **changes: Any) -> None:
        self.found = replace(self.found, **changes)
        self._send(self.found)

    def warn(self, warning: str) -> None:
        self.add(warnings=(*self.found.warnings, warning))


def find_space(code: UserCode, initial: Found, *, send: Callable[[Found | str], None]) -> None:
    """Call the user's code until all its hyperparameters are known.

    Args:
        code: The user's entry points.
        initial: The findings before the first call.
        send: Called with all findings after each new one, and with what takes time next.

    Raises:
        BaseException: The user's code raised it with the default values.
    """
    findings = _Findings(initial, send)
    hp = make_hyperparameters(code.hyperparameters)
    hp.values = _values(hp, {})
    hp.tunes_new = code.tune_new_entries

    def add_space() -> None:
        findings.add(space=tuple(hp.get_config()["space"]))

    add_space()
    hp.on_declaration = add_space
    said: set[str] = set()

    def warn_once(words: str) -> None:
        if words not in said:
            said.add(words)
            findings.warn(words)

    hp.on_conflict = warn_once
    if code.objective is None:
        _probe_model(code, hp, findings)
    else:
        _probe_objective(code.objective, hp, findings)


def _probe_objective(
    objective: Callable[[Any, Any], Any], hp: HyperParameters, findings: _Findings
) -> None:
    findings.add(may_train=True)
    findings.begin("finding the hyperparameters")

    def call() -> Any:
        trial = _ProbeTrial(hp.values)
        try:
            return objective(hp, trial)
        finally:
            if trial.runs_elsewhere:
                findings.add(runs_elsewhere=True)

    began = time.monotonic()
    try:
        result = call()
    except _TrainingBegins:
        is_quick = True
    except SpaceError:
        raise
    except (Exception, SystemExit):
        # A configuration may fail, and its trial reports that. A file that fails before its first
        # declaration is wrong.
        if not hp.space:
            raise
        return
    else:
        if not isinstance(result, tuple | list):  # how many objectives there are is not known here
            metrics = read_result(result, "value", ())
            if isinstance(result, Mapping):
                findings.add(metrics=tuple(metrics), reports_others=False)
        is_quick = time.monotonic() - began < QUICK_SECONDS
    # A slow objective that never used its trial has trained: it is not called for each branch.
    findings.add(is_complete=is_quick and _call_branches(call, hp))


def _probe_model(code: UserCode, hp: HyperParameters, findings: _Findings) -> None:
    import keras

    findings.begin("building one model")
    model = _build(code, hp)
    owns_fit = code.owns_fit
    if not owns_fit:  # which trains any object
        check_model(model, code.build_text)
    check_names(model)
    findings.begin("loading data")
    data = load_data(code, hp)
    findings.begin("trying the model on one batch")
    prefix = _read_reports(code, hp, model, data, findings)
    common = compiled_metrics(model)
    findings.add(backend=keras.config.backend(), normalises_parts=normalises_parts(model))

    def compare() -> None:
        """Note the metrics that only this configuration has, or only the default one."""
        measured = compiled_metrics(build(code, hp))
        if measured is None or common is None:
            return
        partial = dict.fromkeys(measured - common, "not with the default values")
        partial |= dict.fromkeys(common - measured, f"not with {_chosen(hp)}")
        named = {f"{which}{name}": why for name, why in partial.items() for which in ("", prefix)}
        if named:
            findings.add(partial_metrics={**named, **findings.found.partial_metrics})

    findings.begin("building models with other choices")
    is_complete = _call_branches(compare, hp, findings.warn)
    if owns_fit:
        # Last, because a fit that calls neither `model.fit` nor a callback trains.
        findings.add(may_train=True)
        hp.values = _values(hp, {})
        calls_fit, own_epochs = _probe_fit(code, hp, _build(code, hp), data)
        findings.add(calls_fit=calls_fit, own_epochs=own_epochs)
    findings.add(is_complete=is_complete)


def _read_reports(
    code: UserCode, hp: HyperParameters, model: Any, data: Any, findings: _Findings
) -> str:
    """Find what a training reports; return the prefix of what is measured on validation data."""
    import keras

    arguments: tuple[Any, ...] = ()
    keywords: dict[str, Any] = {}
    with contextlib.suppress(*([ModelFileError] if code.fit is not None else [])):
        arguments, keywords = fit_arguments(data)
    given = {**keywords, **code.fit_arguments}
    owns_step = code.owns_fit or has_own_step(model)
    if not code.owns_fit:  # which may take any arrays
        check_lengths(arguments, keywords)
        for note in check_kinds(arguments, keywords):
            findings.warn(note)
    if not owns_step and not model.built and keras.config.backend() == "tensorflow":
        build_variables(model, data)  # as a training does there
    batch = batch_like(model, arguments, given)
    values = reported_values(model, batch, is_sure=not owns_step)
    if not owns_step:
        check_labels(model, arguments, given)
    validation = given.get("validation_data")
    if not owns_step and validation is not None:
        other = batch_like(model, *as_arguments(validation, given))
        if sample_shapes(other) != sample_shapes(batch):
            reported_values(build(code, hp), other, is_sure=True, data="validation data")
    # The user's own fit may take validation data from anywhere.
    validates = validation is not None or given.get("validation_split")
    prefix = "val_" if validates or code.owns_fit else ""
    metric = prefix + default_metric(model, values)
    is_history = code.fit_result is FitResult.HISTORY
    values |= {prefix + name: count for name, count in values.items()}
    numbers = [name for name, count in values.items() if count == 1]
    findings.add(
        metric=metric if code.fit_result is not FitResult.NUMBER else RETURNED,
        metrics=(*numbers, *MEASURED) if is_history and values else (),
        vector_metrics=tuple(values.keys() - {*numbers}) if is_history else (),
        reports_others=owns_step or bool(given.get("callbacks")) or not values,
    )
    return prefix


def _build(code: UserCode, hp: HyperParameters) -> Any:
    """Build the model with the defaults; with other values if the code gives the defaults up."""
    try:
        return build(code, hp)
    except Exception as error:
        if stated_cause(error) not in _NOT_A_MISTAKE:
            raise
        for values in itertools.islice(_branches(hp), MAX_CALLS):
            hp.values = dict(values)
            with contextlib.suppress(type(error)):
                return build(code, hp)
        raise


def _call_branches(
    call: Callable[[], Any], hp: HyperParameters, warn: Callable[[str], None] = lambda _: None
) -> bool:
    """Call with the values for each branch; return False if there was no time for all."""
    began = time.monotonic()
    for count, values in enumerate(_branches(hp)):
        if count >= MAX_CALLS or time.monotonic() - began > MAX_SECONDS:
            return False
        hp.values = dict(values)
        try:
            call()
        except _TrainingBegins:
            pass
        except SpaceError:
            raise
        except (Exception, SystemExit) as error:
            if stated_cause(error) in _NOT_A_MISTAKE:
                continue
            warn(f"with {_chosen(hp)} the model cannot be built: {error}")
    return True


def _chosen(hp: HyperParameters) -> str:
    """Return the values of this call that are not the defaults."""
    defaults = {parameter.name: parameter.default for parameter in hp.space}
    chosen = {name: value for name, value in hp.values.items() if value != defaults.get(name)}
    return ", ".join(f"{name}={value!r}" for name, value in chosen.items())


def _branches(hp: HyperParameters) -> Iterator[dict[str, Any]]:
    """Yield values that lead into the branches of the user's code, for one call each.

    First the conditional scopes that no call has entered with its conditions true. Then branches
    without a scope: `for i in range(hp.Int("layers", 1, 5))` by one call with all integers (of a
    Choice too) at their greatest values, `if hp.Boolean("deep")` by the opposite of the default in
    the same call, `if hp.Choice("head", ["flat", "pool"])` by one call for each word, and None.
    What a call declares is opened in the same way by a further call.
    Hyperparameters in other branches join the space when a trial declares them.
    """
    tried: list[list[Condition]] = []
    while True:
        known = [*hp.active_scopes, *tried]
        scope = next((scope for scope in hp.inactive_scopes if scope not in known), None)
        if scope is None:
            break
        tried.append(scope)
        yield from _with_counts(hp, {each.name: each.values[0] for each in scope})
    opened = {p.name: _opened(p) for p in hp.space}
    if any(opened[p.name] != p.default for p in hp.space):
        yield _values(hp, opened)
    for parameter in hp.space:
        if isinstance(parameter, ChoiceParameter):
            for word in parameter.values:
                if isinstance(word, str | None) and word != parameter.default:
                    yield from _with_counts(hp, {parameter.name: word})


def _with_counts(hp: HyperParameters, chosen: Mapping[str, ParamValue]) -> Iterator[dict[str, Any]]:
    """Yield the values for a branch; again with the counts that it declares at their greatest."""
    before = {parameter.name for parameter in hp.space}
    yield _values(hp, chosen)
    new = [parameter for parameter in hp.space if parameter.name not in before]
    opened = {each.name: _opened(each) for each in new if _opened(each) != each.default}
    if opened:
        yield from _with_counts(hp, {**chosen, **opened})


def _opened(parameter: Parameter) -> ParamValue:
    """Return the value that leads into most branches without a scope."""
    if isinstance(parameter, IntParameter):
        return parameter.high
    if isinstance(parameter, ChoiceParameter):
        counts = (value for value in parameter.values if isinstance(value, int))
        return max(counts, default=parameter.default)
    return not parameter.default if isinstance(parameter, BooleanParameter) else parameter.default


def _values(hp: HyperParameters, chosen: Mapping[str, ParamValue]) -> dict[str, Any]:
    """Return the chosen values, and the defaults of all other hyperparameters; active ones only."""
    values: dict[str, Any] = {}
    for parameter in hp.space:
        if is_open(parameter, values):
            values[parameter.name] = chosen.get(parameter.name, parameter.default)
    return values


def _probe_fit(
    code: UserCode, hp: HyperParameters, model: Any, data: Any
) -> tuple[bool, int | None]:
    """Call the user's fit until it begins to train, with one epoch.

    Returns:
        Whether Keras's fit trains; and the epochs that it trains if they are not those that it was
        given, nor a hyperparameter.
    """
    import keras

    by_keras: list[int | None] = []

    def no_training(*_arguments: Any, **_keywords: Any) -> None:
        raise _TrainingBegins

    def no_keras_training(*arguments: Any, **keywords: Any) -> None:
        epochs = keywords.get("epochs", 1)
        is_own = isinstance(epochs, int) and epochs not in (1, *hp.values.values())
        by_keras.append(epochs if is_own else None)
        given = [*arguments, keywords.get("x")]
        has_data = any(each is not None and not isinstance(each, keras.Model) for each in given)
        if code.load_data is None and not has_data:
            raise ModelFileError(f"fit() calls model.fit without data, and {code.no_data}")
        raise _TrainingBegins

    class NoTraining(keras.callbacks.Callback):
        """Ends a training loop of the user's own at its first call of a callback."""

        on_train_begin = on_epoch_begin = on_epoch_end = no_training
        on_train_batch_begin = on_train_batch_end = no_training

    # Errors of the user's code name what it was given.
    NoTraining.__name__ = NoTraining.__qualname__ = "Callback"
    no_training.__qualname__, no_keras_training.__qualname__ = "Callback", "fit"

    # Also of models that a fit makes itself; the process ends here.
    keras.Model.fit = no_keras_training
    with contextlib.suppress(AttributeError):  # not a Keras model
        model.fit = no_keras_training
    try:
        train(code, hp, model, data, callback=NoTraining(), epochs=1)
    except _TrainingBegins:
        return bool(by_keras), next(iter(by_keras), None)
    except Exception as error:
        if stated_cause(error) not in _NOT_A_MISTAKE:
            raise
        return True, None  # unknown
    return False, None
