"""The plan of a run, the third moment: settings and code with the machine, before a trial runs."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from ..clusters.layout import WorkerLayout
from ..config.asked import Asked
from ..config.objectives import goals_to_json
from ..config.parallel_trials import Carrier
from ..config.resolved import Resolved, epochs_notes, space_notes, with_search
from ..config.settings import StudySettings
from ..core.goals import Goals
from ..core.messages import StudyOpened
from ..core.space.earlier_study import EarlierStudy
from ..core.space.space import SearchSpace
from ..core.study_config import StudyConfig
from ..core.trial import Suggestion
from ..files.access import is_file
from ..storage.directory import StudyDirectory
from ..user_code.source import SourceKind
from ..worker.dask.versions import installed
from .mirror import check_mirror
from .suggester import ask_ahead

if TYPE_CHECKING:
    from .earlier.read import Earlier


@dataclass(frozen=True, slots=True)
class RunPlan:
    """All that is settled before the first trial.

    Attributes:
        asked: What the user asked for, with a search chosen.
        resolved: What settings and code say.
        go_on: Complete trials that are given more epochs.
        retried: Failed trials that begin again.
        retries_nodes: Whether nodes that failed are used again.
        was_handed_over: Whether the last master left on purpose, as its job was requeued.
        seed: The study's seed.
        declared: The search space as the user's code declares it now.
        studies: Earlier studies to learn from.
        added: Configurations that the user wants tried next; of a resumed study only.
        layout: How cores are divided, and what a trial holds.
        carrier: What trains on several devices.
        notes: Lines for the user before the first trial.
    """

    asked: Asked
    resolved: Resolved
    seed: int
    declared: SearchSpace
    studies: tuple[EarlierStudy, ...]
    layout: WorkerLayout
    carrier: Carrier
    notes: tuple[str, ...]
    go_on: tuple[int, ...] = ()
    retried: tuple[int, ...] = ()
    retries_nodes: bool = False
    was_handed_over: bool = False
    added: tuple[Suggestion, ...] = ()

    @property
    def settings(self) -> StudySettings:
        """What the user asked for, with a search chosen."""
        return self.asked.settings

    @property
    def goals(self) -> Goals:
        """What to optimise, and the constraints."""
        return self.resolved.goals

    @property
    def epochs(self) -> int | None:
        """The full training of a trial; None if unknown."""
        return self.resolved.epochs

    @property
    def space(self) -> SearchSpace:
        """The search space, with the parameters that only trials declared."""
        return self.resolved.space

    def facts(self) -> dict[str, object]:
        """Return what the ledger keeps of the plan, where a resumed study may change it."""
        return {
            "settings": self.settings.to_json(),
            "epochs": self.epochs,
            "space": self.space.to_json(),
            "declared_space": self.declared.to_json(),
            "ended": None,
            "submitted": False,
            "carrier": self.carrier.words,
        }

    def first_facts(self, *, created_at: float) -> dict[str, object]:
        """Return what the ledger keeps of a new study, and when that was created."""
        return {
            **self.facts(),
            "hptune_version": installed().get("hptune", "unknown"),
            "created_at": created_at,
            "is_keras": self.resolved.code.is_keras,
            "goals": goals_to_json(self.goals),
            "seed": self.seed,
            "warm_start": [study.to_json() for study in self.studies],
        }

    def opened(
        self, *, at: float, splits: bool = False, without_master: bool = False
    ) -> StudyOpened:
        """Return the event that opens the study for this run.

        Args:
            at: The time, in seconds since the epoch.
            splits: Whether the devices of each trial are chosen by what was measured.
            without_master: Whether programs ask for its trials.
        """
        settings, limit = self.settings, self.settings.same_failure_limit
        config = StudyConfig(
            trials=settings.budget_trials,
            goals=self.goals,
            seed=self.seed,
            resources=self.layout.resources,
            measured=self.layout.measured,
            learns=self.asked.sampler.learns,
            splits=splits,
            ask_ahead=ask_ahead(self.asked.sampler),
            pruner=self.resolved.pruner,
            max_failures=settings.max_failures,
            first=settings.first,
            same_failure_limit=min(limit, settings.first or limit),
            failure_rules=settings.failure_rules,
            budget=settings.device_budget,
            confirm=settings.confirm,
            confirm_repeats=settings.confirm_times,
            keep_checkpoints=settings.keep_checkpoints,
        )
        return StudyOpened(
            at,
            config,
            space=tuple(self.space.to_json()),
            go_on=self.go_on,
            added=self.added,
            retried=self.retried,
            retries_nodes=self.retries_nodes,
            was_handed_over=self.was_handed_over,
            without_master=without_master,
        )


def check_named(settings: StudySettings) -> None:
    """Check that the mirror and the earlier studies of a new one are there.

    Raises:
        UsageError: One is not, or is of no known kind.
    """
    check_mirror(settings)
    if settings.warm_start:
        from .earlier.sources import check_source

        for name in settings.warm_start:
            check_source(name)


def _earlier_studies(settings: StudySettings, goals: Goals, space: SearchSpace) -> list[Earlier]:
    if not settings.warm_start:
        return []
    from .earlier.read import read_earlier

    return [each for name in settings.warm_start for each in read_earlier(name, goals, space)]


def _notes_on_others(settings: StudySettings, directory: StudyDirectory) -> list[str]:
    """Return lines on earlier trials that this study could learn from."""
    if is_file(directory.path / "oracle.json"):
        from .earlier.keras_tuner_project import notes_on_project

        learns = any(StudyDirectory(name).path == directory.path for name in settings.warm_start)
        return [] if learns else notes_on_project(directory)
    others = directory.earlier()
    if settings.warm_start or settings.source.kind is not SourceKind.FILE or not others:
        return []
    from .earlier.sources import notes_on_last_study

    return notes_on_last_study(others, settings.source.path)


class Places(Protocol):
    """What a plan asks those whose workers run the trials."""

    def placed(self, resolved: Resolved) -> tuple[WorkerLayout, Carrier]:
        """Return how cores are divided, and what trains on several devices.

        Raises:
            UsageError: No worker can ever hold such a trial, or nothing can train it.
        """

    def at_once(self, layout: WorkerLayout) -> int:
        """Return how many trials can run at once."""

    def sized(self, space: SearchSpace, suggestions: Sequence[Suggestion]) -> Sequence[Suggestion]:
        """Return suggestions with the resources that they ask for."""


def plan_start(resolved: Resolved, workers: Places, directory: StudyDirectory) -> RunPlan:
    """Plan a new study, which is to be in a directory.

    Raises:
        UsageError: The workers can never hold a trial as settings and code ask for it.
    """
    layout, carrier = workers.placed(resolved)
    asked, why = with_search(resolved, at_once=workers.at_once(layout))
    settings, code = asked.settings, resolved.code
    earlier = _earlier_studies(settings, resolved.goals, resolved.space)
    return RunPlan(
        asked=asked,
        resolved=resolved,
        seed=secrets.randbelow(2**31) if settings.seed is None else settings.seed,
        declared=resolved.space,
        studies=tuple(each.study for each in earlier),
        layout=layout,
        carrier=carrier,
        notes=(
            *code.warnings,
            *resolved.notes,
            *why,
            *epochs_notes(settings, code),
            *space_notes(asked, resolved.space),
            *carrier.notes,
            *(each.note for each in earlier),
            *_notes_on_others(settings, directory),
        ),
    )
