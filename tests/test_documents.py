"""Links between documents lead somewhere."""

from __future__ import annotations

import re
import tomllib
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
LINK = re.compile(r"(?:\]\(|(?:src|href)=\")([^)\s\"]+)")
CODE = re.compile(r"^```.*?^```|`[^`\n]*`", re.MULTILINE | re.DOTALL)
FOLDERS = ("docs", "examples", "benchmarks", "containers")
DOCUMENTS = sorted(
    (*ROOT.glob("*.md"), *(p for f in FOLDERS for p in ROOT.joinpath(f).rglob("*.md")))
)


@cache
def headings(document: Path) -> set[str]:
    """Return the anchors of a document's headings, as GitHub and GitLab name them."""
    text = re.sub(r"^```.*?^```", "", document.read_text(), flags=re.MULTILINE | re.DOTALL)
    titles = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", each.lower()).replace(" ", "-") for each in titles}


def broken(document: Path) -> list[str]:
    """Return the links of a document that lead to no file or heading of the repository."""
    found = []
    for link in LINK.findall(CODE.sub("", document.read_text())):
        if re.match(r"[a-z]+:", link):
            continue
        file, _, heading = link.partition("#")
        target = (document.parent / file).resolve() if file else document
        if not target.exists() or (heading and heading not in headings(target)):
            found.append(link)
    return found


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_to_files_and_headings(document: Path) -> None:
    assert broken(document) == []


def test_broken_links_are_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text('# One\n[a](page.md#one) [b](no.md) [c](#two) `[d](no)` <img src="no.png">\n')
    assert broken(page) == ["no.md", "#two", "no.png"]


def test_no_page_installs_hptune_from_an_index() -> None:
    """It is in none yet, so its name is free for another package."""
    by_name = re.compile(
        r"pip install (?!--no-index)[^`\n#]*?(?<![\w./-])hptune(?:\[[\w,]+\])?'?(?![\w @])"
    )
    assert [str(page) for page in DOCUMENTS if by_name.search(page.read_text())] == []


PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


@pytest.mark.parametrize(
    ("file", "line"),
    [
        ("CITATION.cff", "version: {}"),
        ("containers/Containerfile", "ARG VERSION={}"),
        ("containers/hptune.def", "    VERSION={}"),
        ("packaging/conda/recipe.yaml", '  version: "{}"'),
    ],
)
def test_files_have_the_version(file: str, line: str) -> None:
    assert line.format(PROJECT["version"]) in (ROOT / file).read_text().splitlines()


def test_the_conda_package_requires_what_the_wheel_does() -> None:
    recipe = (ROOT / "packaging/conda/recipe.yaml").read_text()
    section = recipe.partition("\n  run:\n")[2].partition("\n\n")[0]
    required = dict(re.findall(r"^    - ([\w-]+) (>=[\d.]+)$", section, re.MULTILINE))
    oldest = re.search(r'python_min: "(.*)"', recipe)
    assert oldest is not None
    assert f">={oldest[1]}" == PROJECT["requires-python"]
    wheel = dict(re.findall(r"^([\w-]+)(>=.*)$", "\n".join(PROJECT["dependencies"]), re.MULTILINE))
    wheel["dask-core"] = wheel.pop("dask")  # Dask without pandas and bokeh
    assert required == wheel
