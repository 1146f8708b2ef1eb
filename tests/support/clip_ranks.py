"""One step of examples/clip in one process or in several: functions for `run_ranks`."""

from __future__ import annotations

import contextlib
import importlib
import sys
from pathlib import Path
from typing import Any

from device_training import entered
from hptune.training.hyperparameters import make_hyperparameters
from hptune.training.parallel.ranks import Ranks
from hptune.training.strategies.fit_calls import train_by

CLIP = Path(__file__).parents[2] / "examples" / "clip"
BATCH_SIZE = 32


def gradients(ranks: Ranks, losses: list[str]) -> dict[str, list[Any]]:
    """Return the gradient of one batch for each loss, and the vectors of the validation images."""
    import keras

    sys.path.insert(0, str(CLIP))
    clip: Any = importlib.import_module("clip")
    clip.SHAPES_TO_TRAIN, clip.SHAPES_TO_VALIDATE = 600, 8
    found = {}
    with contextlib.ExitStack() as stack:
        if ranks.world_size > 1:
            strategy = stack.enter_context(entered(ranks))
            stack.enter_context(strategy.scope())
            stack.enter_context(train_by(strategy))
        for loss in losses:
            hp = make_hyperparameters()
            hp.values.update(
                width=8, text_width=32, text_layers=1, vocabulary=380, augmentation=0.0, loss=loss,
                batch_size=BATCH_SIZE,
            )  # fmt: skip
            train, validation = clip.load_data(hp)
            batch = {"image": train["image"][:BATCH_SIZE], "text": train["text"][:BATCH_SIZE, :1]}
            keras.utils.set_random_seed(0)
            model = clip.build_model(hp)
            before = model.get_weights()
            model.compile(keras.optimizers.SGD(1.0))  # the step is the gradient
            history = model.fit(
                batch, batch_size=BATCH_SIZE, shuffle=False, verbose=0,
                callbacks=[clip.Validation(validation)],
            ).history  # fmt: skip
            assert {"val_recall_1", "val_zero_shot"} <= set(history)
            found[loss] = [a - b for a, b in zip(model.get_weights(), before, strict=True)]
            found[loss].append(model.encode_images(validation["image"]))
    return found
