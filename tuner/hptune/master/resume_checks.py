"""Checks of the changes that a resumed study is given."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .. import text
from ..config.objectives import (
    asked_goals,
    goals_of,
    read_constraint,
    read_objective,
    resolve_goals,
    unknown_metrics,
)
from ..config.resolved import resolve_epochs
from ..config.settings import BY_NAME, StudySettings
from ..core.budget import DeviceBudget
from ..core.goals import Goals
from ..core.space.space import SearchSpace
from ..core.space.user_priors import with_priors
from ..core.trial import TrialState
from ..errors import (
    ModelFileError,
    UnknownMetricError,
    UsageError,
    without_passwords,
)
from ..files.access import exists
from ..registry import STORED, shown_name
from ..samplers.registry import AUTO
from ..storage.directory import StudyDirectory
from ..user_code.source import Found, SourceKind
from ..user_code.source_checks import check_syntax
from .past import Past


def refuse_without_code(past: Past) -> None:
    """Refuse to run a study whose trials programs train.

    Raises:
        UsageError: It is one.
    """
    if past.settings.source.kind is SourceKind.ASKED:
        raise UsageError(
            f"the study in {past.directory} has no code that workers could run: programs ask for "
            f"its trials. Continue it with hptune.open_study({str(past.directory.path)!r}, …)"
        )


def check_changes(settings: StudySettings, past: Past) -> None:
    """Check that the study can still be changed to these settings.

    Raises:
        UsageError: It cannot, or its model file is gone or not Python.
    """
    source, directory = settings.source, past.directory
    if source.kind is SourceKind.FILE:
        if not exists(Path(source.path)):
            raise ModelFileError(
                f"the model file {source.path} is gone. If it was moved, name it: "
                f"`hptune resume {directory} --model-file FILE`"
            )
        check_syntax(Path(source.path), settings.python)
    _check_totals(settings, past)
    _check_repeats(settings, past)


def changeable(given: Mapping[str, Any], past: Past) -> dict[str, Any]:
    """Return the given settings without those of the whole study, which must be as they are.

    What Python gave as one of these, such as a class, replaces the one of that name: it may be
    corrected. `auto` is the same as any search: the search that it chose is stored in its place.

    Args:
        given: The settings that the user gave.
        past: The study's past; no event need be read yet.

    Raises:
        UsageError: A setting of the whole study differs.
    """
    changes = {}
    for name, value in given.items():
        setting = BY_NAME.get(name)
        if setting is None or setting.resumable:
            changes[name] = value
            continue
        if value in ((), {}):
            continue
        if _is_same(name, value, past):
            changes |= {name: value} if name == "executor" or STORED in str(value) else {}
            continue
        before = getattr(past.settings, name)
        was = f"with {setting.kind.show(before)}" if before else "without it"
        if name in ("objectives", "constraints"):
            was = f"for {goals_of(past.facts)}"
        raise _fixed(f"{setting.flag} is {setting.kind.show(value)}", was, setting.flag, past)
    for name, value in changes.get("options", {}).items():
        is_fixed = not BY_NAME[name.partition(".")[0]].resumable
        if is_fixed and (before := past.settings.options.get(name)) != value:
            was = "without it" if before is None else f"with {before!r}"
            raise _fixed(f"--option {name} is {value!r}", was, "it", past)
    return changes


def _fixed(given: str, was: str, what: str, past: Past) -> UsageError:
    return UsageError(
        f"{given}, but the study in {past.directory} was begun {was}, which cannot be changed; "
        f"leave {what} out, or start a new study that learns from this one, with "
        f"--warm-start={str(past.directory)!r}"
    )


def _is_same(name: str, value: Any, past: Past) -> bool:
    goals, before = goals_of(past.facts), getattr(past.settings, name)
    match name:
        case "objectives":
            wanted = list(map(read_objective, value))
            return len(goals.objectives) == len(wanted) and all(
                metric == known.metric and direction in (None, known.direction)
                for (metric, direction), known in zip(wanted, goals.objectives, strict=True)
            )
        case "constraints":
            return set(map(read_constraint, value)) == set(goals.constraints)
        case "priors":  # "normal(1, 2)" is as "normal(1,2)"
            space = SearchSpace.from_json(past.facts["space"])
            return [*with_priors(space, value)] == [*with_priors(space, before)]
        case "seed":
            return bool(value == past.facts["seed"])
        case "search" | "executor":
            is_chosen = name == "search" and value == AUTO
            return is_chosen or shown_name(value) == shown_name(before)
        case "warm_start":
            return bool(tuple(map(without_passwords, value)) == before)
    return bool(value == before)


def check_constants(settings: StudySettings, past: Past, found: Found) -> list[str]:
    """Compare what the user's code declares now with the study, which continues as it was begun.

    What a study cannot change is refused, as the user has no use for further trials. What it can
    change later, and what the code no longer says, is only told.

    Args:
        settings: The settings from now on.
        past: The study's past.
        found: What the code declares.

    Returns:
        Lines for the user.

    Raises:
        UsageError: A constant contradicts the study, or trials cannot report its metrics.
    """
    kept, file = goals_of(past.facts), _code(settings)
    objectives, constraints = asked_goals(found, settings.objectives, settings.constraints)
    differs = {
        "OBJECTIVE": objectives and not _is_same("objectives", objectives, past),
        "CONSTRAINTS": constraints and not _is_same("constraints", constraints, past),
    }
    if (name := next((name for name in differs if differs[name]), None)) is not None:
        raise UsageError(
            f"{name} in {file} is {found.constants[name]!r}, but the study in {past.directory} "
            f"was begun for {kept}, which cannot be changed. Undo that or remove the line, "
            "or start a new study that learns from this one: `hptune run "
            f"{file} --warm-start {text.path(past.directory.path)}`"
        )
    _check_reported(kept, past.directory, found)
    return [*_lines_on_goals(settings, kept, found), *_lines_on_epochs(settings, past, found)]


def _code(settings: StudySettings) -> str:
    source = settings.source
    return text.path(source.path) if source.kind is SourceKind.FILE else source.shown


def _check_reported(kept: Goals, directory: StudyDirectory, found: Found) -> None:
    try:
        unknown_metrics([(each, None) for each in kept.metrics if each != found.metric], found)
    except UnknownMetricError as error:
        raise UnknownMetricError(
            f"the study in {directory} was begun for {kept}, which cannot be changed, but "
            f"{error.message}"
        ) from error


def _lines_on_goals(settings: StudySettings, kept: Goals, found: Found) -> list[str]:
    """Return a line if a new study would have other goals, as the code says less than before."""
    new: Goals | None = None
    with contextlib.suppress(UsageError):  # without what is gone, they are not known
        new = resolve_goals(found, settings.objectives, settings.constraints)[0]
    is_same = new is not None and new.objectives == kept.objectives
    if new and is_same and set(new.constraints) == set(kept.constraints):
        return []
    asked = {
        "OBJECTIVE": settings.objectives or is_same,
        "CONSTRAINTS": settings.constraints or not kept.constraints,
    }
    gone = [name for name in asked if not (asked[name] or name in found.constants)]
    no = " and no ".join(gone) or "directions in OBJECTIVE"
    would = f" (a new one would have {new})" if new is not None else ""
    return [f"{_code(settings)} has no {no}; the study continues for {kept}{would}"]


def _lines_on_epochs(settings: StudySettings, past: Past, found: Found) -> list[str]:
    kept, new = settings.epochs or past.facts["epochs"], resolve_epochs(settings, found)
    if kept == new:
        return []
    file, directory = _code(settings), text.path(past.directory.path)
    has = f"EPOCHS in {file} is {new}" if "EPOCHS" in found.constants else f"{file} has no EPOCHS"
    trains = f"with {text.plural(kept, 'epoch')}" if kept else "without a number of epochs"
    change = f"; to change that: `hptune resume {directory} --epochs {new}`" if new else ""
    return [f"{has}, but the study continues {trains}{change}"]


def check_room(settings: StudySettings, added: int, past: Past) -> None:
    """Check that the number of trials allows for the configurations that the user adds.

    Raises:
        UsageError: It does not.
    """
    have = past.suggested
    total = settings.budget_trials
    if added and total is not None and have + added > total:
        raise UsageError(
            f"{past.directory} has {text.plural(have, 'trial')} of {total}, and {added} more "
            f"{'is' if added == 1 else 'are'} to be tried; give --trials {have + added} or more"
        )


def _check_totals(settings: StudySettings, past: Past) -> None:
    """Refuse a new total that is used up; with an old one, nothing is done."""
    have, budget = past.suggested, settings.device_budget
    seconds, most = past.engine.active_seconds, settings.timeout_seconds
    used = past.engine.device_hours(budget.device) if budget else 0.0
    spent = DeviceBudget(budget.device, float(f"{used:.3g}")) if budget else ""
    totals = (
        ("trials", _trials_so_far(past), (settings.trials or have) < have),
        ("timeout_seconds", f"run for {text.duration(seconds)}", 0 < (most or 0) <= seconds),
        ("budget", f"used {spent}", budget is not None and used >= budget.hours),
    )
    for name, had, is_used_up in totals:
        setting, given = BY_NAME[name], getattr(settings, name)
        # Trials that users added may exceed the total.
        if is_used_up and given != past.facts["settings"][name]:
            raise UsageError(
                f"{past.directory} has already {had}, and {setting.flag} is the total, so "
                f"{setting.kind.show(given)} is not enough; give more"
            )


def _trials_so_far(past: Past) -> str:
    """Return how many trials count in the total, in the states of `hptune status`."""
    trials = [trial for trial in past.trials if trial.confirms is None]
    states = Counter(trial.state for trial in trials)
    states[TrialState.WAITING] += states.pop(TrialState.RUNNING, 0)  # its master has ended
    begun = sum(trial.is_begun for trial in trials)
    return f"{text.plural(len(trials), 'trial')} ({text.counts(states, interrupted_trials=begun)})"


def _check_repeats(settings: StudySettings, past: Past) -> None:
    again = [trial for trial in past.trials if trial.confirms is not None]
    # All repeats that confirm a configuration become trials at once.
    repeats = Counter(trial.confirms for trial in again)
    before = max(repeats.values(), default=settings.confirm_times)
    if settings.confirm and settings.confirm_times != before:
        raise UsageError(
            f"configurations of this study were confirmed with {text.plural(before, 'repeat')} "
            "each, and means of more or fewer cannot be compared with theirs; allowed is "
            f"--confirm-repeats {before}"
        )
