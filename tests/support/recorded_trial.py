"""A stand-in for the trial that hptune passes to an objective."""

from __future__ import annotations

from pathlib import Path


class RecordedTrial:
    """Keeps what is reported, and says once that the training must stop.

    Args:
        checkpoint_dir: The trial's directory of checkpoints.
        stop_after: Number of reports after which it says so; None for never.
    """

    def __init__(self, checkpoint_dir: Path, *, stop_after: int | None = None) -> None:
        self.checkpoint_dir = checkpoint_dir
        self.stop_after = stop_after
        self.reports: list[tuple[int, dict[str, float]]] = []

    def report(self, step: int, **metrics: float) -> None:
        self.reports.append((step, metrics))

    def should_stop(self) -> bool:
        return len(self.reports) == self.stop_after
