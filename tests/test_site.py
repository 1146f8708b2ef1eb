"""The site of the documentation: it is built without a warning, and its search leads to help."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from browser import browser

ROOT = Path(__file__).parents[1]
WANTED = {
    "make demo": "docs/guide/first-study",
    "overfitting": "docs/guide/noisy-results",
    "text": "docs/guide/data",
    "GPU out of memory": "docs/guide/troubleshooting",
    "early stopping": "docs/guide/early-stopping",
    "paper": "docs/guide/papers",
}
_SEARCH = """
query => Search._performSearch(...Search._parseQuery(query)).reverse().map(found => found[0])
"""


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_search_of_the_site_leads_to_pages_that_help(tmp_path: Path) -> None:
    arguments = ("--fail-on-warning", "--quiet", "-b", "html", "-c", "docs", ".", tmp_path / "site")
    subprocess.run([sys.executable, "-m", "sphinx", *arguments], cwd=ROOT, check=True)
    with browser() as window:
        window.open(tmp_path / "site" / "search.html")
        window.page.wait_for_function("() => Search.hasIndex()")
        found = {words: window.page.evaluate(_SEARCH, words) for words in WANTED}
    assert {words: pages[0] for words, pages in found.items()} == WANTED
