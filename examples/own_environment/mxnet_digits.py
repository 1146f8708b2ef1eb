"""A training program in an environment of its own: MXNet 1.9.1, which needs an old NumPy.

    python3.11 -m venv .venv
    .venv/bin/python -m pip install -r requirements.txt
    hptune run --command ".venv/bin/python mxnet_digits.py --optimizer {optimizer} --lr {lr}
        --momentum={momentum} --units {units} --dropout {dropout}" --space space.toml \\
        --objective val_accuracy --pruner asha --epochs 27

hptune is not installed there. The program prints a line of metrics after each epoch, and continues
from the folder in HPTUNE_CHECKPOINT_DIR.
"""

import argparse
import json
import os
from pathlib import Path

import mxnet as mx
import numpy as np
from mxnet import autograd, gluon
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--optimizer", choices=["sgd", "adam"], required=True)
    parser.add_argument("--lr", type=float, required=True)
    parser.add_argument("--momentum", type=float)
    parser.add_argument("--units", type=int, required=True)
    parser.add_argument("--dropout", type=float, default=0.0)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--epochs", type=int, default=int(os.environ.get("HPTUNE_EPOCHS") or 27))
    given = parser.parse_args()
    seed = int(os.environ.get("HPTUNE_SEED", "0"))
    mx.random.seed(seed)
    np.random.seed(seed)  # shuffles the batches

    images, labels = load_digits(return_X_y=True)
    x, x_val, y, y_val = (
        mx.nd.array(part, dtype="float32")
        for part in train_test_split(images / 16, labels, random_state=0)
    )
    batches = mx.io.NDArrayIter(x, y, given.batch_size, shuffle=True, last_batch_handle="discard")
    net = gluon.nn.HybridSequential()
    net.add(
        gluon.nn.Dense(given.units, activation="relu"),
        gluon.nn.Dropout(given.dropout),
        gluon.nn.Dense(10),
    )
    net.initialize(mx.init.Xavier())
    net.hybridize()
    net(x_val)  # gives the weights their shapes
    options = {"learning_rate": given.lr}
    if given.momentum is not None:
        options["momentum"] = given.momentum
    trainer = gluon.Trainer(net.collect_params(), given.optimizer, options)
    loss_of = gluon.loss.SoftmaxCrossEntropyLoss()

    folder = Path(os.environ.get("HPTUNE_CHECKPOINT_DIR", "checkpoint"))
    for epoch in range(load(folder, net, trainer) + 1, given.epochs + 1):
        for batch in batches:
            with autograd.record():
                loss = loss_of(net(batch.data[0]), batch.label[0])
            loss.backward()
            trainer.step(given.batch_size)
        batches.reset()
        outputs = net(x_val)
        metrics = {
            "epoch": epoch,
            "val_loss": float(loss_of(outputs, y_val).mean().asscalar()),
            "val_accuracy": float((outputs.argmax(axis=1) == y_val).mean().asscalar()),
        }
        save(folder, net, trainer, epoch)
        print(json.dumps(metrics), flush=True)


def save(folder: Path, net: gluon.Block, trainer: gluon.Trainer, epoch: int) -> None:
    """Write a checkpoint; the file `epoch` is replaced last, and names the others."""
    folder.mkdir(parents=True, exist_ok=True)
    net.save_parameters(str(folder / f"{epoch}.params"))
    trainer.save_states(str(folder / f"{epoch}.states"))
    (folder / "epoch.new").write_text(str(epoch))
    (folder / "epoch.new").replace(folder / "epoch")
    for name in (f"{epoch - 1}.params", f"{epoch - 1}.states"):
        (folder / name).unlink(missing_ok=True)


def load(folder: Path, net: gluon.Block, trainer: gluon.Trainer) -> int:
    """Read the checkpoint; return its epoch, which is 0 if there is none."""
    if not (folder / "epoch").exists():
        return 0
    epoch = int((folder / "epoch").read_text())
    net.load_parameters(str(folder / f"{epoch}.params"))
    trainer.load_states(str(folder / f"{epoch}.states"))
    return epoch


main()
