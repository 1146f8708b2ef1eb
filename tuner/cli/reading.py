"""Commands that read a study: status, best, replay, export."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from ..errors import UsageError
from .options import as_json, study_directory
from .output import a_reader_that_may_leave, echo


@click.command(short_help="Show where a study stands, also while it runs.")
@study_directory
@as_json
def status(directory: Path, as_json: bool) -> None:
    """Show where the study in DIR stands; it may be running."""
    from ..master.detached import master_job
    from ..storage.directory import StudyDirectory
    from ..study import Study

    where = StudyDirectory(directory)
    job = master_job(where)
    told = {} if job is None else {"master_job": job.to_json()}
    words = [] if job is None else [job.to_text()]
    if job is not None and not where.database.exists():
        # The study begins with the job.
        echo({"study": str(where.path), **told} if as_json else job.to_text())
        return
    study = Study(directory)
    echo({**study.status_json(), **told} if as_json else "\n".join([study.status_text(), *words]))


@click.command(short_help="Show the best trial, and where its model is.")
@study_directory
@as_json
def best(directory: Path, as_json: bool) -> None:
    """Show the best trial of the study in DIR, and where its model lies."""
    from ..study import Study

    study = Study(directory)
    # Exits with 1 if there is none.
    _ = study.best_trial
    echo(study.best_json() if as_json else study.best_text())


@click.command(short_help="Run a study's search again, and compare.")
@study_directory
@as_json
def replay(directory: Path, as_json: bool) -> None:
    """Run the search of the study in DIR again, and compare its suggestions.

    Nothing is trained: the search is told what the trials gave. Exits with 1 at the
    first suggestion that differs from the study's, and shows both.
    """
    from ..master.replay import replay as replay_study
    from ..storage.directory import StudyDirectory

    replayed = replay_study(StudyDirectory(directory))
    echo(replayed.to_json() if as_json else replayed.to_text())
    if replayed.difference is not None:
        raise SystemExit(1)


@click.command(short_help="Write all trials as a table or as JSON.")
@study_directory
@click.option(
    "--format",
    "file_format",
    type=click.Choice(["csv", "json"]),
    default="csv",
    show_default=True,
    help="csv: a row for each trial; json: with attempts and reports.",
)
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), metavar="FILE", help="[default: print it]"
)
def export(directory: Path, file_format: str, output: Path | None) -> None:
    """Write all trials of the study in DIR as a table or as JSON."""
    from ..study import Study

    study = Study(directory)
    if output is None:
        with a_reader_that_may_leave():
            study.export(sys.stdout, file_format=file_format)
        return
    try:
        with output.open("w", newline="", encoding="utf-8") as stream:
            study.export(stream, file_format=file_format)
    except OSError as error:
        raise UsageError(f"{output} cannot be written: {error.strerror}") from error
    click.echo(f"Wrote {output}", err=True)
