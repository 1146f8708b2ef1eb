"""A program of accelerate's: `accelerate launch` starts two processes for each trial.

    pip install torch accelerate scikit-learn
    hptune run --command "accelerate launch --multi_gpu --num_processes 2 --num_machines 1 \
--mixed_precision no --dynamo_backend no --main_process_port {trial.port} \
examples/torchrun/accelerate_digits.py --lr {lr} --width {width} --weight-decay {weight_decay}" \
--space examples/torchrun/space.toml --objective val_accuracy --epochs 9 --pruner asha \
--cpus-per-trial 2 --trials 20

The trial's port is its own, so that two trials on a node do not collide. With GPUs, give
`--gpus-per-trial 2`. Without, the same line starts two processes, as the program asks for
`cpu=True`: `accelerate launch --cpu` would start one.
"""

import argparse
import json
import os
import shutil
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from sklearn.datasets import load_digits
from torch.utils.data import DataLoader, TensorDataset


def main() -> None:
    options = read_options()
    accelerator = Accelerator(cpu=not torch.cuda.is_available())
    torch.manual_seed(int(os.environ.get("HPTUNE_SEED", "0")) % 2**32)
    network = torch.nn.Sequential(
        torch.nn.Linear(64, options.width), torch.nn.GELU(), torch.nn.Linear(options.width, 10)
    )
    optimizer = torch.optim.AdamW(
        network.parameters(), lr=options.lr, weight_decay=options.weight_decay
    )
    pixels, labels = load_digits(return_X_y=True)
    x, y = torch.as_tensor(pixels, dtype=torch.float32) / 16, torch.as_tensor(labels)
    network, optimizer, train, validation = accelerator.prepare(
        network,
        optimizer,
        DataLoader(TensorDataset(x[:1400], y[:1400]), 64, shuffle=True),
        DataLoader(TensorDataset(x[1400:], y[1400:]), 199),
    )
    checkpoint = Path(os.environ.get("HPTUNE_CHECKPOINT_DIR", "checkpoint"))
    done = load(checkpoint, accelerator)
    for epoch in range(done + 1, options.epochs + 1):
        network.train()
        for inputs, targets in train:
            optimizer.zero_grad()
            accelerator.backward(torch.nn.functional.cross_entropy(network(inputs), targets))
            optimizer.step()
        network.eval()
        with torch.no_grad():
            right = [
                accelerator.gather_for_metrics(network(inputs).argmax(1) == targets)
                for inputs, targets in validation
            ]
        if accelerator.is_main_process:  # before the state: so no epoch is without a report
            accuracy = torch.cat(right).float().mean().item()
            print(json.dumps({"epoch": epoch, "val_accuracy": accuracy}), flush=True)
        save(checkpoint, epoch, accelerator)
    accelerator.end_training()


def save(folder: Path, epoch: int, accelerator: Any) -> None:
    """Write the state, and then remove the one before."""
    accelerator.save_state(folder / "writing")
    accelerator.wait_for_everyone()  # each process has written its state of random numbers
    if accelerator.is_main_process:
        (folder / "writing").rename(folder / f"epoch-{epoch}")
        shutil.rmtree(folder / f"epoch-{epoch - 1}", ignore_errors=True)
    accelerator.wait_for_everyone()


def load(folder: Path, accelerator: Any) -> int:
    """Continue from the last state, and return its epoch; 0 without one."""
    epochs = [int(each.name.removeprefix("epoch-")) for each in folder.glob("epoch-*")]
    if not epochs:
        return 0
    accelerator.load_state(folder / f"epoch-{max(epochs)}")
    return max(epochs)


def read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--lr", type=float, default=1e-2)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--weight-decay", type=float, default=0.0)
    parser.add_argument("--epochs", type=int, default=int(os.environ.get("HPTUNE_EPOCHS") or 9))
    return parser.parse_args()


if __name__ == "__main__":
    main()
