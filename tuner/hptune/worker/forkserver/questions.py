"""Questions to the user's code, which a child of the fork server answers.

The code is called without a GPU, with one thread, and in the directory of the user's command.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ...core.resources import Placement, Resources
from ...core.space.parameters.checks import plain
from ...core.trial import Params
from ...errors import ModelFileError
from ...user_code.model_file import UserCode, load
from ...user_code.source import OF_EACH_TRIAL, Found, ObjectiveSource
from ...user_code.user_errors import one_line, user_traceback
from ..gpus import machine
from ..monitoring import memory
from ..orders import ModelOrder, NotFound, ProbeOrder, Question, SizeOrder
from . import imports_without_gpu, isolation
from .channel import Channel

_BACKENDS = ("tensorflow", "jax", "torch")


def answer(order: Question, channel: Channel) -> None:
    """Send the search space, the resources, or what it takes to load a model."""
    machine.confine((), os.environ)
    imports_without_gpu.choose_device(has_gpus=False)
    isolation.limit_threads(1)
    with isolation.be_alone(Placement("", cpus=(0,))):
        _answer(order, channel)


def _answer(order: Question, channel: Channel) -> None:
    match order:
        case ProbeOrder():
            _probe(order, channel)
        case SizeOrder():
            _size(order, channel)
        case ModelOrder():
            from ...training.keras.kept_model import try_loading

            channel.send(str(try_loading(order.path, order.source, order.space, order.params)))


def _probe(order: ProbeOrder, channel: Channel) -> None:
    notes: tuple[str, ...] = ()
    try:
        from ...training.data_cache.data_cache import cached
        from ...training.probe import find_space

        code = cached(
            load(order.source),
            order.directory,
            order.source,
            limit_bytes=order.cache_bytes,
            is_wanted=order.wants_cache,
            free_memory_bytes=lambda: memory.free_bytes()[0],
        )
        notes = code.notes
        initial = Found(
            code.objective is None,
            space=(),
            constants=_plain_constants(code),
            warnings=notes,
            entry=code.entry,
        )
        # Sent at once: the code may crash, or train for hours, after its declarations.
        with _leaving_no_runs(order.source):
            find_space(code, initial, send=channel.send)
        channel.send(None)
    except BaseException as error:  # the boundary of the user's code
        backend = os.environ.get("KERAS_BACKEND", "")
        if backend and backend not in _BACKENDS and "import backend" in str(error):
            allowed = ", ".join(_BACKENDS)
            channel.send(NotFound(f"KERAS_BACKEND is {backend!r}; allowed are {allowed}"))
            return
        # Of several entry points, another one may be meant.
        channel.send(NotFound("; ".join((one_line(error), *notes)), user_traceback(error)))


@contextlib.contextmanager
def _leaving_no_runs(source: ObjectiveSource) -> Iterator[None]:
    """Start no runs of Weights & Biases, and delete those of MLflow that the user's code starts.

    MLflow has no switch. That the code can start a run stays as it is, with the user's server.
    """
    os.environ["WANDB_MODE"] = "disabled"
    with contextlib.suppress(ImportError, OSError):
        if b"mlflow" in Path(source.path).read_bytes():  # perhaps in a function
            importlib.import_module("mlflow")
    client: Any = getattr(sys.modules.get("mlflow"), "MlflowClient", None)
    if client is None:
        yield
        return
    create, made = client.create_run, []

    def create_run(*arguments: Any, **keywords: Any) -> Any:
        run = create(*arguments, **keywords)
        made.append((arguments[0], run.info.run_id))
        return run

    client.create_run = create_run
    try:
        yield
    finally:
        for owner, run in made:
            with contextlib.suppress(Exception):  # its server may be gone
                owner.delete_run(run)


def _plain_constants(code: UserCode) -> dict[str, object]:
    constants = dict(code.constants)
    resources = constants.pop("RESOURCES", None)
    if callable(resources):
        constants["RESOURCES"] = OF_EACH_TRIAL
    elif resources is not None:
        constants["RESOURCES"] = _plain_resources(resources, "RESOURCES is")
    allowed = {
        "OBJECTIVE": (str, "the name of a metric, or a list of them"),
        "CONSTRAINTS": (str, "a text such as 'params<2e6', or a list of them"),
        "EPOCHS": (int, "a whole number from 1 on"),
        "CACHE_DATA": (bool, "True or False"),
    }
    for name in ("OBJECTIVE", "CONSTRAINTS"):
        several = constants.get(name)
        if isinstance(several, list | tuple) and several:
            if not all(isinstance(each, str) for each in several):
                raise ModelFileError(f"{name} is {several!r}; allowed is a list of texts")
            constants[name] = tuple(map(plain, several))
            del allowed[name]
    for name, (kind, words) in allowed.items():
        value = constants.get(name)
        is_switch = isinstance(value, bool)  # which is an int to Python
        if name in constants and not (isinstance(value, kind) and is_switch == (kind is bool)):
            raise ModelFileError(f"{name} is {value!r}; allowed is {words}")
    return constants


def _plain_resources(resources: object, said: str) -> dict[str, Any]:
    if isinstance(resources, Resources):
        return asdict(resources)
    if isinstance(resources, Mapping):
        return {name: plain(amount) for name, amount in resources.items()}
    raise ModelFileError(
        f"{said} {resources!r}; allowed is hptune.Resources(cpus=…, gpus=…, memory_bytes=…), a "
        "dict of the same, or a function that takes hp and returns one of them"
    )


def _size(order: SizeOrder, channel: Channel) -> None:
    """Send one mapping for each configuration, or why there is none."""
    params: Params = {}
    try:
        from ...training.hyperparameters import make_hyperparameters

        resources = load(order.source).constants["RESOURCES"]
        sizes = []
        for params in order.configurations:
            found = resources(make_hyperparameters(order.space, params))
            sizes.append(_plain_resources(found, "RESOURCES(hp) returned"))
        channel.send(sizes)  # may fail, too: they may hold anything
    except BaseException as error:  # the boundary of the user's code
        values = ", ".join(f"{name}={value!r}" for name, value in params.items())
        message = f"RESOURCES(hp) failed with {values}: {one_line(error)}"
        channel.send(NotFound(message, user_traceback(error)))
