"""Help in sections, for commands with many options."""

from __future__ import annotations

import click

_SECTIONS = {
    "What is optimised": (
        *("--objective", "--direction", "--constraint"),
        *("--confirm", "--confirm-repeats"),
    ),
    "How it is searched": (
        *("--search", "--surrogate", "--grid-points", "--try", "--prior", "--warm-start"),
        *("--seed", "--accept-space"),
    ),
    "How much": ("--trials", "--epochs", "--timeout", "--budget", "--trial-timeout"),
    "Early stopping": (
        *("--pruner", "--min-epochs", "--reduction-factor", "--brackets", "--pruner-mode"),
    ),
    "Where trials run, and with what": (
        *("--workers", "--cpus-per-trial", "--gpus-per-trial", "--memory-per-trial", "--pack"),
        *("--connect", "--slurm", "--max-jobs", "--min-workers", "--detach"),
        *("--executor", "--cache-data"),
    ),
    "Checkpoints": ("--checkpoint-every", "--keep-checkpoints", "--stop-at", "--master-grace"),
    "What fails": ("--on-failure", "--max-failures", "--same-failures", "--hang-timeout"),
}
_OTHERS = "Others"


class SectionedCommand(click.Command):
    """A command whose options are shown by what they are about."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the sections in their order; what belongs to none comes last."""
        found: dict[str, list[tuple[str, str]]] = {name: [] for name in (*_SECTIONS, _OTHERS)}
        of = {option: name for name, options in _SECTIONS.items() for option in options}
        for each in self.get_params(ctx):
            record = each.get_help_record(ctx) if isinstance(each, click.Option) else None
            if record is not None:
                found[of.get(each.opts[-1], _OTHERS)].append(record)
        for name, records in found.items():
            if records:
                with formatter.section(name):
                    formatter.write_dl(records)
