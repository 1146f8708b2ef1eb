"""Which device and backend ranks on PyTorch use."""

from __future__ import annotations

from types import ModuleType

import pytest

from requirements import require


@pytest.mark.parametrize(
    ("has_gpus", "has_cuda", "has_xpu", "expected"),
    [
        (True, True, False, ("cuda", "nccl")),
        (True, True, True, ("cuda", "nccl")),
        (True, False, True, ("xpu", "xccl")),
        (True, False, False, ("cpu", "gloo")),
        (False, True, True, ("cpu", "gloo")),
    ],
)
def test_the_backend_follows_from_the_device(
    monkeypatch: pytest.MonkeyPatch,
    *,
    has_gpus: bool,
    has_cuda: bool,
    has_xpu: bool,
    expected: tuple[str, str],
) -> None:
    gradients = imported(monkeypatch, has_cuda=has_cuda, has_xpu=has_xpu)
    monkeypatch.setattr("torch.distributed.is_xccl_available", lambda: True)
    device = gradients.device_type(has_gpus=has_gpus)
    assert (device, gradients.BACKENDS[device]) == expected


def test_a_pytorch_without_a_backend_for_intel_s_gpus_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from hptune.training.strategies.base import ParallelTrainingError

    gradients = imported(monkeypatch, has_cuda=False, has_xpu=True)
    with pytest.raises(ParallelTrainingError, match="has no xccl"):
        gradients.device_type(has_gpus=True)
    monkeypatch.delattr("torch.distributed.is_xccl_available")
    with pytest.raises(ParallelTrainingError, match="has no xccl"):
        gradients.device_type(has_gpus=True)


def imported(monkeypatch: pytest.MonkeyPatch, *, has_cuda: bool, has_xpu: bool) -> ModuleType:
    """Return the module, with PyTorch as it is where there are such devices."""
    require("torch")
    from hptune.training.strategies import torch_gradients

    monkeypatch.setattr("torch.cuda.is_available", lambda: has_cuda)
    monkeypatch.setattr("torch.xpu.is_available", lambda: has_xpu)
    return torch_gradients
