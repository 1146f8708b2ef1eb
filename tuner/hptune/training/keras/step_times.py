"""The time of a training step of the user's model, for `hptune scaling`.

The user's code builds its model and calls `model.fit` as in a trial. The first such call trains a
bounded number of steps, without validation and callbacks, and then the attempt ends.
"""

from __future__ import annotations

import contextlib
import functools
import json
import math
import statistics
import time
from collections.abc import Iterator
from typing import Any

import keras
import numpy as np

from ...core.attempt import Cause, Ending
from ...core.step_request import BATCH, STEP_SECONDS, STEPS, StepRequest, check_divides
from ...errors import ModelFileError
from ...user_code.model_file import UserCode
from ..context import TrialContext
from ..replaced_methods import replaced
from ..resume.randomness import seed_after_loading
from ..strategies import batches
from ..strategies.base import Strategy
from ..strategies.fit_calls import bound, whole_training
from .first_batch import see_framework
from .objective import build, load_data, train

_WARM_UP_STEPS = 4
"""Steps that do not count. The first one compiles, and its weights are compared; more settle
caches and the allocator."""
_LEAST_STEPS = 8
_MOST_STEPS = 2000
_LEAST_STEPS_OF_EPOCH = 8
"""Fewest calls of an epoch: a small data set is repeated, as the first call of each epoch does not
count."""
_ENDLESS = 1_000_000
_NO_FIT = (
    "fit() did not call model.fit, so hptune cannot measure its steps; call model.fit in it, or "
    "leave out fit()"
)


class _Measured(BaseException):
    """The steps are measured: leaves the user's code."""


def run(
    code: UserCode,
    hp: Any,
    trial: TrialContext,
    request: StepRequest,
    strategy: Strategy | None = None,
    *,
    gpus: int = 0,
) -> Ending:
    """Measure steps of one configuration on this attempt's devices.

    It reports `BATCH`, `STEPS` and `STEP_SECONDS` once, as step 1.

    Args:
        code: The user's entry points.
        hp: The hyperparameters, with the trial's values.
        trial: Where to report.
        request: What to measure.
        strategy: What trains on several devices; None for Keras alone.
        gpus: How many GPUs this process holds.

    Raises:
        ModelFileError: The code calls no `model.fit`, its data cannot be divided, or the framework
            does not see the GPUs.
    """
    if code.objective is not None:
        raise ModelFileError(
            f"{code.entry}(hp, trial) trains with a loop of its own, whose steps hptune cannot "
            "measure; `hptune scaling` needs build_model(hp) or a HyperModel"
        )
    by_strategy = contextlib.nullcontext() if strategy is None else whole_training(strategy)
    with by_strategy, _measured_fit(trial, request, strategy):
        model = build(code, hp)
        _check_gpus(gpus)
        data = load_data(code, hp)
        seed_after_loading(trial.seed)
        try:
            train(code, hp, model, data, callback=keras.callbacks.Callback(), epochs=1)
        except _Measured:
            pass
        else:
            raise ModelFileError(_NO_FIT)
    return Ending(Cause.RETURNED)


def _check_gpus(held: int) -> None:
    """Check that the framework sees the GPUs: steps on cores would be taken for theirs.

    Raises:
        ModelFileError: It does not.
    """
    if held and (seen := see_framework()).gpus < held:
        raise ModelFileError(
            f"{seen.words} sees {seen.gpus} GPUs, but {held} are to be measured: it would train on "
            "cores. Install its build for these GPUs (`hptune doctor` says which), or measure "
            "where there are no GPUs: with CUDA_VISIBLE_DEVICES= here (ROCR_VISIBLE_DEVICES= for "
            "those of AMD), or with gpus = 0 in the slurm.toml"
        )


@contextlib.contextmanager
def _measured_fit(
    trial: TrialContext, request: StepRequest, strategy: Strategy | None
) -> Iterator[None]:
    """Let the first call of `keras.Model.fit` measure, and then leave the user's code."""
    cls: Any = keras.Model
    fit = cls.fit
    replicas = 1 if strategy is None else strategy.replicas

    @functools.wraps(fit)
    def measure(*given: Any, **named: Any) -> Any:
        model, arguments = bound(fit, given, named)
        size, arguments = _bounded(arguments, request, replicas, model.steps_per_execution)
        timer = _Timer(trial, request.seconds)
        fit(model, **arguments, callbacks=[timer])
        trial.stop_if_told()
        median = statistics.median(timer.seconds)
        trial.report(1, **{BATCH: size, STEPS: len(timer.seconds), STEP_SECONDS: median})
        raise _Measured

    with replaced(cls, {"fit": measure}):
        yield


def _bounded(
    arguments: dict[str, Any], request: StepRequest, replicas: int, steps_per_call: int
) -> tuple[int, dict[str, Any]]:
    """Return the global batch size, and arguments of `fit` that train such batches without end."""
    kept = ("class_weight", "shuffle")
    fixed = {name: arguments[name] for name in kept if name in arguments}
    x = arguments.get("x")
    if batches.is_arrays(x):
        data = tuple(arguments.get(name) for name in ("x", "y", "sample_weight"))
        count, steps = batches.size_of(data) or 0, arguments.get("steps_per_epoch")
        own = arguments.get("batch_size") or (math.ceil(count / steps) if steps else None)
        own = own or min(batches.DEFAULT_BATCH_SIZE, count)
    else:
        data = _first_batch(x)
        own = count = batches.size_of(data) or 0
    if request.must_divide:
        check_divides(own, request.must_divide)
    if request.batch_per_device is None and own % replicas:
        batches.check_divides(own, replicas)
    size = own if request.batch_per_device is None else request.batch_per_device * replicas
    repeated = _repeated(data, count, size * steps_per_call)
    named = dict(zip(("x", "y", "sample_weight"), repeated, strict=False))
    return size, {
        **fixed,
        **{name: value for name, value in named.items() if value is not None},
        "batch_size": size,
        "epochs": _ENDLESS,
        "verbose": 0,
    }


def _first_batch(x: Any) -> tuple[Any, ...]:
    """Return the first batch of a dataset as arrays."""
    batch = x[0] if isinstance(x, keras.utils.PyDataset) else next(iter(x))
    batch = tuple(batch) if isinstance(batch, tuple | list) else (batch,)
    return tuple(
        None if each is None else keras.tree.map_structure(_as_array, each) for each in batch
    )


def _as_array(tensor: Any) -> Any:
    return np.asarray(tensor.numpy() if hasattr(tensor, "numpy") else tensor)


def _repeated(data: tuple[Any, ...], count: int, size: int) -> tuple[Any, ...]:
    """Return arrays with enough samples for an epoch, repeated if they have fewer.

    An epoch has whole batches only, so that no step has another size.

    Args:
        data: The arrays.
        count: How many samples they have.
        size: Samples of all steps that Keras runs in one call.
    """
    least = size * _LEAST_STEPS_OF_EPOCH
    wanted = count // size * size if count >= least else least

    def extended(array: Any) -> Any:
        if array is None or wanted == count:
            return array
        array = array.to_numpy() if hasattr(array, "iloc") else array
        if wanted <= count:
            return array[:wanted]
        return np.asarray(array)[np.arange(wanted) % count]

    return tuple(
        None if each is None else keras.tree.map_structure(extended, each) for each in data
    )


class _Timer(keras.callbacks.Callback):
    """Times steps until there are enough, the same number on every rank."""

    def __init__(self, trial: TrialContext, measured_seconds: float) -> None:
        super().__init__()
        self.seconds: list[float] = []
        self._trial = trial
        self._wanted_seconds = measured_seconds
        self._calls = 0
        self._wanted_calls = 0
        self._since: float | None = None
        self._batch = 0

    def __deepcopy__(self, _copies: Any) -> Any:
        return self

    def on_epoch_begin(self, *_: Any, **__: Any) -> None:
        self._since = None  # the first step of an epoch makes its iterator

    def on_train_batch_end(self, batch: int, *_: Any, **__: Any) -> None:
        # Keras has waited for the step: it gives a callback of batches its logs as numbers.
        now = time.perf_counter()
        self._calls += 1
        last = None if self._since is None else now - self._since
        if self._calls == _WARM_UP_STEPS:
            self._wanted_calls = self._agreed(last or self._wanted_seconds)
        elif self._calls > _WARM_UP_STEPS and last is not None:
            # With steps_per_execution, a call follows several steps.
            self.seconds.append(last / (batch - self._batch))
        self._batch = batch
        self._since = time.perf_counter()
        is_enough = bool(self._wanted_calls) and len(self.seconds) >= self._wanted_calls
        if is_enough or self._trial.should_stop():
            self.model.stop_training = True

    def _agreed(self, call_seconds: float) -> int:
        """Return how many calls to time; every rank calls it after the same one."""
        wanted = int(self._wanted_seconds / max(call_seconds, 1e-9))
        calls = max(_LEAST_STEPS, min(wanted, _MOST_STEPS))
        if self._trial.ranks is None:
            return calls
        return int(json.loads(self._trial.ranks.broadcast(json.dumps(calls).encode())))
