"""How far a study has come, and what it cannot be given any more."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..config.model_file import SourceKind
from ..config.settings import StudySettings
from ..core.trial import Trial
from ..errors import ModelFileError, UsageError
from ..reporting.text import duration
from ..storage.directory import StudyDirectory


@dataclass(frozen=True, slots=True)
class ResumeState:
    """How far a study has come, for whom that is enough to know.

    Attributes:
        directory: Where the study is.
        facts: What is known of it as a whole.
        trials: All its trials.
        active_seconds: How long its masters have worked; 0 if unknown.
    """

    directory: StudyDirectory
    facts: Mapping[str, Any]
    trials: Collection[Trial]
    active_seconds: float = 0.0


def check_changes(settings: StudySettings, standing: ResumeState) -> None:
    """Find what a study that has come so far cannot be given any more.

    Raises:
        UsageError: It was, or its model file is gone.
    """
    source, directory = settings.source, standing.directory
    if source.kind is SourceKind.FILE and not Path(source.path).exists():
        raise ModelFileError(
            f"the model file {source.path} is gone. If it was moved, say where it is: "
            f"`hptune resume {directory} --model-file FILE`"
        )
    _check_budget(settings, standing)
    _check_timeout(settings, standing)
    _check_repeats(settings, standing)


def check_room(settings: StudySettings, added: int, standing: ResumeState) -> None:
    """Find whether configurations that the user wants tried have room in the study's trials.

    Args:
        settings: What the user asks for now.
        added: How many of these are new to the study.
        standing: How far it has come.

    Raises:
        UsageError: They have none.
    """
    have = _suggested(standing)
    total = settings.budget_trials
    if added and total is not None and have + added > total:
        raise UsageError(
            f"{standing.directory} has {have} trials of {total}, and {added} more "
            f"{'is' if added == 1 else 'are'} to be tried; say --trials {have + added} or more"
        )


def _suggested(standing: ResumeState) -> int:
    return sum(trial.confirms is None for trial in standing.trials)


def _check_budget(settings: StudySettings, standing: ResumeState) -> None:
    have = _suggested(standing)
    if settings.trials is not None and settings.trials < have:
        raise UsageError(
            f"{standing.directory} has {have} trials already, and --trials is the total: allowed "
            f"are {have} and more, {settings.trials} was given"
        )


def _check_timeout(settings: StudySettings, standing: ResumeState) -> None:
    """Refuse a new timeout that is used up; an old one ends the run as it did before."""
    total, used = settings.timeout_seconds, standing.active_seconds
    if total in (None, standing.facts["settings"]["timeout_seconds"]) or total > used:
        return
    raise UsageError(
        f"{standing.directory} has run for {duration(used)} already, and --timeout is the total; "
        f"give more than that, {duration(total)} was given"
    )


def _check_repeats(settings: StudySettings, standing: ResumeState) -> None:
    before = StudySettings.from_json(standing.facts["settings"]).repeats
    if settings.repeats == before:
        return
    if any(trial.confirms is not None for trial in standing.trials):
        raise UsageError(
            f"configurations of this study were confirmed with {before} repeats each, and means of "
            f"more or fewer cannot be compared with theirs; allowed is --confirm-repeats {before}"
        )
