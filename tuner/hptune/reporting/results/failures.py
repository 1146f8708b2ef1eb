"""Failed trials by their reasons."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ... import text
from ...core.trial import Trial, TrialState


@dataclass(frozen=True, slots=True)
class FailureGroup:
    """Trials that failed for the same reason, apart from numbers (see `text.without_numbers`)."""

    trials: Sequence[Trial]

    @property
    def reason(self) -> str:
        """The reason of the first trial, in one line."""
        return text.failure(self.trials[0])

    @property
    def numbers(self) -> list[int]:
        """The trials' numbers."""
        return [trial.number for trial in self.trials]

    def __str__(self) -> str:
        is_example = any(text.failure(trial) != self.reason for trial in self.trials)
        such_as = "such as " if is_example else ""
        return f"{len(self.trials)} x {such_as}{self.reason} ({text.trials(self.numbers)})"


def failure_groups(trials: Sequence[Trial]) -> list[FailureGroup]:
    """Return the failed trials by reason, the most frequent reason first."""
    groups: dict[str, list[Trial]] = {}
    for trial in sorted(trials, key=lambda trial: trial.number):
        if trial.state is TrialState.FAILED:
            reason = text.shorten(text.without_numbers(trial.reason), text.FAILURE_CHARACTERS)
            groups.setdefault(reason, []).append(trial)
    return [FailureGroup(each) for each in sorted(groups.values(), key=len, reverse=True)]
