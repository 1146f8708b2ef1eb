"""Checks of the changes that a resumed study is given."""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from ..config.model_file import SourceKind
from ..config.objectives import goals_of, read_constraint, read_objective
from ..config.settings import BY_NAME, StudySettings
from ..config.source_checks import check_syntax
from ..core.attempt import Attempt
from ..core.budget import DeviceBudget, hours_of
from ..core.messages import FinishReason
from ..core.space.earlier_study import EarlierStudy
from ..core.space.space import SearchSpace
from ..core.trial import Trial
from ..errors import ModelFileError, UsageError
from ..registry import shown_name
from ..samplers.registry import AUTO
from ..storage.directory import StudyDirectory
from ..storage.ledger import StudyFacts, damage_errors
from ..text import duration


@dataclass(frozen=True, slots=True)
class ResumeState:
    """State of a study, for the checks.

    Attributes:
        directory: Where the study is.
        facts: The ledger's facts on the study as a whole.
        trials: All its trials.
        active_seconds: How long its masters have worked; 0 if unknown.
        attempts: All attempts.
    """

    directory: StudyDirectory
    facts: StudyFacts
    trials: Collection[Trial]
    active_seconds: float = 0.0
    attempts: Collection[Attempt] = ()


def read_settings(directory: StudyDirectory, facts: StudyFacts) -> StudySettings:
    """Return the settings of a stored study, after checking that all its facts can be read.

    Raises:
        StudyError: The ledger is damaged.
    """
    with damage_errors(directory):
        goals_of(facts)
        for space in (facts["space"], facts["declared_space"]):
            SearchSpace.from_json(space)
        for study in facts["warm_start"]:
            EarlierStudy.from_json(study)
        if facts["ended"] is not None:
            FinishReason(facts["ended"]["finish_reason"])
        operator.index(facts["seed"])
        return StudySettings.from_json(facts["settings"]).found_in(directory.path)


def check_changes(settings: StudySettings, state: ResumeState) -> None:
    """Check that the study can still be changed to these settings.

    Raises:
        UsageError: It cannot, or its model file is gone or not Python.
    """
    source, directory = settings.source, state.directory
    if source.kind is SourceKind.FILE:
        if not Path(source.path).exists():
            raise ModelFileError(
                f"the model file {source.path} is gone. If it was moved, name it: "
                f"`hptune resume {directory} --model-file FILE`"
            )
        check_syntax(Path(source.path))
    _check_budget(settings, state)
    _check_timeout(settings, state)
    _check_device_budget(settings, state)
    _check_repeats(settings, state)


def check_same(asked: StudySettings, given: Collection[str], state: ResumeState) -> None:
    """Check that settings of the whole study are asked for as they are.

    `auto` is the same as any search: the search that it chose is stored in its place.

    Args:
        asked: What the user asks for now.
        given: The settings that the user gave; the others are not compared.
        state: The study's state.

    Raises:
        UsageError: One differs. The settings that a resumed study may change are not compared.
    """
    stored = read_settings(state.directory, state.facts)
    for name in given:
        setting = BY_NAME[name]
        value, before = getattr(asked, name), getattr(stored, name)
        if setting.resumable or value in (None, (), {}) or _is_same(name, asked, stored, state):
            continue
        was = f"with {setting.kind.show(before)}" if before else "without it"
        if name in ("objectives", "direction", "constraints"):
            was = f"for {goals_of(state.facts)}"
        raise UsageError(
            f"{setting.flag} is {setting.kind.show(value)}, but the study in {state.directory} was "
            f"begun {was}, which cannot be changed; leave {setting.flag} out, or start a new study "
            f"that learns from this one, with --warm-start={str(state.directory)!r}"
        )


def _is_same(name: str, asked: StudySettings, stored: StudySettings, state: ResumeState) -> bool:
    goals = goals_of(state.facts)
    match name:
        case "objectives" | "direction":
            known = [(goal.metric, goal.direction) for goal in goals.objectives]
            objectives = [read_objective(each) for each in asked.objectives]
            wanted = objectives or [(metric, None) for metric, _ in known]
            return len(known) == len(wanted) and all(
                metric == other and (direction or asked.direction) in (None, way)
                for (metric, direction), (other, way) in zip(wanted, known, strict=True)
            )
        case "constraints":
            return tuple(map(read_constraint, asked.constraints)) == goals.constraints
        case "seed":
            return bool(asked.seed == state.facts["seed"])
        case "search":
            return asked.search == AUTO or shown_name(asked.search) == shown_name(stored.search)
        case "executor":  # one that Python gave may be corrected
            return shown_name(asked.executor) == shown_name(stored.executor)
    return bool(getattr(asked, name) == getattr(stored, name))


def check_room(settings: StudySettings, added: int, state: ResumeState) -> None:
    """Check that the number of trials allows for the configurations that the user adds.

    Raises:
        UsageError: It does not.
    """
    have = _suggested(state)
    total = settings.budget_trials
    if added and total is not None and have + added > total:
        raise UsageError(
            f"{state.directory} has {have} trials of {total}, and {added} more "
            f"{'is' if added == 1 else 'are'} to be tried; give --trials {have + added} or more"
        )


def _suggested(state: ResumeState) -> int:
    return sum(trial.confirms is None for trial in state.trials)


def _check_budget(settings: StudySettings, state: ResumeState) -> None:
    have = _suggested(state)
    if settings.trials == state.facts["settings"]["trials"]:
        return  # trials that users added may exceed the total
    if settings.trials is not None and settings.trials < have:
        raise UsageError(
            f"{state.directory} has {have} trials already, and --trials is the total, with those "
            f"to be continued: allowed are {have} and more, {settings.trials} was given"
        )


def _check_timeout(settings: StudySettings, state: ResumeState) -> None:
    """Refuse a new timeout that is used up; an old one ends the run as it did before."""
    total, used = settings.timeout_seconds, state.active_seconds
    if not total or total == state.facts["settings"]["timeout_seconds"] or total > used:
        return
    raise UsageError(
        f"{state.directory} has run for {duration(used)} already, and --timeout is the total; "
        f"give more than that, {duration(total)} was given"
    )


def _check_device_budget(settings: StudySettings, state: ResumeState) -> None:
    """Refuse a new budget that is spent; an old one ends the run as it did before."""
    budget = settings.device_budget
    if budget is None or settings.budget == state.facts["settings"]["budget"]:
        return
    ended = [each for each in state.attempts if each.ended_at is not None]
    used = hours_of(ended, budget.device, now=0.0)
    if used >= budget.hours:
        raise UsageError(
            f"{state.directory} has used {DeviceBudget(budget.device, float(f'{used:.3g}'))} "
            f"already, and --budget is the total; give more than that, {budget} was given"
        )


def _check_repeats(settings: StudySettings, state: ResumeState) -> None:
    # All repeats of a configuration become trials at once.
    repeats = Counter(trial.confirms for trial in state.trials if trial.confirms is not None)
    before = max(repeats.values(), default=settings.repeats)
    if settings.confirm and settings.repeats != before:
        raise UsageError(
            f"configurations of this study were confirmed with {before} repeats each, and means of "
            f"more or fewer cannot be compared with theirs; allowed is --confirm-repeats {before}"
        )
