"""Commands for Slurm: slurm init, slurm script, slurm usage."""

from __future__ import annotations

import time
from pathlib import Path

import click

from ..errors import UsageError
from .options import PathType, setting_options, study_directory
from .output import echo


@click.group(short_help="Write slurm.toml, show job scripts and the accounting.")
def slurm() -> None:
    """Prepare `hptune run --slurm slurm.toml`, and ask what its jobs used."""


@slurm.command()
@click.option(
    "-o",
    "--output",
    type=PathType(path_type=Path, dir_okay=False),
    default=Path("slurm.toml"),
    show_default=True,
    metavar="FILE",
    help="File to write; - prints it instead.",
)
@click.option("--account", metavar="NAME", help="Slurm account of the jobs.")
def init(output: Path, account: str | None) -> None:
    """Write a slurm.toml with comments, for this cluster."""
    from ..clusters.slurm_jobs import slurm_toml

    text = slurm_toml(account)
    if str(output) == "-":
        echo(text)
        return
    try:
        with output.open("x", encoding="utf-8") as stream:
            stream.write(text)
    except FileExistsError as error:
        raise UsageError(
            f"{output} already exists; rename it, or name another file with --output"
        ) from error
    except OSError as error:
        raise UsageError(f"{output} cannot be written: {error.strerror}") from error
    click.echo(f"Wrote {output}. Check it, then: hptune run MODEL_FILE --slurm {output}")


@slurm.command()
@click.argument("config", type=PathType(path_type=Path), metavar="SLURM_TOML")
@setting_options(
    *("cpus_per_trial", "gpus_per_trial", "memory_per_trial_bytes"),
    *("processes_per_trial", "nodes_per_trial"),
)
@click.option(
    "--study",
    type=PathType(path_type=Path),
    default=Path("STUDY"),
    metavar="DIR",
    help="Directory of the study.",
)
def script(
    config: Path,
    study: Path,
    *,
    cpus_per_trial: float | None,
    gpus_per_trial: float | str | None,
    memory_per_trial_bytes: int | None,
    processes_per_trial: int | str | None,
    nodes_per_trial: int | None,
) -> None:
    """Print the job scripts of SLURM_TOML, without submitting them."""
    from ..clusters.slurm_submission import script_texts
    from ..core.resources import Resources

    gpus = None if isinstance(gpus_per_trial, str) else gpus_per_trial
    processes = None if isinstance(processes_per_trial, str) else processes_per_trial
    try:
        resources = Resources(
            cpus_per_trial or 0,
            gpus,
            memory_per_trial_bytes or 0,
            processes=processes or 0,
            nodes=nodes_per_trial or 1,
        )
    except ValueError as error:
        raise UsageError(f"of a trial, {error}") from error
    echo("\n".join(script_texts(config, study, resources)))


@slurm.command(short_help="Show what Slurm's accounting has on a study's jobs.")
@study_directory
def usage(directory: Path) -> None:
    """Show what the jobs of the study in DIR were given and used, by Slurm's accounting.

    Core and GPU hours of the jobs, the part of them that trials held, processor time, and energy
    where Slurm measures it.
    """
    from ..clusters.slurm_usage import usage_lines
    from ..reporting.results.costs import costs_of_study
    from ..storage.directory import StudyDirectory
    from ..study.study import Study

    found = StudyDirectory(directory)
    view = Study(found).view()
    held = costs_of_study(view, time.time())
    lines = usage_lines(
        found, since=view.created_at, core_hours=held.core_hours, gpu_hours=held.gpu_hours
    )
    for label, words in lines:
        echo(f"{label:<16}{words}")
