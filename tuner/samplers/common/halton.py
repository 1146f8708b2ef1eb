"""Points that fill a cube evenly, whenever one stops: a scrambled Halton sequence."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np

from .encoding import Floats

_RESOLUTION = 1e-9


class Halton:
    """The Halton sequence with random permutations of its digits.

    Each coordinate is the mirrored expansion of the point's number in a prime base of its own
    (Halton 1960); each digit is permuted, else the coordinates of large bases follow each other
    (Owen 2017, "A randomized Halton algorithm in R", arXiv:1706.02808).

    Args:
        dimensions: How many coordinates a point has.
        rng: Where the permutations come from.
    """

    def __init__(self, dimensions: int, rng: np.random.Generator) -> None:
        self._bases = list(itertools.islice(_primes(), dimensions))
        self._permutations = []
        for base in self._bases:
            digits = int(np.ceil(-np.log(_RESOLUTION) / np.log(base)))
            self._permutations.append([rng.permutation(base).tolist() for _ in range(digits)])

    def point(self, number: int) -> Floats:
        """The point with this number, from 0; each coordinate is at least 0 and below 1."""
        return np.array(
            [
                _mirrored(number, base, permutations)
                for base, permutations in zip(self._bases, self._permutations, strict=True)
            ]
        )


def _mirrored(number: int, base: int, permutations: list[list[int]]) -> float:
    found, place = 0.0, 1.0
    for permutation in permutations:
        number, digit = divmod(number, base)
        place /= base
        found += permutation[digit] * place
    return found


def _primes() -> Iterator[int]:
    found: list[int] = []
    for number in itertools.count(2):
        if all(number % prime for prime in found):
            found.append(number)
            yield number
