"""What a screen or text says, wherever its columns begin."""

from __future__ import annotations


def words_of(line: str) -> str:
    """Return a line with one blank between words."""
    return " ".join(line.split())


def assert_says(text: str, *lines: str) -> None:
    """Check that a text has these lines in this order; others may stand between them.

    Args:
        text: The text, for people.
        lines: Whole lines; how many blanks are between words does not matter.
    """
    rest = iter([words_of(each) for each in text.splitlines()])
    for each in lines:
        assert words_of(each) in rest, f"missing, or not after the lines before: {each!r}\n{text}"
