"""The command that writes the report of a study: report."""

from __future__ import annotations

from pathlib import Path

import click

from .. import text
from ..errors import UsageError
from ..storage.output_files import write_beside_study, write_output
from .options import study_directory

_PICTURES = ("png", "svg", "pdf")
_ENDINGS = {".html": "html", ".htm": "html", ".md": "md"}
_MARKS = {"html": b'<meta name="generator" content="hptune">', "md": b"<!-- made by hptune -->"}
"""What the beginning of a report has; a file that has not is not replaced unasked."""


@click.command(short_help="Write a report with figures, as one HTML file.")
@study_directory
@click.option(
    "--format",
    "file_format",
    metavar="[html|md]",
    help="html: one page with everything; md: the best trials and what matters, as Markdown.  "
    "[default: by the ending of FILE, or html]",
)
@click.option(
    "--complete-only/--with-pruned",
    default=None,
    help="Show complete trials only, or those that were stopped early as well. The HTML page "
    "begins with this choice.  [default: complete only, if five or more are]",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="File to write.  [default: DIR/report.html or DIR/report.md]",
)
def report(
    directory: Path, *, file_format: str | None, complete_only: bool | None, output: Path | None
) -> None:
    """Write a report of the study in DIR, also while it runs.

    The HTML file holds all figures, tables and scripts: it can be copied and opened without a
    network. Each figure has a tool that saves it as a PNG file. Markdown is for pull requests.
    """
    from ..study import Study

    chosen = _chosen_format(file_format, output)
    study = Study(directory)
    path = directory / f"report.{chosen}" if output is None else output
    make = study.report_markdown if chosen == "md" else study.report_html
    page = make(complete_only=complete_only).encode()
    if output is None:
        write_beside_study(path, page, mark=_MARKS[chosen])
    else:
        write_output(path, page)
    click.echo(f"Wrote {text.path(path)}")


def _chosen_format(given: str | None, output: Path | None) -> str:
    ending = "" if output is None else output.suffix.lower()
    meant = _ENDINGS.get(ending, "html")
    picture = next((each for each in _PICTURES if each == given or f".{each}" == ending), "")
    if picture:
        raise UsageError(
            f"{picture} is asked for, but a report is html or md; the save tool of each figure in "
            "the HTML page writes that figure as a PNG file"
        )
    if given not in (None, "html", "md"):
        raise UsageError(f"--format is {given}; allowed are html and md")
    if given is not None and ending in _ENDINGS and given != meant:
        raise UsageError(f"--format is {given}, but the ending of {output} is {ending}")
    return given or meant
