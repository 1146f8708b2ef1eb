"""Plain PyTorch: DistributedDataParallel over gloo."""

from __future__ import annotations

import os

import torch
import torch.distributed as dist
from torch.nn import functional

from scaling import case


def train() -> None:
    """Train all epochs, and record each."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    if case.world_size() > 1:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
        dist.init_process_group("gloo")
    images, labels = case.data()
    x, y = torch.from_numpy(images).permute(0, 3, 1, 2).contiguous(), torch.from_numpy(labels)
    first, second = case.FILTERS
    model: torch.nn.Module = torch.nn.Sequential(
        torch.nn.Conv2d(1, first, 3), torch.nn.ReLU(), torch.nn.MaxPool2d(2),
        torch.nn.Conv2d(first, second, 3), torch.nn.ReLU(), torch.nn.MaxPool2d(2),
        torch.nn.Flatten(), torch.nn.Linear(second * 25, 10),
    )  # fmt: skip
    if case.world_size() > 1:
        model = torch.nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), case.LEARNING_RATE, case.MOMENTUM)
    for epoch in range(case.EPOCHS):
        loss = torch.tensor(0.0)
        for rows in case.parts(epoch, len(x)):
            which = torch.from_numpy(rows)
            optimizer.zero_grad()
            loss = functional.cross_entropy(model(x[which]), y[which])
            loss.backward()
            optimizer.step()
        case.record("epoch", epoch, loss=float(loss.detach()))
    if case.world_size() > 1:
        dist.destroy_process_group()


if __name__ == "__main__":
    train()
