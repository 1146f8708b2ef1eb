"""The form into which all sources of past trials are read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ...core.trial import Goal


@dataclass(frozen=True, slots=True)
class FoundTrial:
    """A complete trial of a source.

    Attributes:
        params: Its configuration; texts, if the source knows no types.
        metrics: What it measured.
        value: The value of the source's own objective; None if unknown.
    """

    params: Mapping[str, object]
    metrics: Mapping[str, float] = field(default_factory=dict)
    value: float | None = None


@dataclass(frozen=True, slots=True)
class FoundTrials:
    """The complete trials of a source.

    Attributes:
        trials: The trials.
        objective: The source's own objective, the first if it has several; None if unknown.
        skipped: The trials that were left out, by the reason, such as "not complete".
        unused: Names in the source that are neither hyperparameters nor metrics, if they are not
            among the trials' `params`.
    """

    trials: Sequence[FoundTrial]
    objective: Goal | None = None
    skipped: Mapping[str, int] = field(default_factory=dict)
    unused: Sequence[str] = ()


NOT_COMPLETE = "not complete"
"""Why trials that failed, were stopped or still run are left out."""
