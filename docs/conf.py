"""The site of the documentation: `make docs` builds it into build/site.

The pages are the Markdown files of the repository as they are. Added are the reference of Python
and of the commands (`reference_pages`), the figures of a study that is run for them, the navigation
from the lists of docs/index.md, each page as Markdown beside its HTML, and llms.txt, which lists
them.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx
from sphinx.util import logging

DOCS = Path(__file__).parent
sys.path.insert(0, str(DOCS))

import reference_pages  # noqa: E402 (found by the path above)

project = "hptune"
copyright = "the authors of hptune"  # noqa: A001 (Sphinx's name for it)
root_doc = "docs/index"
# Sphinx reads the repository from its root, so that links to examples lead somewhere.
include_patterns = [
    *("docs/**", "examples/**", "benchmarks/README.md"),
    *("CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md"),
]
exclude_patterns = [".*", "build", "studies", "tests", "tuner", "jobqueue", "examples/*/.venv"]
extensions = ["myst_parser"]
myst_heading_anchors = 4
myst_enable_extensions = ["html_image"]
highlight_language = "none"
nitpicky = True
smartquotes = False  # an option is --trials, not a dash

html_theme = "furo"
html_title = "hptune"
html_static_path = ["theme/static"]
html_css_files = ["figures.css"]
html_search_scorer = str(DOCS / "theme/scorer.js")
templates_path = ["theme"]
html_show_copyright = False
html_show_sphinx = False

INDEX = root_doc
_WITH_LISTS = (INDEX, "docs/decisions/README")
"""Pages whose lists of pages are the navigation below them."""
_FROM_ELSEWHERE = re.compile(r"<(?:script|link|img|iframe)\b[^>]*(?:src|href)=\"(?:https?:)?//")
_PICTURE = re.compile(r"!\[[^\]]*\]\(([^):]+)\)")
_LISTED = re.compile(r"^- \[.*?\]\((.*?)\.md\)", re.MULTILINE)
_GALLERY = "docs/guide/gallery"
_CODE = re.compile(r"^```python\n(.*?)^```$|^<!-- setup sh\n(.*?)^-->$", re.MULTILINE | re.DOTALL)
_FIGURE = re.compile(r"^(```python\nfigure = .*?\.plot_(\w+)\((.*?)\)\n```)$", re.MULTILINE)
_logger = logging.getLogger(__name__)
_markdown: dict[str, str] = {}


def _complete(_app: Sphinx, page: str, source: list[str]) -> None:
    """Add what is made from the code, and to the index the navigation that follows its lists."""
    source[0] += reference_pages.PAGES.get(page, str)()
    if page == _GALLERY:
        source[0] = _FIGURE.sub(_with_figure, source[0])
    _markdown[page] = source[0]
    if page in _WITH_LISTS:
        title, *sections = source[0].split("\n## ")
        source[0] = "\n## ".join((title, *map(_with_navigation, sections)))


def _with_figure(block: re.Match[str]) -> str:
    name = _figure_file(block)
    frame = f'<iframe src="../../gallery/{name}" title="{block[2]}" loading="lazy"></iframe>'
    return f"{block[1]}\n\n{frame}"


def _figure_file(block: re.Match[str]) -> str:
    return f"{block[2]}{'-complete' if block[3] else ''}.html"


def _draw_gallery(app: Sphinx) -> None:
    """Run the code of the page of figures, and save each figure."""
    folder = Path(app.outdir) / "gallery"
    folder.mkdir(parents=True, exist_ok=True)
    page = DOCS.parent.joinpath(f"{_GALLERY}.md").read_text()
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    names: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as place, contextlib.chdir(place):
        for block in _CODE.finditer(page):
            if block[2]:
                subprocess.run(  # noqa: S602 (of our own page)
                    block[2], shell=True, check=True, stdout=subprocess.DEVNULL,
                    env=os.environ | {"PATH": path},
                )  # fmt: skip
            elif block[1].startswith("# network.py"):
                Path("network.py").write_text(block[1])
            else:
                exec(block[1], names)  # noqa: S102 (likewise)
                if figure := _FIGURE.match(block[0]):
                    names["figure"].save(folder / _figure_file(figure))


def _with_navigation(section: str) -> str:
    caption, pages = section.partition("\n")[0], _LISTED.findall(section)
    tree = f"```{{toctree}}\n:hidden:\n:caption: {caption}\n\n" + "\n".join(pages) + "\n```\n"
    return f"{section}\n{tree}"


def _write_markdown(app: Sphinx, error: Exception | None) -> None:
    """Write each page as Markdown, llms.txt and a first page; look for files from elsewhere."""
    if error is not None:
        return
    site = Path(app.outdir)
    for page, text in _markdown.items():
        site.joinpath(f"{page}.md").write_text(text)
        for picture in _PICTURE.findall(text):
            copy = site.joinpath(page).parent / picture
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(Path(app.srcdir, page).parent / picture, copy)
    folder = INDEX.rpartition("/")[0]
    site.joinpath("llms.txt").write_text(
        re.sub(r"(?<=\]\()(?!https?:)", f"{folder}/", _markdown[INDEX]).replace(f"{folder}/../", "")
    )
    site.joinpath("index.html").write_text(
        f'<!doctype html><meta http-equiv="refresh" content="0; url={INDEX}.html">'
        f'<a href="{INDEX}.html">{project}</a>\n'
    )
    for path in site.rglob("*.html"):
        for found in _FROM_ELSEWHERE.findall(path.read_text()):
            _logger.warning("%s loads something from another site: %s", path, found)


def _name_markdown(
    _app: Sphinx, page: str, _template: str, context: dict[str, Any], _doctree: object
) -> None:
    if page in _markdown:
        context["markdown_file"] = f"{page.rpartition('/')[2]}.md"
        context["metatags"] += (
            f'<link rel="alternate" type="text/markdown" href="{context["markdown_file"]}">'
        )


def setup(app: Sphinx) -> dict[str, bool]:
    """Register what this site adds to Sphinx."""
    app.connect("builder-inited", _draw_gallery)
    app.connect("source-read", _complete)
    app.connect("html-page-context", _name_markdown)
    app.connect("build-finished", _write_markdown)
    return {"parallel_read_safe": False}
