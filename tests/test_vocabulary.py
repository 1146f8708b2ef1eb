"""One word for each act and thing, in what people read: docs/architecture.md has the table."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = (ROOT / "tuner", ROOT / "jobqueue")
DOCS = (ROOT / "README.md", *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/**/*.md"))
HISTORY = ("decisions",)
"""Folders of docs that say what was, in the words of then."""
NOT_OURS = {
    "architecture.md": "the table itself",
}
_ROW = re.compile(r"^\| \*\*(.+?)\*\* \| .+ \| (.+?) \|$", re.MULTILINE)


@cache
def table() -> dict[str, str]:
    """Return the word to use for each that is not used."""
    page = (ROOT / "docs" / "architecture.md").read_text()
    rows = [(word, others.split(", ")) for word, others in _ROW.findall(page)]
    return {other: word for word, others in rows for other in others}


@cache
def pattern() -> re.Pattern[str]:
    """Return what finds the words that are not used, also over the end of a line."""
    spaced = (re.escape(word).replace(r"\ ", r"\s+") for word in table())
    return re.compile(rf"\b(?:{'|'.join(spaced)})\b", re.IGNORECASE)


def wrong(text: str) -> Iterator[tuple[int, str]]:
    """Return the words of a text that are not used, each with its line and the word to use."""
    for match in pattern().finditer(text):
        line = text.count("\n", 0, match.start()) + 1
        word = " ".join(match[0].split()).lower()
        yield line, f"{word!r}: say {table()[word]}"


def literals(path: Path) -> Iterator[tuple[int, str]]:
    """Return the texts of a module that are no docstrings, each with its line."""
    tree = ast.parse(path.read_text())
    alone = {node.value for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in alone:
            yield node.lineno, node.value


def test_the_table_is_read_and_other_words_are_found() -> None:
    words = table()
    assert len(words) > 20
    assert words["go on"] == "resume"
    found = list(wrong("Resume it.\nThe device\nTime of it. It may go\n on."))
    assert [line for line, _ in found] == [2, 3]
    assert found[0][1] == "'device time': say device hours"


def test_messages_and_help_have_one_word_for_each_thing() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}: {words}"
        for folder in PACKAGES
        for path in sorted(folder.rglob("*.py"))
        for line, text in literals(path)
        for _, words in wrong(text)
    ]
    assert found == []


def test_pages_and_documents_have_one_word_for_each_thing() -> None:
    pages = [
        path for folder in PACKAGES for path in folder.rglob("*") if path.suffix in (".js", ".html")
    ]
    docs = [path for path in DOCS if path.parent.name not in HISTORY and path.name not in NOT_OURS]
    found = [
        f"{path.relative_to(ROOT)}:{line}: {words}"
        for path in (*pages, *docs)
        for line, words in wrong(path.read_text())
    ]
    assert found == []


def test_the_reference_of_python_has_one_word_for_each_thing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is made of docstrings, and the reference of commands of their help."""
    monkeypatch.syspath_prepend(ROOT / "docs")
    reference = __import__("reference_pages")
    monkeypatch.delitem(sys.modules, "reference_pages")
    found = {page: list(wrong(make())) for page, make in reference.PAGES.items()}
    assert {page: words for page, words in found.items() if words} == {}
