"""The command line `hptune`.

Reads options, calls `master`, `doctor` or `tuner.Study`, prints results and sets the exit code.

Offers: `main`, the entry point.

May import: `errors`, `core`, `samplers`, `storage`, `config`, `worker`, `clusters`, `reporting`,
`study`, `master`, `doctor`.
"""

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

    def list_commands(self, ctx: click.Context) -> list[str]:
        """In the order in which they are needed."""
        del ctx
        return list(self.commands)

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


_EXIT_CODES = """\b
Exit codes:
  0    done; of a run: all trials are over, or its time or budget is used up
  1    it could not be done, or no trial is complete; the message says why
  2    something in the command, the settings or the model file is wrong
  130  interrupted (Ctrl-C, SIGTERM, hptune stop); hptune resume goes on
"""


@click.group(
    cls=Commands,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=_EXIT_CODES,
)
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
