"""The plan of a run: all that is settled before its first trial."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..clusters.layout import WorkerLayout
from ..config.objectives import goals_to_json, resolve_goals
from ..config.parallel_trials import carrier_of, check_splits
from ..config.plugins import check_place
from ..config.resolved import (
    PLENTY,
    check_search,
    checked_pruner,
    epochs_notes,
    resolve_epochs,
    space_notes,
    with_entry,
    with_search,
)
from ..config.settings import StudySettings
from ..core.goals import Goals
from ..core.pruner import PrunerSettings
from ..core.space.completion import completed_points
from ..core.space.earlier_study import EarlierStudy
from ..core.space.space import SearchSpace
from ..core.space.user_priors import with_priors
from ..core.trial import Direction, Goal, Suggestion
from ..files.access import is_file
from ..registry import shown_name
from ..reporting.terminal.progress import RunHeader
from ..storage.directory import StudyDirectory
from ..user_code.model_file import Found, SourceKind
from .workforce import Workforce

if TYPE_CHECKING:
    from .earlier.read import Earlier


@dataclass(frozen=True, slots=True)
class RunPlan:
    """All that is settled before the first trial.

    Attributes:
        settings: What the user asked for, with a search chosen.
        goals: What to optimise, and the constraints.
        epochs: The full training of a trial; None if unknown.
        pruner: How trials are pruned.
        go_on: Complete trials that are given more epochs.
        retried: Failed trials that begin again.
        retries_nodes: Whether nodes that failed are used again.
        was_handed_over: Whether the last master left on purpose, as its job was requeued.
        seed: The study's seed.
        declared: The search space as the user's code declares it now.
        space: The search space, with the parameters that only trials declared.
        studies: Earlier studies to learn from.
        added: Configurations that the user wants tried next; of a resumed study only.
        layout: How cores are divided, and what a trial holds.
        carrier: What trains on several devices, in words; empty for one device.
        backend: Keras's backend; empty if the code builds no Keras models.
        notes: Lines for the user before the first trial.
    """

    settings: StudySettings
    goals: Goals
    epochs: int | None
    pruner: PrunerSettings
    go_on: tuple[int, ...]
    retried: tuple[int, ...]
    retries_nodes: bool
    was_handed_over: bool
    seed: int
    declared: SearchSpace
    space: SearchSpace
    studies: tuple[EarlierStudy, ...]
    added: tuple[Suggestion, ...]
    layout: WorkerLayout
    carrier: str
    backend: str
    notes: tuple[str, ...]

    def facts(self) -> dict[str, object]:
        """Return what the ledger keeps of the plan, where a resumed study may change it."""
        return {
            "settings": self.settings.to_json(),
            "epochs": self.epochs,
            "space": self.space.to_json(),
            "declared_space": self.declared.to_json(),
            "ended": None,
            "carrier": self.carrier,
        }

    def first_facts(self) -> dict[str, object]:
        """Return what the ledger keeps of a new study's plan."""
        return {
            **self.facts(),
            "goals": goals_to_json(self.goals),
            "seed": self.seed,
            "warm_start": [study.to_json() for study in self.studies],
        }

    def header(
        self,
        study: str,
        *,
        parallelism: str,
        notes: Sequence[str],
        began_at: float,
        earlier_seconds: float,
    ) -> RunHeader:
        """Return what is shown at the start of the run.

        Args:
            study: The study's directory.
            parallelism: Where the trials run, and how many at once.
            notes: Further lines for the user.
            began_at: When the user's command began, in seconds since the epoch.
            earlier_seconds: How long earlier runs of the study took.
        """
        settings = self.settings
        return RunHeader(
            study=study,
            search=shown_name(settings.search),
            goal=str(self.goals),
            trials=settings.budget_trials,
            parallelism=parallelism,
            notes=(*self.notes, *notes),
            epochs=self.epochs,
            confirm=settings.confirm,
            confirm_times=settings.confirm_times,
            budget="" if settings.device_budget is None else str(settings.device_budget),
            timeout_seconds=settings.timeout_seconds or None,
            trial_timeout_seconds=settings.trial_timeout_seconds or None,
            began_at=began_at,
            earlier_seconds=earlier_seconds,
            stops_early=settings.pruner not in (None, "none"),
        )


def check_request(settings: StudySettings) -> None:
    """Check the settings, before the seconds that reading the model takes.

    Raises:
        UsageError: Something in them is wrong.
    """
    if settings.warm_start:
        from .earlier.sources import check_source

        for name in settings.warm_start:
            check_source(name)
    check_place(settings)
    anything = Goals((Goal("", Direction.MAX),))
    check_search(settings, anything)
    checked_pruner(settings, settings.epochs or PLENTY, anything)


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


def settle(
    settings: StudySettings, found: Found
) -> tuple[Goals, SearchSpace, int | None, list[str]]:
    """Settle what needs no workers: the goals, the space, the epochs, and lines for the user.

    Raises:
        UsageError: The settings contradict what the user's code declares.
    """
    goals, notes = resolve_goals(
        found, settings.objectives, settings.constraints, settings.direction
    )
    space = SearchSpace.from_json(found.space)
    completed_points(settings.start_points, space)
    with_priors(space, settings.priors)
    return goals, space, resolve_epochs(settings, found), notes


def plan_start(
    settings: StudySettings, found: Found, workers: Workforce, directory: StudyDirectory
) -> RunPlan:
    """Plan a new study, which is to be in a directory.

    Raises:
        UsageError: The settings contradict what the user's code declares.
    """
    goals, space, epochs, notes = settle(settings, found)
    layout = layout_for(workers, found, goals)
    at_once = workers.cluster.trials_at_once(layout)
    settings, why = with_search(with_entry(settings, found), space, at_once=at_once)
    check_search(settings, goals)
    check_splits(found, settings)
    carrier = carrier_of(found, layout.resources, settings)
    pruner = checked_pruner(settings, epochs, goals)
    lines = [*epochs_notes(settings, found), *space_notes(settings, space)]
    earlier = _earlier_studies(settings, goals, space)
    return RunPlan(
        settings=settings,
        goals=goals,
        epochs=epochs,
        pruner=pruner,
        go_on=(),
        retried=(),
        retries_nodes=False,
        was_handed_over=False,
        seed=secrets.randbelow(2**31) if settings.seed is None else settings.seed,
        declared=space,
        space=space,
        studies=tuple(each.study for each in earlier),
        added=(),
        layout=layout,
        carrier=carrier.words,
        backend=found.backend,
        notes=(
            *found.warnings,
            *notes,
            *why,
            *lines,
            *carrier.notes,
            *(each.note for each in earlier),
            *_notes_on_others(settings, directory),
        ),
    )


def layout_for(workers: Workforce, found: Found, goals: Goals) -> WorkerLayout:
    """Return how cores are divided; trials share no device if their times are compared.

    Raises:
        UsageError: The cluster can never hold such a trial.
    """
    layout = workers.layout(found.constants)
    workers.cluster.check_trial(layout.resources)
    return layout.without_sharing() if "seconds_per_epoch" in goals.metrics else layout
