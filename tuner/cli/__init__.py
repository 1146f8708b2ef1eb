"""The command `hptune`."""

from __future__ import annotations

from typing import Any

import click

from ..errors import HptuneError, UsageError
from .doctor import doctor
from .joining import scheduler, worker
from .output import INTERRUPTED, show_error
from .reading import best, export, replay, status
from .running import resume, run, stop
from .slurm import slurm


class Commands(click.Group):
    """Suggests the command that was meant, and shows our errors without a traceback."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; errors become one message and an exit code."""
        try:
            return super().invoke(ctx)
        except HptuneError as error:
            show_error(error)
            ctx.exit(2 if isinstance(error, UsageError) else 1)
        except KeyboardInterrupt:
            click.echo("interrupted", err=True)
            ctx.exit(INTERRUPTED)


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="hptune", prog_name="hptune")
def main() -> None:
    """Tune the hyperparameters of Keras models (or of anything else).

    \b
    hptune run model.py --search tpe --trials 50
    hptune best studies/model-1

    The model file offers build_model(hp) and load_data(), a KerasTuner HyperModel,
    or objective(hp, trial). Everything about a study lies in one directory; if a run
    is interrupted in any way, `hptune resume DIR` goes on and nothing is lost.
    """


_COMMANDS = (run, resume, stop, status, best, export, replay, scheduler, worker, slurm, doctor)
for _command in _COMMANDS:
    main.add_command(_command)
