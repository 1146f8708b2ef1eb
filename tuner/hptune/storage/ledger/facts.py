"""The facts about a study as a whole, which the ledger has besides events, trials and reports."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NotRequired, TypedDict, cast, get_origin, get_type_hints

from ...core.goals import Goals
from ...core.messages import FinishReason
from ...core.space.space import SearchSpace
from .codec import checked_time, loads, structured


class StudyFacts(TypedDict):
    """Facts about a study as a whole, by name, as JSON values.

    Attributes:
        format: The version of the ledger's format.
        hptune_version: The version that created the study.
        created_at: When that was, in seconds since the epoch.
        is_keras: Whether its code builds Keras models.
        goals: The objectives and constraints (`config.objectives.goals_of`).
        seed: The study's seed.
        warm_start: The earlier studies that it learns from (`EarlierStudy`).
        settings: The settings of the last run (`StudySettings`).
        epochs: The full training of a trial; None if unknown.
        space: The search space, with what only trials have declared.
        declared_space: The search space as the user's code declared it at the last run.
        carrier: What trains on several devices, in words; empty for one device.
        ended: How the last run ended, as `finish_reason` and `reason`; None while it has not.
        submitted: Whether a job was submitted to be the master again, and it has yet to begin.
        measuring: Whether training steps are being measured.
        scaling: The measured scaling curve (`ScalingCurve`).
        model_loader: The `trial` with the best model, and the `loader` that can read its file.
    """

    format: int
    hptune_version: str
    created_at: float
    is_keras: bool
    goals: dict[str, Any]
    seed: int
    warm_start: list[dict[str, Any]]
    settings: dict[str, Any]
    epochs: int | None
    space: list[dict[str, Any]]
    declared_space: list[dict[str, Any]]
    carrier: NotRequired[str]
    ended: dict[str, str] | None
    submitted: NotRequired[bool]
    measuring: NotRequired[bool]
    scaling: NotRequired[dict[str, Any]]
    model_loader: NotRequired[dict[str, Any]]


_KINDS = get_type_hints(StudyFacts)
_NEEDED = {
    key
    for key, kind in get_type_hints(StudyFacts, include_extras=True).items()
    if get_origin(kind) is not NotRequired
}


def facts_of(rows: Iterable[tuple[str, str]]) -> StudyFacts:
    """Return the facts that are stored; each that is there can be used without further checks.

    The settings are those of a room above, which checks them.

    Raises:
        Exception: One of them is not JSON, or is no such fact.
    """
    facts: dict[str, Any] = {key: loads(value) for key, value in rows}
    if missing := _NEEDED - facts.keys():
        raise KeyError(*sorted(missing))
    for key, kind in _KINDS.items():
        if key in facts and key != "format":  # which is compared by itself
            _check(key, structured(facts[key], kind))
    return cast("StudyFacts", facts)


def _check(key: str, fact: Any) -> None:
    match key:
        case "created_at":
            checked_time(fact)
        case "goals":
            structured(fact, Goals).goal  # noqa: B018 - an error if there is none
        case "space" | "declared_space":
            SearchSpace.from_json(fact)
        case "ended" if fact is not None:
            FinishReason(fact["finish_reason"])
            structured(fact["reason"], str)
        case "model_loader":
            structured(fact["trial"], int)
            structured(fact["loader"], str)
