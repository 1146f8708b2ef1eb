"""How large a batch may be: SGD with momentum, Adam, LARS and LAMB on Fashion-MNIST.

    python examples/large_batch.py
    python examples/large_batch.py --sizes 256,4096 --trials 4 --epochs 4 --images 10000

Each optimizer gets the same number of trials at each batch size, with learning rate, warm-up,
decay and trust coefficient drawn from `hptune.optimizers.large_batch_space`, and the same number of
epochs, so a larger batch takes fewer steps. The points are those of a scrambled Halton sequence, as
Nado et al. 2021 (arXiv 2102.06356) compare optimizers. The table and the plot show the best
accuracy of each; it is one study, so `hptune report` shows all trials.
"""

import argparse
import math
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import qmc

from hptune import HyperParameters, Study, StudyError, Tuner

OPTIMIZERS = ("sgd", "adam", "lars", "lamb")
FALL = 0.005
"""Accuracy starts to fall where the best trial is this much below that of a smaller batch."""

Table = dict[str, dict[int, float]]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    sizes = [2**power for power in range(8, 15)]
    parser.add_argument(
        "--sizes", type=_sizes, default=sizes, help="batch sizes (default 256,512,…,16384)"
    )
    parser.add_argument("--trials", type=int, default=8, help="trials of each cell (default 8)")
    parser.add_argument("--epochs", type=int, default=10, help="epochs of a trial (default 10)")
    parser.add_argument("--images", type=int, default=55_000, help="training images (all)")
    parser.add_argument("--study", default="studies/large-batch", metavar="DIR")
    parser.add_argument("-o", "--output", type=Path, default=Path("large_batch.png"))
    asked = parser.parse_args()
    try:
        if not (Path(asked.study) / "study.db").exists():
            run(asked)
        study = Study(asked.study)
        table = best_accuracies(study)
    except (StudyError, OSError, ValueError) as err:
        print(f"Error: {err}", file=sys.stderr)
        return 1
    print(text_of(table))
    draw(table, asked.output)
    print(f"\nThe plot is {asked.output}; all trials: hptune report {asked.study}")
    return 0


def run(asked: argparse.Namespace) -> None:
    """Train all trials."""
    from fashion_mnist import load_fashion_mnist

    x, y = load_fashion_mnist()
    (x, x_val), (y, y_val) = np.split(x, [55_000]), np.split(y, [55_000])
    x, y = x[: asked.images], y[: asked.images]
    if max(asked.sizes) > len(x):
        raise ValueError(f"a batch of {max(asked.sizes)} is larger than the {len(x)} images")
    points = [
        {"optimizer": kind, "batch_size": size, **point}
        for size in asked.sizes
        for kind in OPTIMIZERS
        for point in points_of(kind, asked.trials)
    ]
    print(
        f"{len(OPTIMIZERS)} optimizers x {len(asked.sizes)} batch sizes x {asked.trials} trials = "
        f"{len(points)} trials of {asked.epochs} epochs on {len(x)} images"
    )
    Tuner(
        model_of(asked.sizes, images=len(x), epochs=asked.epochs),
        objective="val_accuracy",
        trials=len(points),
        search="random",
        start_points=points,
        directory=asked.study,
        seed=0,
    ).fit(x, y, validation_data=(x_val, y_val), epochs=asked.epochs)


def model_of(sizes: list[int], *, images: int, epochs: int) -> Any:
    """Return the model function."""

    def build_model(hp: Any) -> Any:
        import keras

        from hptune.optimizers import large_batch_space

        layers = keras.layers
        model = keras.Sequential([keras.Input((28, 28)), layers.Rescaling(1 / 255)])
        model.add(layers.Reshape((28, 28, 1)))
        for width in (16, 32, 64):
            model.add(layers.Conv2D(width, 3, strides=2, padding="same", use_bias=False))
            model.add(layers.BatchNormalization(momentum=0.9))  # few steps with a large batch
            model.add(layers.ReLU())
        model.add(layers.Flatten())
        model.add(layers.Dense(10, activation="softmax"))
        batch_size = hp.Choice("batch_size", sizes)
        optimizer = large_batch_space(hp, batch_size=batch_size, samples=images, epochs=epochs)
        model.compile(optimizer, loss="sparse_categorical_crossentropy", metrics=["accuracy"])
        return model

    return build_model


def points_of(kind: str, number: int) -> list[dict[str, float]]:
    """Return settings of one optimizer that fill its space evenly, the same for each batch."""
    from hptune.optimizers import large_batch_space

    hp = HyperParameters()
    hp.Fixed("optimizer", kind)
    large_batch_space(hp, batch_size=256, samples=256, epochs=1, optimizers=(kind,))
    ranges = {
        entry["config"]["name"]: entry["config"]
        for entry in hp.get_config()["space"]
        if entry["class_name"] == "Float"
    }
    shares = qmc.Halton(len(ranges), seed=0).random(number)
    return [
        {name: _at(share, ranges[name]) for name, share in zip(ranges, point, strict=True)}
        for point in shares
    ]


def _at(share: float, config: dict[str, Any]) -> float:
    low, high = config["min_value"], config["max_value"]
    if config["sampling"] == "log":
        return float(low * (high / low) ** share)
    return float(low + share * (high - low))


def best_accuracies(study: Study) -> Table:
    """Return the best accuracy of each optimizer at each batch size."""
    table: Table = defaultdict(dict)
    for trial in study.trials:
        if trial.value is not None:
            of_kind = table[str(trial.params["optimizer"])]
            size = int(str(trial.params["batch_size"]))
            of_kind[size] = max(of_kind.get(size, 0.0), trial.value)
    if not table:
        raise ValueError(f"no trial of {study.directory} is complete")
    return {kind: dict(sorted(table[kind].items())) for kind in OPTIMIZERS if kind in table}


def falls_at(accuracies: dict[int, float]) -> int | None:
    """Return the batch size from which accuracy stays below what smaller ones reached.

    >>> falls_at({256: 0.90, 512: 0.91, 1024: 0.90, 2048: 0.908, 4096: 0.88})
    4096
    """
    fallen = None
    for size, accuracy in reversed(accuracies.items()):
        before = [value for other, value in accuracies.items() if other < size]
        if not before or accuracy >= max(before) - FALL:
            break
        fallen = size
    return fallen


def text_of(table: Table) -> str:
    """Return the table as text."""
    sizes = sorted({size for accuracies in table.values() for size in accuracies})
    lines = [f"{'best accuracy at batch':24}" + "".join(f"{size:>8}" for size in sizes)]
    for kind, accuracies in table.items():
        cells = "".join(f"{accuracies.get(size, math.nan):8.3f}" for size in sizes)
        fall = falls_at(accuracies)
        lines.append(f"{kind:24}{cells}   {f'falls at {fall}' if fall else 'does not fall'}")
    return "\n".join(lines)


def draw(table: Table, output: Path) -> None:
    """Write the plot; where accuracy starts to fall, the marker is hollow."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(8, 5), layout="constrained")
    for kind, accuracies in table.items():
        sizes, values = list(accuracies), list(accuracies.values())
        (line,) = axes.plot(sizes, values, marker="o", label=kind)
        fall = falls_at(accuracies)
        if fall:
            axes.plot(fall, accuracies[fall], "o", ms=11, mfc="none", mec=line.get_color(), mew=2)
    axes.set_xscale("log", base=2)
    every = sorted({size for accuracies in table.values() for size in accuracies})
    axes.set_xticks(every, [f"{size:,}" for size in every])
    axes.set(xlabel="batch size", ylabel="best validation accuracy")
    axes.set_title("Fashion-MNIST: the best of equally many trials (circle: starts to fall)")
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(output, dpi=100)


def _sizes(text: str) -> list[int]:
    try:
        sizes = sorted({int(number) for number in text.split(",")})
    except ValueError:
        sizes = []
    if not sizes or sizes[0] < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no list of batch sizes such as 256,4096")
    return sizes


if __name__ == "__main__":
    sys.exit(main())
