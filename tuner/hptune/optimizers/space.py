"""A search space of optimizers for large batches."""

from __future__ import annotations

from typing import Any

import keras

from .layerwise import Lamb, Lars, WarmUp

_RATES = {
    "sgd": (0.01, 10.0),
    "adam": (1e-4, 0.1),
    "lars": (0.1, 50.0),
    "lamb": (1e-4, 0.1),
}
"""Ranges of the peak learning rate at a batch of 256; it grows with the root of the batch."""


def large_batch_space(
    hp: Any,
    *,
    batch_size: int,
    samples: int,
    epochs: int,
    optimizers: tuple[str, ...] = ("sgd", "adam", "lars", "lamb"),
) -> Any:
    """Return an optimizer whose kind and settings are hyperparameters.

    Untuned, LARS and LAMB are worse than SGD; tuned for its batch size, each of the four can win
    (Nado et al. 2021, arXiv 2102.06356). So each has its own learning rate, warm-up and decay.

    Args:
        hp: The hyperparameters.
        batch_size: The global batch size.
        samples: Samples of the training data.
        epochs: Epochs of the training.
        optimizers: The kinds to choose from: "sgd" (with Nesterov momentum), "adam" (with
            decoupled decay), "lars" and "lamb".

    Raises:
        ValueError: A kind is unknown.
    """
    if unknown := set(optimizers) - set(_RATES):
        raise ValueError(
            f"unknown optimizers {', '.join(sorted(unknown))}; allowed are {', '.join(_RATES)}"
        )
    kind = hp.Choice("optimizer", list(optimizers))
    warm_up_share = hp.Float("warm_up_share", 0.0, 0.5)
    decay = hp.Float("weight_decay", 1e-6, 1e-2, sampling="log")
    scale = (batch_size / 256) ** 0.5
    with hp.conditional_scope("optimizer", [kind]):
        low, high = _RATES[kind]
        peak = scale * hp.Float(f"{kind}_learning_rate", low, high, sampling="log")
        schedule = WarmUp(
            peak,
            epochs,
            max(1.0, samples / batch_size),
            warm_up_epochs=warm_up_share * epochs,
            power=2.0 if kind == "lars" else 1.0,
        )
        if kind == "sgd":
            return keras.optimizers.SGD(schedule, momentum=0.9, nesterov=True, weight_decay=decay)
        if kind == "adam":
            return keras.optimizers.AdamW(schedule, weight_decay=decay)
        if kind == "lamb":
            return Lamb(schedule, weight_decay=decay)
        trust = hp.Float("trust_coefficient", 1e-4, 1e-1, sampling="log")
        return Lars(schedule, weight_decay=decay, trust_coefficient=trust)
