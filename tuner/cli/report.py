"""The command that writes the report of a study: report."""

from __future__ import annotations

from pathlib import Path

import click

from ..errors import UsageError
from ..reporting import text
from .options import study_directory

REPORT_FILE = "report.html"


@click.command(short_help="Write a report with figures, as one HTML file.")
@study_directory
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help=f"[default: DIR/{REPORT_FILE}]",
)
def report(directory: Path, output: Path | None) -> None:
    """Write a report of the study in DIR, also while it runs.

    The file holds all figures, tables and scripts: it can be copied and opened without a network.
    """
    from ..study import Study

    page = Study(directory).report_html()
    path = directory / REPORT_FILE if output is None else output
    try:
        path.write_text(page, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}") from error
    click.echo(f"Wrote {text.path(path)}")
