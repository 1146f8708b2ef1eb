"""A section of the report: its words, figures and tables."""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

LABEL_CHARACTERS = 40
"""Longest name in a figure, which a longer one would leave no room; tables have whole names."""


@dataclass(frozen=True, slots=True)
class Table:
    """A table of texts.

    Attributes:
        columns: The headings.
        rows: The cells of each row.
        name: What the page's style knows it by; empty for a plain table.
        trials: The trials of each row, which a button shows alone; empty for none.
    """

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    name: str = ""
    trials: Sequence[Sequence[int]] = ()


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure, which `figures.js` draws.

    Attributes:
        kind: The name of the function that draws it.
        given: What it needs besides the study's data, as JSON holds it.
    """

    kind: str
    given: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Panel:
    """The contents of one section of the report.

    Attributes:
        words: What it shows, in a sentence or two.
        figures: Its figures, side by side where there is room.
        tables: The same as tables.
        is_folded: Whether the tables are hidden until the reader opens them.
    """

    words: str
    figures: Sequence[Figure] = ()
    tables: Sequence[Table] = ()
    is_folded: bool = True


class Follows(enum.Enum):
    """What a section changes with."""

    TRIALS = enum.auto()
    """With the trials that have a value, and so when one ends."""
    EVERYTHING = enum.auto()
    """With every report, and some with time."""


@dataclass(frozen=True, slots=True)
class Section:
    """A section of the report that is made when it is needed.

    Attributes:
        name: Identifier within the page.
        title: The heading.
        make: Makes the panel; None if there is nothing to show.
        follows: What it changes with.
        is_wide: Whether it takes both columns of a wide page.
    """

    name: str
    title: str
    make: Callable[[], Panel | None]
    follows: Follows = Follows.TRIALS
    is_wide: bool = False
