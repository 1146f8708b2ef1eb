"""Commands for Slurm: slurm init, slurm script, slurm usage."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import click

from ..config.kinds import AUTO
from ..errors import UsageError
from .commands import OptionsOnce, PathType, path_option, study_directory
from .options import setting_options
from .output import echo


@click.group(short_help="Write slurm.toml, show job scripts and the accounting.")
def slurm() -> None:
    """Prepare `hptune run --slurm slurm.toml`, and ask what its jobs used."""


@slurm.command(cls=OptionsOnce)
@path_option(
    "-o",
    "--output",
    type=PathType(path_type=Path, dir_okay=False),
    default=Path("slurm.toml"),
    show_default=True,
    text="File to write; - prints it instead.",
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


@slurm.command(cls=OptionsOnce)
@click.argument("config", type=PathType(path_type=Path), metavar="SLURM_TOML")
@setting_options(
    *("cpus_per_trial", "gpus_per_trial", "memory_per_trial_bytes"),
    *("processes_per_trial", "nodes_per_trial"),
)
@path_option("--study", default=Path("STUDY"), metavar="DIR", text="Directory of the study.")
def script(config: Path, study: Path, **trial: Any) -> None:
    """Print the job scripts of SLURM_TOML, without submitting them."""
    from ..clusters.slurm_submission import script_texts
    from ..core.resources import Resources

    # What a study would choose by measuring is left open here.
    fixed = {name: None if value == AUTO else value for name, value in trial.items()}
    try:
        resources = Resources(
            fixed["cpus_per_trial"] or 0,
            fixed["gpus_per_trial"],
            fixed["memory_per_trial_bytes"] or 0,
            processes=fixed["processes_per_trial"] or 0,
            nodes=fixed["nodes_per_trial"] or 1,
        )
    except ValueError as error:
        raise UsageError(f"of a trial, {error}") from error
    echo("\n".join(script_texts(config, study, resources)))


@slurm.command(cls=OptionsOnce, short_help="Show what Slurm's accounting has on a study's jobs.")
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
