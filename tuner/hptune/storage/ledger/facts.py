"""The facts about a study as a whole, which the ledger has besides events, trials and reports."""

from __future__ import annotations

from typing import Any, NotRequired, TypedDict


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
    carrier: str
    ended: dict[str, str] | None
    measuring: NotRequired[bool]
    scaling: NotRequired[dict[str, Any]]
    model_loader: NotRequired[dict[str, Any]]
