"""The notebook of the tutorials: kept without outputs, and run from top to bottom."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from requirements import require

if TYPE_CHECKING:  # its import takes two seconds
    import nbformat

require("nbclient")
require("ipykernel")
require("sklearn")

NOTEBOOK = Path(__file__).parents[2] / "docs" / "guide" / "notebook.ipynb"


def code(notebook: nbformat.NotebookNode) -> list[nbformat.NotebookNode]:
    return [each for each in notebook.cells if each.cell_type == "code"]


def test_it_is_kept_without_outputs() -> None:
    import nbformat  # it comes with nbclient

    cells = code(nbformat.read(NOTEBOOK, as_version=4))
    assert cells
    assert [each for each in cells if each.outputs or each.execution_count is not None] == []


@pytest.mark.timeout(600)
def test_it_runs_and_shows_what_it_says(tmp_path: Path) -> None:
    import nbformat
    from nbclient import NotebookClient

    notebook = nbformat.read(NOTEBOOK, as_version=4)
    place = {"metadata": {"path": str(tmp_path)}}
    NotebookClient(
        notebook, timeout=240, startup_timeout=240, kernel_name="python3", resources=place
    ).execute()
    pages = [
        output.data["text/html"]
        for cell in code(notebook)
        for output in cell.outputs
        if "text/html" in output.get("data", {})
    ]
    study, history, curves, table, noted, _page = pages
    assert "<svg" in study
    for page, kind in ((history, "history"), (curves, "curves")):
        assert f'data-figure="[&quot;{kind}&quot;' in page
        assert len(page) < 150_000  # Jupyter drops more than 1 MB a second
    assert "<th>learning_rate</th>" in table
    assert "train this one on all data" in noted
