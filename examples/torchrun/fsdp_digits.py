"""FSDP in a program of its own: torchrun starts two ranks, which divide the model among them.

    pip install torch scikit-learn
    hptune run --command "torchrun --standalone --nproc-per-node 2 \
examples/torchrun/fsdp_digits.py --lr {lr} --width {width} --weight-decay {weight_decay}" \
--space examples/torchrun/space.toml --objective val_loss --epochs 9 \
--pruner asha --cpus-per-trial 2 --trials 20

It knows of hptune only the variables of `docs/guide/programs.md`. `--standalone` lets torchrun take
a free port, so that two trials on a node do not collide. With GPUs, give `--gpus-per-trial 2`: the
ranks use NCCL then, and Gloo without.
"""

import argparse
import json
import os
from pathlib import Path
from typing import Any

import torch
from sklearn.datasets import load_digits
from torch.distributed.checkpoint.filesystem import FileSystemWriter
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.checkpoint.state_dict_loader import load as load_state
from torch.distributed.checkpoint.state_dict_saver import save as save_state
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard


def main() -> None:
    options = read_options()
    kind = "cuda" if torch.cuda.is_available() else "cpu"
    if kind == "cuda":
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    mesh = init_device_mesh(kind, (int(os.environ["WORLD_SIZE"]),))
    rank = mesh.get_rank()

    torch.manual_seed(int(os.environ.get("HPTUNE_SEED", "0")) % 2**32)
    network = torch.nn.Sequential(
        *(torch.nn.Linear(64, options.width), torch.nn.GELU()),
        *(torch.nn.Linear(options.width, options.width), torch.nn.GELU()),
        torch.nn.Linear(options.width, 10),
    ).to(kind)
    for layer in network:
        if isinstance(layer, torch.nn.Linear):
            fully_shard(layer, mesh=mesh)
    fully_shard(network, mesh=mesh)
    optimizer = torch.optim.AdamW(
        network.parameters(), lr=options.lr, weight_decay=options.weight_decay
    )

    pixels, labels = load_digits(return_X_y=True)
    x = torch.as_tensor(pixels, dtype=torch.float32, device=kind) / 16
    y = torch.as_tensor(labels, device=kind)
    checkpoint = Path(os.environ.get("HPTUNE_CHECKPOINT_DIR", "checkpoint"))
    done = load(checkpoint, network, optimizer)
    for epoch in range(done + 1, options.epochs + 1):
        order = torch.randperm(1400, generator=torch.Generator().manual_seed(epoch))
        for batch in order.split(128):
            share = batch[rank :: mesh.size()]  # each rank trains on its part of every batch
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(network(x[share]), y[share]).backward()
            optimizer.step()
        with torch.no_grad():
            loss = torch.nn.functional.cross_entropy(network(x[1400:]), y[1400:])
        if rank == 0:  # before the checkpoint: after an interruption, no epoch is without a report
            print(json.dumps({"epoch": epoch, "val_loss": loss.item()}), flush=True)
        save(checkpoint, epoch, network, optimizer, is_first=rank == 0)
    torch.distributed.destroy_process_group()


def save(folder: Path, epoch: int, network: Any, optimizer: Any, *, is_first: bool) -> None:
    """Write the shards of all ranks, and then which of them are whole."""
    model, optim = get_state_dict(network, optimizer)
    writer = FileSystemWriter(folder / f"epoch-{epoch % 2}", overwrite=True)
    save_state({"model": model, "optimizer": optim}, storage_writer=writer)
    torch.distributed.barrier()
    if is_first:
        (folder / "new").write_text(str(epoch))
        (folder / "new").replace(folder / "epoch")


def load(folder: Path, network: Any, optimizer: Any) -> int:
    """Continue from the last whole checkpoint, and return its epoch; 0 without one."""
    if not (folder / "epoch").exists():
        return 0
    epoch = int((folder / "epoch").read_text())
    model, optim = get_state_dict(network, optimizer)
    load_state({"model": model, "optimizer": optim}, checkpoint_id=folder / f"epoch-{epoch % 2}")
    set_state_dict(network, optimizer, model_state_dict=model, optim_state_dict=optim)
    return epoch


def read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--lr", type=float, default=1e-2)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--weight-decay", type=float, default=0.0)
    parser.add_argument("--epochs", type=int, default=int(os.environ.get("HPTUNE_EPOCHS") or 9))
    return parser.parse_args()


if __name__ == "__main__":
    main()
