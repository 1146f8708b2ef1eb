"""What tests need besides hptune: skipped without it, and failed where everything is required."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path
from typing import NoReturn

import pytest


def unavailable(why: str) -> NoReturn:
    """Skip the test; fail it if HPTUNE_TEST_EVERYTHING is 1."""
    if os.environ.get("HPTUNE_TEST_EVERYTHING") == "1":
        pytest.fail(why)
    pytest.skip(why, allow_module_level=True)


def require(name: str) -> None:
    """Skip the test, or the file of tests, without a module; fail where everything is required.

    The module is not imported here.
    """
    if importlib.util.find_spec(name) is None:
        unavailable(f"{name} is not installed")


def light_backend() -> str:
    """Return the backend of Keras for small models: PyTorch where that is installed.

    It compiles nothing, so that they train in a tenth of TensorFlow's time.
    """
    return "torch" if importlib.util.find_spec("torch") else "tensorflow"


def mxnet_python() -> Path:
    """Return the Python of the environment with MXNet; skip or fail as `unavailable` does.

    hptune's own environment cannot have MXNet, which needs an older NumPy.
    """
    folder = Path(__file__).parents[2] / ".venv-mxnet"
    if not (folder / ".installed").exists():
        unavailable("no environment with MXNet; make one with `make .venv-mxnet/.installed`")
    return folder / "bin" / "python"


def torch_environment() -> Path:
    """Return the environment with frameworks on top of PyTorch; skip or fail as `unavailable`."""
    folder = Path(__file__).parents[2] / ".venv-torch"
    if not (folder / ".installed").exists():
        unavailable("no environment with them; make one with `make .venv-torch/.installed`")
    return folder


def require_root(to: str) -> None:
    """Skip the test, or fail it as `unavailable` does, unless it runs as root.

    Args:
        to: What only root can do, such as "become another user".
    """
    if os.geteuid():
        unavailable(f"only root can {to}")
