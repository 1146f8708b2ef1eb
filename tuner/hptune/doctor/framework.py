"""Checks of the framework's devices and of one batch of training."""

from __future__ import annotations

import importlib.util
import shlex
import tempfile
from collections.abc import Iterator
from pathlib import Path

from ..errors import how_to_install
from ..training.keras.first_batch import see_framework, tiny_code, train_one_batch
from ..user_code.model_file import check_path, load
from ..user_code.user_errors import one_line
from ..worker.forkserver.isolation import allocate_as_needed
from ..worker.gpus.machine import Gpus
from .findings import Finding, Subject, failed, passed, warned

_OF_THE_NETWORK = {
    "ConnectionError",
    "ConnectTimeout",
    "LocalEntryNotFoundError",
    "URLError",
    "gaierror",
}
"""Names of exceptions of a download that reached nothing."""


def check_training(subject: Subject) -> Iterator[Finding]:
    """Import the framework, ask for its devices, and train one batch."""
    if importlib.util.find_spec("keras") is None and not subject.model_file:
        yield warned(
            "framework",
            "Keras is not installed: only objective(hp, trial) without Keras can be tuned",
            how_to_install("keras"),
        )
        return
    allocate_as_needed()  # other trials may be on the GPU
    try:
        seen = see_framework()
    except Exception as error:  # whatever a framework raises when it is imported
        yield failed(
            "framework",
            f"cannot be imported: {one_line(error)}",
            f"{how_to_install('keras')}, and set KERAS_BACKEND for one other than TensorFlow",
        )
        return
    gpus = Gpus()
    granted = len(gpus.names) if subject.gpus_per_trial != 0 else 0
    if seen.gpus < granted:
        yield failed(
            "framework",
            f"{seen.words} sees {seen.gpus} of {granted} GPUs",
            f"install {gpus.vendor.build}, and check the driver ({gpus.vendor.tool}); if the model "
            "trains on cores, use --gpus-per-trial 0",
        )
    else:
        gpus_seen = f"{seen.gpus} GPU{'s' * (seen.gpus > 1)}"
        count = gpus_seen if seen.gpus else "trains on cores"
        yield passed("framework", f"{seen.words}: {count}")
    yield _one_batch(subject)


def _one_batch(subject: Subject) -> Finding:
    own = subject.model_file
    name = Path(own).name if own else "a tiny model"
    try:
        code = load(check_path(Path(own))) if own else tiny_code()
        with tempfile.TemporaryDirectory(prefix="hptune-doctor-") as folder:
            return passed("one batch", f"{name}: {train_one_batch(code, Path(folder))}")
    except (Exception, SystemExit) as error:  # the boundary of the user's code
        again = f"run hptune doctor {shlex.quote(own)} again"
        if not own:
            advice = "the framework itself fails: reinstall it, or choose another one with "
            advice += "KERAS_BACKEND"
        elif needs_network(error):
            advice = (
                "the file's data are downloaded, which fails on this machine: download them where "
                f"there is a network, to a folder that this machine sees too, then {again}"
            )
        else:
            advice = f"correct the file, then {again}"
        return failed("one batch", f"{name}: {one_line(error)}", advice)


def needs_network(error: BaseException | None) -> bool:
    """Return whether a download reached nothing: with urllib, Keras, requests, huggingface_hub.

    >>> needs_network(ConnectionRefusedError()), needs_network(ValueError())
    (True, False)
    """
    while error is not None:
        names = {kind.__name__ for kind in type(error).__mro__}
        is_answered = "HTTPError" in names
        if (names & _OF_THE_NETWORK and not is_answered) or "URL fetch failure" in str(error):
            return True
        error = error.__cause__ or error.__context__
    return False
