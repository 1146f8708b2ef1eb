"""Counts with their nouns, and names that a user may have meant by one that does not exist."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def plural(count: int, noun: str) -> str:
    """Return a count with its noun.

    >>> plural(1, "trial"), plural(3, "trial"), plural(2, "process")
    ('1 trial', '3 trials', '2 processes')
    """
    if count == 1:
        return f"{count} {noun}"
    return f"{count} {noun}{'es' if noun.endswith('s') else 's'}"


def nearest_name(name: str, known: Iterable[str], *, likeness: float = 0.6) -> str:
    """Return the known name that is most like a name, in any case; empty if none is.

    Args:
        name: What the user wrote.
        known: The names that exist.
        likeness: The least likeness of the two, from 0 to 1.

    >>> nearest_name("TSP", ["tpe", "random"]), nearest_name("lr", ["units"])
    ('tpe', '')
    """
    by_lower_case = {each.lower(): each for each in known}
    near = difflib.get_close_matches(name.lower(), by_lower_case, n=1, cutoff=likeness)
    return by_lower_case[near[0]] if near else ""


def did_you_mean(
    name: str, known: Iterable[str], shown: str = "{!r}", *, likeness: float = 0.6
) -> str:
    """Return a sentence with the nearest known name, to end a message; empty if there is none.

    The sentence begins with a space. `shown` is how the name is written in it.

    >>> did_you_mean("unit", ["units", "lr"]), did_you_mean("unit", ["--units"], "{}")
    (" Did you mean 'units'?", ' Did you mean --units?')
    """
    near = nearest_name(name, known, likeness=likeness)
    return f" Did you mean {shown.format(near)}?" if near else ""
