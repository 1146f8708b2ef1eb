"""Commands for Slurm: slurm init, slurm script."""

from __future__ import annotations

from pathlib import Path

import click

from ..config.kinds import size
from ..errors import UsageError
from .options import KindType
from .output import echo


@click.group(short_help="Prepare what --slurm needs.")
def slurm() -> None:
    """Prepare what `hptune run --slurm slurm.toml` needs."""


@slurm.command()
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    default=Path("slurm.toml"),
    show_default=True,
    metavar="FILE",
    help="Where to write it; - to print it.",
)
@click.option("--account", metavar="NAME", help="The account that jobs are charged to.")
def init(output: Path, account: str | None) -> None:
    """Ask Slurm what there is, and write a commented slurm.toml."""
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
            f"{output} is there already; move it away, or name another file with --output"
        ) from error
    except OSError as error:
        raise UsageError(f"{output} cannot be written: {error.strerror}") from error
    click.echo(f"Wrote {output}. See it through, then: hptune run MODEL_FILE --slurm {output}")


@slurm.command()
@click.argument("config", type=click.Path(path_type=Path), metavar="SLURM_TOML")
@click.option("--cpus-per-trial", type=click.IntRange(min=1), default=1, metavar="N")
@click.option("--gpus-per-trial", type=float, metavar="N", help="Or a part of one, such as 0.5.")
@click.option("--memory-per-trial", "memory_per_trial_bytes", type=KindType(size()), default=0)
@click.option(
    "--study",
    type=click.Path(path_type=Path),
    default=Path("STUDY"),
    metavar="DIR",
    help="Where the study is to be kept.",
)
def script(
    config: Path,
    study: Path,
    *,
    cpus_per_trial: int,
    gpus_per_trial: float | None,
    memory_per_trial_bytes: int,
) -> None:
    """Print the job scripts that SLURM_TOML leads to; nothing is submitted."""
    from ..clusters.slurm_jobs import script_texts
    from ..core.resources import Resources

    try:
        resources = Resources(cpus_per_trial, gpus_per_trial, memory_per_trial_bytes)
    except ValueError as error:
        raise UsageError(f"--gpus-per-trial: {error}") from error
    echo("\n".join(script_texts(config, study, resources)))
