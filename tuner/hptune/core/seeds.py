"""Random number generators: the only source of randomness in the core.

Every random number of a study derives from its seed and from its purpose, never from the order of
events. So a study with many workers is as repeatable as one with a single worker, if its sampler
does not learn from results.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

_SUGGESTION = 1
"""What the numbers are for; another purpose would have another number."""


def generator(study_seed: int, *keys: int) -> np.random.Generator:
    """Return the generator for one use by a sampler, for example for one trial's suggestion.

    Args:
        study_seed: The study's seed, 0 or more.
        keys: Numbers that distinguish this use from others, such as the trial number; each 0 or
            more.
    """
    import numpy as np  # what suggests nothing does without

    return np.random.default_rng(np.random.SeedSequence([study_seed, _SUGGESTION, *keys]))


def training_seed(study_seed: int, trial: int) -> int:
    """Return the seed of a trial's training, between 0 and 2**31 - 1.

    All attempts of a trial share it, so that a trial that starts over has the same result.

    >>> training_seed(1, 0) == training_seed(1, 0) != training_seed(1, 1)
    True
    """
    digest = blake2b(f"training {study_seed} {trial}".encode(), digest_size=4).digest()
    return int.from_bytes(digest) & 0x7FFF_FFFF
