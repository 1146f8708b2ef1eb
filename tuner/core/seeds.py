"""Randomness comes in through this door only.

Every random number of a study derives from its seed and from what the number is for, never from
the order in which things happened: so a study with many workers repeats itself as well as one
with a single worker, as far as its sampler does not look at results.
"""

from __future__ import annotations

import enum

import numpy as np


class Purpose(enum.IntEnum):
    """What a stream of random numbers is for; two purposes never share a stream."""

    SUGGESTION = 1
    TRAINING = 2


def generator(study_seed: int, purpose: Purpose, *keys: int) -> np.random.Generator:
    """A generator for one purpose, for example one trial's suggestion.

    Args:
        study_seed: The study's seed, 0 or more.
        purpose: What the numbers are for.
        keys: What tells this use from others, such as the trial number; 0 or more each.
    """
    return np.random.default_rng(np.random.SeedSequence([study_seed, int(purpose), *keys]))


def training_seed(study_seed: int, trial: int) -> int:
    """The seed of a trial's training, between 0 and 2**31 - 1.

    All attempts of a trial share it, so that a trial which had to start over, here or elsewhere,
    ends with the result it would have had.

    >>> training_seed(1, 0) == training_seed(1, 0) != training_seed(1, 1)
    True
    """
    words = np.random.SeedSequence([study_seed, int(Purpose.TRAINING), trial])
    return int(words.generate_state(1)[0]) & 0x7FFF_FFFF
