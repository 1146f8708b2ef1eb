"""The fixed configurations, kept apart from Keras so that the driver need not load it."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

EPOCHS = 3
BATCH_SIZE = 32

# The last axis changes fastest and costs no time, so the even and the odd cases cost the same:
# that is how the two bare processes share the list. After 24 cases the shapes repeat with other
# seeds, so that the second 24 trials cost what the first 24 did.
_SHAPES = tuple(itertools.product((8, 12, 16, 20), (32, 48, 64), (0.001, 0.003)))


@dataclass(frozen=True, slots=True)
class Config:
    """One trial's configuration.

    Attributes:
        filters: Filters of the convolution.
        units: Units of the hidden dense layer.
        learning_rate: Adam's learning rate.
        seed: Seeds the weights and the order of the batches.
    """

    filters: int
    units: int
    learning_rate: float
    seed: int


def config(case: int) -> Config:
    """Return the configuration of a case, numbered from 0."""
    filters, units, learning_rate = _SHAPES[case % len(_SHAPES)]
    return Config(filters, units, learning_rate, seed=1_000 + case)
