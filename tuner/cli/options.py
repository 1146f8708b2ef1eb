"""Options that several commands take."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import click

from ..config.settings import PACKING
from ..core.failure_policy import CAUSES
from ..errors import UsageError
from .values import CacheSize, Duration, Size

as_json = click.option("--json", "as_json", is_flag=True, help="As JSON, for programs.")
study_directory = click.argument("directory", type=click.Path(path_type=Path), metavar="DIR")


_SETTLED = ("--search", "--surrogate", "--grid-points", "--prior", "--warm-start", "--objective",
            "--direction", "--constraint", "--seed", "--executor")  # fmt: skip


def settled_options(command: Callable[..., None]) -> Callable[..., None]:
    """Options of `run` that a study keeps for good: whoever gives them anew is told what to do."""

    def refuse(context: click.Context, option: click.Parameter, said: object) -> None:
        if said:
            name, directory = option.opts[0], context.params.get("directory", "DIR")
            raise UsageError(
                f"{name} is settled when a study begins, so that its trials can be compared and "
                "its search can be replayed. Start a new study that learns from this one: "
                f"`hptune run MODEL_FILE {name} … --warm-start {directory}`"
                if name != "--warm-start"
                else f"{name} is settled when a study begins. Start a new study that learns from "
                f"both: `hptune run MODEL_FILE --warm-start {directory} --warm-start …`"
            )

    for name in _SETTLED:
        option = click.option(name, multiple=True, hidden=True, expose_value=False, callback=refuse)
        command = option(command)
    return command


def start_points_option(when: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """`--try`.

    Args:
        when: When the configuration is tried: "first" or "next".
    """
    return click.option(
        "--try",
        "start_points",
        multiple=True,
        metavar="POINT",
        help=f'Try this {when}: "lr=0.001,units=64", or @FILE.json or @FILE.csv with several. What '
        "is not named takes its default. May be repeated.",
    )


def settings_options(command: Callable[..., None]) -> Callable[..., None]:
    """Options that `run` takes, and that `resume` may change."""
    options = [
        click.option(
            "--trials",
            type=int,
            metavar="N",
            help="Total number of trials.  [default: 50; for a grid, all of it]",
        ),
        click.option(
            "--epochs",
            type=int,
            metavar="N",
            help="Epochs of a trial, at most.  [default: EPOCHS of the file, or 10]",
        ),
        click.option(
            "--pruner",
            metavar="NAME",
            help="Stop poor trials early: asha, hyperband, median, or none.  [default: none]",
        ),
        click.option(
            "--reduction-factor",
            type=int,
            metavar="N",
            help="For asha and hyperband: one trial in N goes on at each rung.  [default: 3]",
        ),
        click.option(
            "--min-epochs",
            type=int,
            metavar="N",
            help="No trial is stopped before this epoch.  [default: a twentieth of the epochs]",
        ),
        click.option(
            "--brackets",
            type=int,
            metavar="N",
            help="For hyperband: how many brackets.  [default: as many as there can be]",
        ),
        click.option(
            "--pruner-mode",
            type=click.Choice(["stop", "promote"]),
            help="For asha and hyperband: poor trials stop for good, or pause and may go on later "
            "from their checkpoints.  [default: stop]",
        ),
        click.option(
            "--timeout",
            "timeout_seconds",
            type=Duration(),
            help="How long the study may work in all, such as 2h.",
        ),
        click.option(
            "--budget",
            metavar="HOURS",
            help="How long GPUs or cores may be held over all trials, such as 100gpu-h or "
            "40core-h; none for no limit.",
        ),
        click.option(
            "--trial-timeout",
            "trial_timeout_seconds",
            type=Duration(),
            help="How long one trial may run, such as 30m; it then fails (see --on-failure).",
        ),
        click.option(
            "--hang-timeout",
            "hang_timeout_seconds",
            type=Duration(),
            help="End a trial that reports nothing and computes nothing for so long; 0 for never. "
            " [default: 10m]",
        ),
        click.option(
            "--master-grace",
            "master_grace_seconds",
            type=Duration(),
            help="How long trials on workers that are not this command's own go on when it is "
            "killed; the next `hptune resume` takes in what they did.  [default: 10m]",
        ),
        click.option(
            "--on-failure",
            multiple=True,
            callback=lambda _context, _parameter, said: said or None,
            metavar="CAUSE=ANSWER",
            help="Answer to a cause by retry:N (retry: once), fail, prune or stop (the study); "
            f"causes are {', '.join(CAUSES)}. May be repeated.",
        ),
        click.option(
            "--workers",
            type=int,
            metavar="N",
            help="Workers on this machine, sharing its cores; each then runs one trial at a time "
            "unless --cpus-per-trial is given.  [default: one, with a trial on each core to begin "
            "with]",
        ),
        click.option(
            "--connect",
            metavar="ADDRESS",
            help="Use the workers that join the scheduler there (see `hptune scheduler`): its "
            "address, its scheduler file, or `none` for workers on this machine.",
        ),
        click.option(
            "--slurm",
            metavar="SLURM_TOML",
            help="Run the workers in Slurm jobs as this file says (see `hptune slurm init`), or "
            "`none`.",
        ),
        click.option(
            "--max-jobs",
            type=int,
            metavar="N",
            help="With --slurm: how many jobs there may be at once.  [default: 10]",
        ),
        click.option(
            "--min-workers",
            type=int,
            metavar="N",
            help="With --slurm: wait for N workers before the first trial.  [default: begin with "
            "the first one]",
        ),
        click.option(
            "--cpus-per-trial",
            type=float,
            metavar="N",
            help="CPU cores of a trial, or a part of one, such as 0.5.",
        ),
        click.option(
            "--gpus-per-trial",
            type=float,
            metavar="N",
            help="GPUs of a trial, or a part of one, such as 0.5.  [default: one where there are "
            "any]",
        ),
        click.option(
            "--memory-per-trial",
            "memory_per_trial_bytes",
            type=Size(),
            help="Host memory of a trial, such as 4GB.",
        ),
        click.option(
            "--pack",
            type=click.Choice(PACKING),
            help="How many trials share a core or a GPU where you do not say: as many as they were "
            "measured to leave room for (auto), or one (off).  [default: auto]",
        ),
        click.option(
            "--checkpoint-every",
            type=int,
            metavar="N",
            help="Epochs between two checkpoints of a Keras trial; 0 for none.  [default: as few "
            "as take under 3 % of the time]",
        ),
        click.option(
            "--keep-checkpoints",
            type=int,
            metavar="N",
            help="So many of the best trials can be given more epochs later.  [default: 3]",
        ),
        click.option(
            "--cache-data",
            type=CacheSize(),
            metavar="on|off|SIZE",
            help="Call load_data once per node and share its arrays between the trials there. SIZE "
            "limits the space on each node.  [default: on, up to half of the free space]",
        ),
        click.option(
            "--stop-at",
            type=click.Choice(["batch", "epoch"]),
            help="When a Keras trial that is told to stop does so: at the end of its batch, or of "
            "its epoch, however long that takes.  [default: batch]",
        ),
        click.option(
            "--confirm",
            type=int,
            metavar="K",
            help="In the end, train the best K configurations again; the best mean wins.",
        ),
        click.option(
            "--confirm-repeats",
            type=int,
            metavar="N",
            help="How often to train each of them again.  [default: 2]",
        ),
        click.option(
            "--max-failures", type=int, metavar="N", help="Stop when more trials than this fail."
        ),
        click.option(
            "--same-failures",
            "same_failure_limit",
            type=int,
            metavar="N",
            help="Stop when the first N trials all fail the same way; 0 for never.  [default: 3]",
        ),
        click.option("-q", "--quiet", is_flag=True, help="Show no progress."),
    ]
    for option in reversed(options):
        command = option(command)
    return command
