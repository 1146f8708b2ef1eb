"""Gradients of Keras on PyTorch, averaged over the ranks in the optimizer's public `apply`.

Keras before 3.16 knows nothing of `torch.distributed`: its `fit` in several processes trains as
many models. Each optimizer of such a Keras is called with a list of gradients.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist

from .base import ParallelTrainingError

BACKENDS = {"cuda": "nccl", "xpu": "xccl", "cpu": "gloo"}
"""The backend of `torch.distributed` for each type of device."""

_BUCKET_BYTES = 25 << 20
"""Gradients that are sent together, as by DistributedDataParallel."""


def device_type(*, has_gpus: bool) -> str:
    """Return the type of device on which Keras trains: a key of `BACKENDS`.

    Raises:
        ParallelTrainingError: This PyTorch has no backend for it.
    """
    if not has_gpus:
        return "cpu"
    if torch.cuda.is_available():  # NVIDIA, and AMD in a build for ROCm
        return "cuda"
    if not torch.xpu.is_available():
        return "cpu"
    if not getattr(dist, "is_xccl_available", bool)():  # PyTorch before 2.6 does not have it
        raise ParallelTrainingError(
            f"PyTorch {torch.__version__} has no xccl, the backend of torch.distributed for "
            "Intel's GPUs; install a newer build for XPU, or give each trial one GPU"
        )
    return "xpu"


class GradientAverage:
    """Averages the gradients of each step, weighted by the samples of each rank.

    Attributes:
        wants_stop: Whether this rank wants the training to stop; all ranks learn of it in the next
            step.

    Args:
        device: Where the process group can reduce: a key of `BACKENDS`.
    """

    def __init__(self, device: str) -> None:
        self.wants_stop = False
        self._device = device
        self._rows = 0
        self._sum: Any = None
        self._work: Any = None

    def begin_step(self, rows: int) -> None:
        """Tell the other ranks how many samples this one has in the step; does not wait."""
        self._rows = rows
        self._sum = torch.tensor([float(rows), float(self.wants_stop)], device=self._device)
        self._work = dist.all_reduce(self._sum, async_op=True)

    def stops(self) -> bool:
        """Return whether any rank wanted to stop before the latest step."""
        self._wait()
        return self._sum is not None and float(self._sum[1]) > 0

    def _wait(self) -> None:
        if self._work is not None:
            self._work.wait()
            self._work = None

    def average(self, gradients: Sequence[Any]) -> list[Any]:
        """Return the mean of the gradients over the ranks; None where there is none."""
        self._wait()
        # Outside of a `train_step`, all ranks count alike.
        share = 1.0 / dist.get_world_size() if self._sum is None else self._rows / self._sum[0]
        found = [gradient for gradient in gradients if gradient is not None]
        sent = []
        for bucket in _buckets(found):
            flat = torch.cat([each.reshape(-1) for each in bucket]).mul_(share)
            sent.append((dist.all_reduce(flat, async_op=True), flat, bucket))
        # Buckets hold gradients of one type, so they come in another order.
        averaged: dict[int, Any] = {}
        for work, flat, bucket in sent:
            work.wait()
            parts = flat.split([each.numel() for each in bucket])
            averaged |= {
                id(each): part.view(each.shape) for each, part in zip(bucket, parts, strict=True)
            }
        return [None if gradient is None else averaged[id(gradient)] for gradient in gradients]


def _buckets(gradients: Sequence[Any]) -> list[list[Any]]:
    """Return the gradients in groups of one type and of limited size."""
    groups: dict[Any, list[list[Any]]] = {}
    sizes: dict[Any, int] = {}
    for gradient in gradients:
        size = gradient.numel() * gradient.element_size()
        buckets = groups.setdefault(gradient.dtype, [])
        if not buckets or sizes[gradient.dtype] + size > _BUCKET_BYTES:
            buckets.append([])
            sizes[gradient.dtype] = 0
        buckets[-1].append(gradient)
        sizes[gradient.dtype] += size
    return [bucket for buckets in groups.values() for bucket in buckets]
