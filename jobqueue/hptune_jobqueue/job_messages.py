"""What `JobsState` is told of trials, and what it has the shell do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from .job_reports import ShownJobs
from .sizing import Need


@dataclass(frozen=True, slots=True)
class Tell:
    """Show the user a line."""

    line: str


@dataclass(frozen=True, slots=True)
class Cancel:
    """Cancel jobs."""

    ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Exclude:
    """Have Slurm start a pending job on none of these nodes."""

    job_id: str
    nodes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Submit:
    """Submit jobs; the answer is the event `submitted` or `refused`.

    Attributes:
        kind: The name of their kind.
        count: How many.
        exclude: The nodes that they must not run on.
        refusal: Why Slurm has refused more of them at once; empty if it has not.
    """

    kind: str
    count: int
    exclude: tuple[str, ...] = ()
    refusal: str = ""


@dataclass(frozen=True, slots=True)
class Write:
    """Write the file with the jobs, for other processes."""

    shown: ShownJobs


@dataclass(frozen=True, slots=True)
class Poll:
    """Ask Slurm again as soon as the pauses allow."""


Instruction = Tell | Cancel | Exclude | Submit | Write | Poll


@dataclass(frozen=True, slots=True)
class Demand:
    """Trials that there are, and the workers that they have.

    Attributes:
        trials: How many trials of the usual size run or could begin now.
        workers: The ids of the jobs whose workers take trials, and whether trials run on them.
        refused: The ids of the jobs whose workers can take no trial, and why.
        others: How many trials of other sizes run or could begin now.
    """

    trials: int
    workers: Mapping[str, bool] = field(default_factory=dict)
    refused: Mapping[str, str] = field(default_factory=dict)
    others: Mapping[Need, int] = field(default_factory=dict)
