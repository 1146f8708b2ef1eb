"""A byte-level byte-pair encoding that is trained on the captions themselves.

Token 0 pads; tokens 1 to 256 are the bytes of UTF-8, so that any text can be encoded; each further
token is a pair of earlier ones, the most frequent pair first (Sennrich, Haddow and Birch 2016,
arXiv 1508.07909). Pairs do not cross words. Text is in lower case, and a word keeps the space
before it.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable
from functools import lru_cache
from itertools import pairwise

import numpy as np

BYTES = 257
"""Tokens that need no merge: the padding and the 256 bytes."""

Pair = tuple[int, int]


class Tokenizer:
    """Turns texts into tokens.

    Args:
        merges: The pairs in the order in which they were merged.
    """

    def __init__(self, merges: Iterable[Pair]) -> None:
        self.merges = tuple(merges)
        self._ranks = {pair: BYTES + rank for rank, pair in enumerate(self.merges)}
        self._word = lru_cache(maxsize=100_000)(self._encode_word)

    @classmethod
    def train(cls, texts: Iterable[str], vocabulary: int) -> "Tokenizer":
        """Return a tokenizer with the given number of tokens.

        The first merges are the same for any larger vocabulary, see `with_vocabulary`.

        Raises:
            ValueError: The texts have too few pairs that occur twice.
        """
        counts = Counter(word for text in texts for word in _words(text))
        words = [(_bytes(word), count) for word, count in sorted(counts.items())]
        pairs: Counter[Pair] = Counter()
        holders: dict[Pair, set[int]] = defaultdict(set)
        for index, (tokens, count) in enumerate(words):
            for pair in pairwise(tokens):
                pairs[pair] += count
                holders[pair].add(index)
        merges: list[Pair] = []
        while len(merges) < vocabulary - BYTES:
            best = max(pairs, key=lambda pair: (pairs[pair], pair), default=(0, 0))
            if pairs[best] < 2:
                raise ValueError(
                    f"a vocabulary of {vocabulary} tokens is larger than these captions give: "
                    f"they have {len(words)} different words, enough for {BYTES + len(merges)} "
                    "tokens; choose that number or fewer"
                )
            token = BYTES + len(merges)
            merges.append(best)
            for index in holders.pop(best):
                before, count = words[index]
                after = _merge(before, best, token)
                words[index] = after, count
                pairs.subtract(dict(_times(before, count)))
                for pair, times in _times(after, count):
                    pairs[pair] += times
                    holders[pair].add(index)
            del pairs[best]
        return cls(merges)

    def with_vocabulary(self, vocabulary: int) -> "Tokenizer":
        """Return the tokenizer that training with a smaller vocabulary would have given."""
        return Tokenizer(self.merges[: max(0, vocabulary - BYTES)])

    def encode(self, text: str) -> list[int]:
        """Return the tokens of a text."""
        return [token for word in _words(text) for token in self._word(word)]

    def encode_all(self, texts: Iterable[str], longest: int) -> np.ndarray:
        """Return one row of tokens for each text, cut at `longest` and padded with 0; int32."""
        rows = [self.encode(text)[:longest] for text in texts]
        tokens = np.zeros((len(rows), longest), np.int32)
        for row, found in zip(tokens, rows, strict=True):
            row[: len(found)] = found
        return tokens

    def decode(self, tokens: Iterable[int]) -> str:
        """Return the text of tokens."""
        parts = [bytes([token]) for token in range(256)]
        for first, second in self.merges:
            parts.append(parts[first - 1] + parts[second - 1])
        text = b"".join(parts[token - 1] for token in tokens if token)
        return text.decode("utf-8", "replace").strip()

    def _encode_word(self, word: str) -> tuple[int, ...]:
        tokens = _bytes(word)
        while pairs := set(pairwise(tokens)) & self._ranks.keys():
            first = min(pairs, key=self._ranks.__getitem__)
            tokens = _merge(tokens, first, self._ranks[first])
        return tokens


def _words(text: str) -> list[str]:
    return re.findall(r" ?\w+| ?[^\w\s]+", f" {text.lower()}")


def _bytes(word: str) -> tuple[int, ...]:
    return tuple(byte + 1 for byte in word.encode())


def _times(tokens: tuple[int, ...], count: int) -> list[tuple[Pair, int]]:
    """Return each pair of a word, with how often it occurs in all texts."""
    found = Counter(pairwise(tokens))
    return [(pair, times * count) for pair, times in found.items()]


def _merge(tokens: tuple[int, ...], pair: Pair, token: int) -> tuple[int, ...]:
    merged: list[int] = []
    for each in tokens:
        # The last token may itself be a merged one; `pair` is never equal to it.
        if merged and (merged[-1], each) == pair:
            merged[-1] = token
        else:
            merged.append(each)
    return tuple(merged)
