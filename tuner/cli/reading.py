"""Commands that read a study: status, best, replay, export."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import click

from ..errors import UsageError
from .options import as_json, study_directory
from .output import broken_pipe_ignored, echo


@click.command(short_help="Show the state of a study, also while it runs.")
@study_directory
@as_json
def status(directory: Path, as_json: bool) -> None:
    """Show the state of the study in DIR, which may be running."""
    from ..clusters.shown_jobs import jobs_json, jobs_text
    from ..master.detached import master_job
    from ..storage.directory import StudyDirectory
    from ..study import Study

    found = StudyDirectory(directory)
    master = master_job(found)
    if master is not None and not found.database.exists():
        # The job waits in the queue; it makes the study when it starts.
        plain: dict[str, object] = {"study": str(found.path), "master_job": master.to_json()}
        echo(plain if as_json else master.to_text())
        return
    study = Study(found)
    if as_json:
        jobs: dict[str, object] = {} if master is None else {"master_job": master.to_json()}
        if (shown := jobs_json(found.path)) is not None:
            jobs["slurm_jobs"] = shown
        echo(study.status_json() | jobs)
        return
    words = [study.status_text(), jobs_text(found.path, now=time.time())]
    words += [] if master is None else [master.to_text()]
    echo("\n".join(filter(None, words)))


@click.command(short_help="Show the best trial and its model.")
@study_directory
@as_json
def best(directory: Path, as_json: bool) -> None:
    """Show the best trial of the study in DIR, and the path of its model."""
    from ..study import Study

    study = Study(directory)
    _ = study.best_trial  # raises a StudyError if there is none
    echo(study.best_json() if as_json else study.best_text())


@click.command(short_help="Repeat a study's search and compare its suggestions.")
@study_directory
@as_json
def replay(directory: Path, as_json: bool) -> None:
    """Repeat the search of the study in DIR, and compare its suggestions.

    Nothing is trained: the search gets the results of the study's trials. At the first
    suggestion that differs from the study's, both are shown and the exit code is 1.
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
    help="csv: a row for each trial; json: also attempts and reports.",
)
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), metavar="FILE", help="[default: stdout]"
)
def export(directory: Path, file_format: str, output: Path | None) -> None:
    """Write all trials of the study in DIR as a table or as JSON."""
    from ..study import Study

    study = Study(directory)
    if output is None:
        with broken_pipe_ignored():
            study.export(sys.stdout, file_format=file_format)
        return
    try:
        with output.open("w", newline="", encoding="utf-8") as stream:
            study.export(stream, file_format=file_format)
    except OSError as error:
        raise UsageError(f"{output} cannot be written: {error.strerror}") from error
    click.echo(f"Wrote {output}", err=True)
