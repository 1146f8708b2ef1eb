"""The notebook of the tutorials: kept without outputs, and run from top to bottom."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from requirements import require

require("nbclient")
require("ipykernel")
require("sklearn")

NOTEBOOK = Path(__file__).parents[2] / "docs" / "guide" / "notebook.ipynb"


def test_it_is_kept_without_outputs() -> None:
    cells = [each for each in json.loads(NOTEBOOK.read_text())["cells"] if "outputs" in each]
    assert cells
    assert [each for each in cells if each["outputs"] or each["execution_count"] is not None] == []


@pytest.mark.timeout(600)
def test_it_runs_and_shows_what_it_says(tmp_path: Path) -> None:
    import nbformat  # it comes with nbclient, and its import takes two seconds
    from nbclient import NotebookClient

    notebook = nbformat.read(NOTEBOOK, as_version=4)
    place = {"metadata": {"path": str(tmp_path)}}
    NotebookClient(
        notebook, timeout=240, startup_timeout=240, kernel_name="python3", resources=place
    ).execute()
    pages = [
        output.data["text/html"]
        for cell in notebook.cells
        for output in cell.get("outputs", ())
        if "text/html" in output.get("data", {})
    ]
    study, history, curves, table, noted, _page = pages
    assert "<svg" in study
    for page, kind in ((history, "history"), (curves, "curves")):
        assert f'data-figure="[&quot;{kind}&quot;' in page
        assert len(page) < 150_000  # Jupyter drops more than 1 MB a second
    assert "<th>learning_rate</th>" in table
    assert "train this one on all data" in noted
