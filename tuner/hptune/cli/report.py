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
_DEFAULTS = {"html": "report.html", "md": "report.md"} | dict.fromkeys(_PICTURES, "report")


@click.command(short_help="Write a report with figures, as one HTML file.")
@study_directory
@click.option(
    "--format",
    "file_format",
    type=click.Choice(["html", "md", *_PICTURES]),
    help="html: one page with everything; md: the best trials and what matters, as Markdown; png, "
    "svg, pdf: a folder with each figure as a picture.  [default: by the ending of PLACE, or html]",
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
    metavar="PLACE",
    help="File, or folder for pictures.  [default: DIR/report.html, DIR/report.md or DIR/report/]",
)
def report(
    directory: Path, *, file_format: str | None, complete_only: bool | None, output: Path | None
) -> None:
    """Write a report of the study in DIR, also while it runs.

    The HTML file holds all figures, tables and scripts: it can be copied and opened without a
    network. Pictures are for papers, and Markdown for pull requests.
    """
    from ..study import Study

    chosen = _chosen_format(file_format, output)
    study = Study(directory)
    path = directory / _DEFAULTS[chosen] if output is None else output
    try:
        if chosen in _PICTURES:
            files = study.report_pictures(path, chosen, complete_only=complete_only)
            names = ", ".join(each.name for each in files)
            click.echo(f"Wrote {names or 'no figure: no trial has begun yet'} to {text.path(path)}")
            return
        make = study.report_markdown if chosen == "md" else study.report_html
        page = make(complete_only=complete_only).encode()
        if output is None:
            write_beside_study(path, page, mark=_MARKS[chosen])
        else:
            write_output(path, page)
    except OSError as error:
        raise UsageError(
            f"{path} cannot be written: {error.strerror}; name another place with -o"
        ) from error
    click.echo(f"Wrote {text.path(path)}")


def _chosen_format(given: str | None, output: Path | None) -> str:
    ending = "" if output is None else output.suffix.lower()
    meant = _ENDINGS.get(ending, "html")
    if ending.removeprefix(".") in _PICTURES:
        kind = ending.removeprefix(".")
        raise UsageError(
            f"{output} is one file, and there are several figures; give a folder: --format {kind} "
            f"-o {(output or Path()).with_suffix('')}"
        )
    if given is not None and ending in _ENDINGS and given != meant:
        raise UsageError(f"--format is {given}, but the ending of {output} is {ending}")
    return given or meant
