"""Checks of the changes that a resumed study is given."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from .. import text
from ..config.objectives import (
    asked_goals,
    goals_of,
    read_constraint,
    read_objective,
    resolve_goals,
    unknown_metrics,
)
from ..config.plugins import pruner_maker
from ..config.resolved import resolve_epochs
from ..config.settings import BY_NAME, StudySettings
from ..core.attempt import AttemptId
from ..core.budget import DeviceBudget
from ..core.engine.engine import Engine
from ..core.goals import Goals
from ..core.messages import Event, GrowSpace, Reported, StudyOpened
from ..core.space.earlier_study import EarlierStudy
from ..core.trial import Trial
from ..errors import HptuneError, ModelFileError, StudyError, UnknownMetricError, UsageError
from ..files.access import exists
from ..registry import shown_name
from ..samplers.registry import AUTO
from ..storage.directory import StudyDirectory
from ..storage.ledger import StudyFacts, damage_errors
from ..user_code.model_file import Found, SourceKind
from ..user_code.source_checks import check_syntax


@dataclass(frozen=True, slots=True)
class Past:
    """A study as its ledger tells it, before it is resumed.

    Attributes:
        directory: Where the study is.
        facts: The ledger's facts on the study as a whole.
        settings: The settings of the last run.
        engine: The engine, in the past that the last master left.
        reports: How many reports of each attempt the ledger has.
        found_later: Parameters that trials of the last master declared beyond the space in which
            it opened the study.
    """

    directory: StudyDirectory
    facts: StudyFacts
    settings: StudySettings
    engine: Engine
    reports: Counter[AttemptId] = field(default_factory=Counter)
    found_later: list[Sequence[Mapping[str, object]]] = field(default_factory=list)

    @classmethod
    def read(cls, directory: StudyDirectory, facts: StudyFacts, events: Iterable[Event]) -> Past:
        """Replay the events of a ledger.

        Raises:
            StudyError: The ledger is damaged, or its events do not fit together.
        """
        settings = read_settings(directory, facts)
        past = cls(directory, facts, settings, Engine(pruner_maker(settings)))
        with replay_errors(directory):
            for event in events:
                past.handle(event)
        return past

    def handle(self, event: Event) -> None:
        """Take in an event; its commands are given again when the study is opened, if needed."""
        commands = self.engine.handle(event)
        if isinstance(event, Reported):
            self.reports[event.attempt] += 1
        elif isinstance(event, StudyOpened):
            self.found_later.clear()  # the event has the whole space
        self.found_later.extend(
            command.declared for command in commands if isinstance(command, GrowSpace)
        )

    @property
    def trials(self) -> tuple[Trial, ...]:
        """All trials."""
        return tuple(self.engine.trials)

    @property
    def suggested(self) -> int:
        """How many trials are no repeats that confirm others."""
        return sum(trial.confirms is None for trial in self.trials)


@contextlib.contextmanager
def replay_errors(directory: StudyDirectory) -> Iterator[None]:
    """Turn what the engine raises at an event that it did not expect into an error of the study.

    Raises:
        StudyError: It was raised.
    """
    try:
        yield
    except HptuneError:
        raise
    except Exception as error:  # the engine takes the events of its own study only
        raise StudyError(
            f"the events of the study in {directory} do not fit together "
            f"({type(error).__name__}: {error}). Nothing was changed. If another program or "
            f"another hptune wrote to study.db, take a backup of it; a new study learns from the "
            f"trials with --warm-start {directory}"
        ) from error


def read_settings(directory: StudyDirectory, facts: StudyFacts) -> StudySettings:
    """Return the settings of a stored study, whose earlier studies can be read too.

    Raises:
        StudyError: The ledger is damaged.
    """
    with damage_errors(directory):
        for study in facts["warm_start"]:
            EarlierStudy.from_json(study)
        return StudySettings.from_json(facts["settings"]).found_in(directory.path)


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
    _check_budget(settings, past)
    _check_timeout(settings, past)
    _check_device_budget(settings, past)
    _check_repeats(settings, past)


def check_same(asked: StudySettings, given: Collection[str], past: Past) -> None:
    """Check that settings of the whole study are asked for as they are.

    `auto` is the same as any search: the search that it chose is stored in its place.

    Args:
        asked: What the user asks for now.
        given: The settings that the user gave; the others are not compared.
        past: The study's past.

    Raises:
        UsageError: One differs. The settings that a resumed study may change are not compared.
    """
    for name in given:
        setting = BY_NAME[name]
        value, before = getattr(asked, name), getattr(past.settings, name)
        if setting.resumable or value in (None, (), {}) or _is_same(name, asked, past):
            continue
        was = f"with {setting.kind.show(before)}" if before else "without it"
        if name in ("objectives", "direction", "constraints"):
            was = f"for {goals_of(past.facts)}"
        raise UsageError(
            f"{setting.flag} is {setting.kind.show(value)}, but the study in {past.directory} was "
            f"begun {was}, which cannot be changed; leave {setting.flag} out, or start a new study "
            f"that learns from this one, with --warm-start={str(past.directory)!r}"
        )


def _is_same(name: str, asked: StudySettings, past: Past) -> bool:
    goals, stored = goals_of(past.facts), past.settings
    match name:
        case "objectives" | "direction":
            known = [(goal.metric, goal.direction) for goal in goals.objectives]
            objectives = [read_objective(objective) for objective in asked.objectives]
            wanted = objectives or [(metric, None) for metric, _ in known]
            return len(known) == len(wanted) and all(
                metric == other and (direction or asked.direction) in (None, way)
                for (metric, direction), (other, way) in zip(wanted, known, strict=True)
            )
        case "constraints":
            return set(map(read_constraint, asked.constraints)) == set(goals.constraints)
        case "seed":
            return bool(asked.seed == past.facts["seed"])
        case "search":
            return asked.search == AUTO or shown_name(asked.search) == shown_name(stored.search)
        case "executor":  # one that Python gave may be corrected
            return shown_name(asked.executor) == shown_name(stored.executor)
    return bool(getattr(asked, name) == getattr(stored, name))


def check_constants(settings: StudySettings, past: Past, found: Found) -> list[str]:
    """Compare what the user's code declares now with the study, which goes on as it was begun.

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
    objectives, constraints, direction = asked_goals(
        found, settings.objectives, settings.constraints, settings.direction
    )
    named = replace(settings, objectives=objectives, constraints=constraints, direction=None)
    differs = {
        "OBJECTIVE": not _is_same("objectives", named, past),
        "DIRECTION": not _is_same("objectives", replace(named, direction=direction), past),
        "CONSTRAINTS": constraints and not _is_same("constraints", named, past),
    }
    if (name := next((name for name in differs if differs[name]), None)) is not None:
        raise UsageError(
            f"{name} in {file} is {found.constants[name]!r}, but the study in {past.directory} "
            f"was begun for {kept}, which cannot be changed. Undo that or remove the line to go "
            "on, or start a new study that learns from this one: `hptune run "
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
        given = (settings.objectives, settings.constraints, settings.direction)
        new = resolve_goals(found, *given)[0]
    now, before = (new.objectives if new else ()), kept.objectives
    if new and now == before and set(new.constraints) == set(kept.constraints):
        return []
    asked = {
        "OBJECTIVE": settings.objectives or [o.metric for o in now] == [b.metric for b in before],
        "DIRECTION": settings.direction or now == before or len(before) > 1,
        "CONSTRAINTS": settings.constraints or not kept.constraints,
    }
    gone = [name for name in asked if not (asked[name] or name in found.constants)]
    no = " and no ".join(gone) or "directions in OBJECTIVE"
    would = f" (a new one would have {new})" if new is not None else ""
    return [f"{_code(settings)} has no {no}; the study goes on for {kept}{would}"]


def _lines_on_epochs(settings: StudySettings, past: Past, found: Found) -> list[str]:
    kept, new = settings.epochs or past.facts["epochs"], resolve_epochs(settings, found)
    if kept == new:
        return []
    file, directory = _code(settings), text.path(past.directory.path)
    has = f"EPOCHS in {file} is {new}" if "EPOCHS" in found.constants else f"{file} has no EPOCHS"
    trains = f"with {text.plural(kept, 'epoch')}" if kept else "without a number of epochs"
    change = f"; to change that: `hptune resume {directory} --epochs {new}`" if new else ""
    return [f"{has}, but the study goes on {trains}{change}"]


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


def _check_budget(settings: StudySettings, past: Past) -> None:
    have = past.suggested
    if settings.trials == past.facts["settings"]["trials"]:
        return  # trials that users added may exceed the total
    if settings.trials is not None and settings.trials < have:
        raise UsageError(
            f"{past.directory} has {text.plural(have, 'trial')} already, and --trials is the "
            f"total, with those to be continued: allowed are {have} and more, {settings.trials} "
            "was given"
        )


def _check_timeout(settings: StudySettings, past: Past) -> None:
    """Refuse a new timeout that is used up; an old one ends the run as it did before."""
    total, used = settings.timeout_seconds, past.engine.active_seconds
    if not total or total == past.facts["settings"]["timeout_seconds"] or total > used:
        return
    raise UsageError(
        f"{past.directory} has run for {text.duration(used)} already, and --timeout is the total; "
        f"give more than that, {text.duration(total)} was given"
    )


def _check_device_budget(settings: StudySettings, past: Past) -> None:
    """Refuse a new budget that is spent; an old one ends the run as it did before."""
    budget = settings.device_budget
    if budget is None or settings.budget == past.facts["settings"]["budget"]:
        return
    used = past.engine.device_hours(budget.device)
    if used >= budget.hours:
        raise UsageError(
            f"{past.directory} has used {DeviceBudget(budget.device, float(f'{used:.3g}'))} "
            f"already, and --budget is the total; give more than that, {budget} was given"
        )


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
