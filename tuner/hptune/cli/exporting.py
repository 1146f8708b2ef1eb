"""Commands that write a study into files: export for other programs, report for people."""

from __future__ import annotations

import io
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..core.spelling import did_you_mean
from ..errors import UsageError
from ..storage.output_files import write_output
from .commands import path_option, plain_command, study_directory
from .output import output_errors, write_utf8

if TYPE_CHECKING:
    from ..study.study import Study

_FILES = ("csv", "json", "parquet")


@plain_command(short_help="Write all trials to a file, or for Optuna, MLflow, W&B and others.")
@study_directory
@click.option(
    "--format",
    "file_format",
    metavar="NAME",
    help="csv, parquet: a row for each trial; json: also attempts and reports; optuna, "
    "tensorboard, mlflow, wandb: what these tools read; the name of an installed export, or "
    "module:Name for one in a Python file.  [default: by the ending of PLACE, or csv]",
)
@click.option(
    "--curves", is_flag=True, help="Write the learning curves: a row for each metric at each step."
)
@click.option(
    "-o",
    "--output",
    metavar="PLACE",
    help="File to write; for optuna also the URL of a storage, for tensorboard a folder, for "
    "mlflow a tracking URI, file or folder, for wandb a folder; - for stdout.  [default: stdout "
    "for csv and json, a place in DIR for the tools]",
)
@click.option(
    "--follow",
    is_flag=True,
    help="For a tool: write each trial soon after its end, until the study is over.",
)
def export(
    directory: Path, *, file_format: str | None, curves: bool, output: str | None, follow: bool
) -> None:
    """Write all trials of the study in DIR to a file, or for another tool.

    An export for a tool replaces an earlier one of the same study in the
    same place, and leaves everything else there.

    In CSV, a text that a spreadsheet would run as a formula begins with an apostrophe.
    """
    from ..clusters.slurm_master import Masters
    from ..study.study import Study

    output = None if (is_printed := output == "-") else output
    chosen = _chosen_format(file_format, output, curves=curves)
    if is_printed and chosen not in _FILES:
        raise UsageError(f"the export to {chosen} needs a place of its own; name it with -o PLACE")
    study = Study(directory, _job_of=Masters().job_of)
    if follow and chosen in _FILES:
        raise UsageError(f"--follow is for tools such as mlflow, but the format is {chosen}")
    if chosen not in _FILES:
        click.echo(f"writing for {chosen} …", err=True)  # may take a minute for 1,000 trials
        click.echo(study.export_to(chosen, output or "", follow=follow), err=True)
    elif output is None:
        write_utf8()
        with output_errors():
            study.export(sys.stdout, file_format=chosen, curves=curves)
    else:
        _write(study, chosen, Path(output), curves=curves)
        click.echo(f"Wrote {output}", err=True)


def _write(study: Study, file_format: str, path: Path, *, curves: bool) -> None:
    if file_format == "parquet":
        study.export_parquet(path, curves=curves)
        return
    content = io.StringIO(newline="")
    study.export(content, file_format=file_format, curves=curves)
    write_output(path, content.getvalue().encode())


def _chosen_format(given: str | None, output: str | None, *, curves: bool) -> str:
    from ..reporting.exports.registry import EXPORTS

    tool = "" if given is None or given in _FILES else given
    if tool and ":" not in tool and EXPORTS.known(tool) is None:
        known = (*_FILES, *EXPORTS.rows)
        raise UsageError(
            f"--format is {tool!r}; allowed are {', '.join(known)}, and module:Name."
            f"{did_you_mean(tool, known)}"
        )
    ending = "" if output is None else Path(output).suffix.lower().removeprefix(".")
    if curves and (found := [each for each in (given, ending) if tool or each == "json"]):
        raise UsageError(
            f"--curves writes CSV or Parquet; the export to {found[0]} of all trials holds the "
            "curves too"
        )
    if ending in _FILES and given not in (None, ending):
        raise UsageError(
            f"--format is {given}, but the ending of {output} is .{ending}; name another place, or "
            "leave out one of them"
        )
    if tool:
        return tool
    if output is None:
        if given == "parquet":
            raise UsageError("Parquet is not a text; name the file to write with -o trials.parquet")
        return given or "csv"
    if ending not in _FILES and given is None:
        raise UsageError(
            f"the format of {output} is not clear from its ending; allowed are .csv, .json and "
            f".parquet, or --format {', '.join((*_FILES, *EXPORTS.rows))}"
        )
    return given or ending


@plain_command(short_help="Write a report with figures, as one HTML file.")
@study_directory
@click.option(
    "--format",
    "file_format",
    metavar="[html|md|methods]",
    help="html: one page with everything; md: the best trials and what matters, as Markdown; "
    "methods: the paragraph of a paper on how the best configuration was found.  "
    "[default: by the ending of FILE, or html]",
)
@path_option(
    "-o",
    "--output",
    text="File to write.  [default: DIR/report.html, DIR/report.md or DIR/methods.md]",
)
def report(directory: Path, *, file_format: str | None, output: Path | None) -> None:
    """Write a report of the study in DIR, also while it runs.

    The HTML file holds all figures, tables and scripts: it can be copied and opened without a
    network. Each figure has a button that saves it as an SVG file. Markdown is for pull requests.
    """
    from ..clusters.slurm_master import Masters
    from ..study.study import Study

    study = Study(directory, _job_of=Masters().job_of)
    click.echo(repr(study.report(output, file_format=file_format or "")))
