"""The fork server never initialises CUDA: no process forked from it could use a GPU afterwards."""

from __future__ import annotations

import contextlib
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from attempts import Attempts
from hptune.core.resources import Placement
from hptune.user_code.model_file import check_path
from hptune.worker.forkserver.client import ForkServer
from hptune.worker.forkserver.imports_without_gpu import choose_device
from requirements import require

SEES_THE_TORCH_DEVICE = """
import os

import torch

LOOKED = []

def look():
    LOOKED.append(os.getpid())
    return bool(os.environ.get("CUDA_VISIBLE_DEVICES"))

torch.cuda.is_available = look
import keras
from keras.src.backend.torch import core

def objective(hp, trial):
    print("device", core.DEFAULT_DEVICE, "set", os.environ.get("KERAS_TORCH_DEVICE"))
    print("looked in the server", os.getppid() in LOOKED)
    return 1.0
"""

USES_CUDA = """
import ctypes
import os

IMPORTED_IN = os.getpid()

class Driver:
    @staticmethod
    def cuDeviceGetCount(count):
        return {status}

load = ctypes.CDLL
ctypes.CDLL = lambda name, *how, **kw: Driver if "libcuda" in str(name) else load(name, *how, **kw)

def objective(hp, trial):
    print("imported here", IMPORTED_IN == os.getpid())
    return 1.0
"""


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[Callable[[str], Attempts]]:
    """Return what starts a fork server that imports the given model file."""
    with contextlib.ExitStack() as stack:

        def started(text: str) -> Attempts:
            file = tmp_path / "model.py"
            file.write_text(textwrap.dedent(text))
            server = stack.enter_context(contextlib.closing(ForkServer(check_path(file))))
            server.wait_ready()
            return Attempts(server, tmp_path)

        yield started


def test_keras_on_pytorch_uses_the_devices_of_each_trial(
    own_server: Callable[[str], Attempts], monkeypatch: pytest.MonkeyPatch
) -> None:
    require("torch")
    monkeypatch.setenv("KERAS_BACKEND", "torch")
    monkeypatch.delenv("KERAS_TORCH_DEVICE", raising=False)
    attempts = own_server(SEES_THE_TORCH_DEVICE)
    logs = [
        attempts.run(SEES_THE_TORCH_DEVICE, placement=Placement("w", (0,), gpus)).log.splitlines()
        for gpus in (("GPU-b",), ())
    ]
    assert [log[-2:] for log in logs] == [
        ["device cuda set None", "looked in the server False"],
        ["device cpu set None", "looked in the server False"],
    ]


def test_pytorch_that_does_not_know_gpus_of_intel(monkeypatch: pytest.MonkeyPatch) -> None:
    core, torch = ModuleType("core"), ModuleType("torch")  # 2.2 and before have no torch.xpu
    vars(torch)["cuda"] = SimpleNamespace(is_available=lambda: True)
    monkeypatch.setitem(sys.modules, "keras.src.backend.torch.core", core)
    monkeypatch.setitem(sys.modules, "torch", torch)
    monkeypatch.delenv("KERAS_TORCH_DEVICE", raising=False)
    choose_device(has_gpus=True)
    assert vars(core)["DEFAULT_DEVICE"] == "cuda"


@pytest.mark.parametrize(("status", "is_imported_again"), [(3, False), (0, True), (100, True)])
def test_a_file_that_initialises_cuda_is_imported_in_each_trial(
    own_server: Callable[[str], Attempts], status: int, is_imported_again: bool
) -> None:
    text = USES_CUDA.format(status=status)  # 3: cuInit was not called
    log = own_server(text).run(text).log
    assert f"imported here {is_imported_again}" in log.splitlines()
