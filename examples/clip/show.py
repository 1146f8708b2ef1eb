"""Show what the best model of a CLIP study has learned: curves, and images found for texts.

    python examples/clip/show.py studies/clip -o clip.png

Each row of the picture is a text, and the five validation images nearest to it; the image that the
text describes has a green frame.
"""

from __future__ import annotations

import argparse
import csv
import io
import os
import sys
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from captioned_images import CaptionedImage

ROWS, COLUMNS = 6, 5
Curves = dict[int, list[tuple[int, float]]]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("study", help="the study's directory")
    parser.add_argument("-o", "--output", type=Path, default=Path("clip.png"), metavar="FILE.png")
    arguments = parser.parse_args()
    from hptune import Study, StudyError

    try:
        study = Study(arguments.study)
        hp = study.best_hyperparameters
        if "data" not in hp:
            raise StudyError(f"{arguments.study} is no study of examples/clip/clip.py")
        os.environ["CLIP_DATA"] = hp["data"]
        import clip

        model = study.best_model()
        images, described = clip.read_part(hp["image_size"], validation=True)
        _, validation = clip.load_data(hp)
    except (StudyError, OSError, ValueError) as err:
        print(f"Error: {err}", file=sys.stderr)
        return 1
    found = clip.evaluate(model, validation)
    for name, value in found.items():
        print(f"{name:16} {value:.3f}")
    labels = len(validation["prompt"])
    if "zero_shot" in found:
        print(f"{'chance':16} {1 / labels:.3f}  ({labels} labels)")
    image_vectors = model.encode_images(images)
    if hp["data"] == "shapes":
        rest = held_out_accuracy(image_vectors, model.encode_texts(validation["prompt"]))
        print(f"{'held-out pairs':16} {rest:.3f}  (shapes in colours that were not trained on)")
    draw(
        curves={name: curves(study, f"val_{name}") for name in ("recall_1", "zero_shot")},
        best=study.best_trial.number,
        chance=1 / labels if "zero_shot" in found else None,
        images=images,
        described=described,
        products=model.encode_texts(validation["text"]) @ image_vectors.T,
        owner=validation["owner"],
        output=arguments.output,
    )
    print(f"the five nearest images of {ROWS} texts are in {arguments.output}")
    return 0


def held_out_accuracy(images: np.ndarray, prompts: np.ndarray) -> float:
    """Return the zero-shot accuracy on shapes in colours that the training pictures lack."""
    import clip
    import shapes

    _, pictures = shapes.draw_pictures(clip.SHAPES_TO_VALIDATE, validation=True)
    names = sorted(shapes.LABELS)
    guesses = [names[number] for number in (images @ prompts.T).argmax(1)]
    right = [
        guess == picture.label
        for guess, picture in zip(guesses, pictures, strict=True)
        if picture.is_held_out
    ]
    return float(np.mean(right))


def curves(study: Any, metric: str) -> Curves:
    """Return the steps and values of a metric for each trial."""
    text = io.StringIO()
    study.export(text, file_format="csv", curves=True)
    found: Curves = defaultdict(list)
    for row in csv.DictReader(text.getvalue().splitlines()):
        if row["metric"] == metric:
            found[int(row["trial"])].append((int(row["step"]), float(row["value"])))
    return found


def draw(
    *,
    curves: dict[str, Curves],
    best: int,
    chance: float | None,
    images: np.ndarray,
    described: list[CaptionedImage],
    products: np.ndarray,
    owner: np.ndarray,
    output: Path,
) -> None:
    """Write the picture."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure = plt.figure(figsize=(12, 6.6), layout="constrained")
    left, right = figure.subfigures(1, 2, width_ratios=[2, 3], squeeze=False)[0]
    titles = {"recall_1": "recall at 1, both ways", "zero_shot": "zero-shot accuracy"}
    shown = {name: found for name, found in curves.items() if found}
    grid = left.subplots(len(shown), 1, sharex=True, squeeze=False)
    for axes, (name, found) in zip(grid[:, 0], shown.items(), strict=True):
        for number, points in sorted(found.items(), key=lambda pair: pair[0] == best):
            style = {"color": "tab:blue", "lw": 2.5} if number == best else {"color": "0.75"}
            axes.plot(*zip(*sorted(points), strict=True), **style, marker=".")
        if name == "zero_shot" and chance is not None:
            axes.axhline(chance, color="tab:red", ls="--", lw=1)
            axes.text(
                0.99,
                chance + 0.01,
                "chance",
                color="tab:red",
                ha="right",
                transform=axes.get_yaxis_transform(),
            )
        axes.set(ylim=(0, 1), title=f"{titles[name]} (blue: best trial, {best})")
        axes.grid(alpha=0.3)
    grid[-1, 0].set_xlabel("epoch")
    cells = right.subplots(ROWS, COLUMNS + 1, width_ratios=[2.6] + [1] * COLUMNS)
    right.suptitle("the five validation images nearest to a text")
    captions = [text for image in described for text in image.captions]
    chosen = np.linspace(0, len(captions) - 1, ROWS).astype(int)
    for row, text in zip(cells, chosen, strict=True):
        for cell in row:
            cell.set(xticks=[], yticks=[])
        row[0].axis("off")
        row[0].text(0, 0.5, captions[text], va="center", wrap=True, fontsize=9)
        for cell, image in zip(row[1:], np.argsort(-products[text])[:COLUMNS], strict=True):
            cell.imshow(images[image])
            is_right = image == owner[text]
            for edge in cell.spines.values():
                edge.set(color="tab:green" if is_right else "0.8", linewidth=4 if is_right else 1)
    figure.savefig(output, dpi=100)


if __name__ == "__main__":
    sys.exit(main())
