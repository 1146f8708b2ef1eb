"""Exports by name. An export's module is imported only when it is used."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ...registry import Registry, Row


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportRow(Row):
    """An export to another tool: `factory(study, place)` writes it, and returns a `Written`.

    `study` is a `source.ExportedStudy`, and `place` the text that the user gave; empty for a place
    in the study's directory. Written again to the same place, it replaces what it wrote there.
    """

    what: ClassVar[str] = "format"
    group: ClassVar[str] = "hptune.exports"
    arguments: ClassVar[tuple[str, ...]] = ("study", "place")


_HERE = "hptune.reporting.exports."

EXPORTS = Registry(
    ExportRow,
    (
        ExportRow(
            name="optuna",
            needs="optuna",
            summary="a storage of Optuna, which its dashboard shows",
            factory=f"{_HERE}optuna:write",
        ),
        ExportRow(
            name="tensorboard",
            needs="tensorboardX",
            summary="a folder of TensorBoard runs",
            factory=f"{_HERE}tensorboard:write",
        ),
        ExportRow(
            name="mlflow",
            needs="mlflow",
            summary="an experiment of MLflow",
            factory=f"{_HERE}mlflow:write",
        ),
        ExportRow(
            name="wandb",
            needs="wandb",
            summary="a group of runs of W&B",
            factory=f"{_HERE}wandb:write",
        ),
    ),
)
"""Values of `hptune export --format`, besides formats of files."""
