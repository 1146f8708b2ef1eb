"""Imports in the fork server that leave the GPUs alone.

A process that is forked from one that has initialised CUDA cannot use it. Keras on PyTorch looks
for a GPU when it is imported, and so do many model files (`torch.cuda.is_available()`).
"""

from __future__ import annotations

import ctypes
import os
import sys

_KERAS_DEVICE = "KERAS_TORCH_DEVICE"
_WHILE_IMPORTING = "cpu:0"
"""The device of Keras on PyTorch in the server. Spelled so, because nobody else spells it so: what
the user sets is kept."""

VARIABLES = {
    # PyTorch then asks the driver's management library, which does not initialise CUDA.
    "PYTORCH_NVML_BASED_CUDA_CHECK": "1",
    _KERAS_DEVICE: _WHILE_IMPORTING,
}
"""The environment of the server, where the user's does not have these variables."""

_NOT_INITIALISED = 3
"""What the functions of CUDA's driver return before `cuInit`."""


def is_cuda_initialised() -> bool:
    """Return whether this process has initialised CUDA."""
    try:
        driver = ctypes.CDLL("libcuda.so.1", mode=os.RTLD_NOLOAD)  # fails if it is not loaded
    except OSError:
        return False
    count = ctypes.c_int()
    return int(driver.cuDeviceGetCount(ctypes.byref(count))) != _NOT_INITIALISED


def end_imports() -> None:
    """Forget the device of the imports, so that no program that a trial starts inherits it."""
    if os.environ.get(_KERAS_DEVICE) == _WHILE_IMPORTING:
        del os.environ[_KERAS_DEVICE]


def choose_device(*, has_gpus: bool) -> None:
    """Let Keras on PyTorch use the GPU of this process, a child of the server, or its cores.

    Called after the process was confined to its devices. Does nothing if the server did not import
    Keras on PyTorch, or the user has set the device.
    """
    core, torch = (sys.modules.get(name) for name in ("keras.src.backend.torch.core", "torch"))
    if core is None or torch is None or _KERAS_DEVICE in os.environ:
        return
    device = "cpu"
    if has_gpus:
        known = [name for name in ("cuda", "xpu") if hasattr(torch, name)]  # no xpu before 2.3
        device = next((name for name in known if getattr(torch, name).is_available()), device)
    core.DEFAULT_DEVICE = device  # type: ignore[attr-defined]  # a module without types
