"""The output of `hptune list`: studies below a directory, the newest first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ... import text
from ..table import table
from .best import best_json, values_text
from .view import StudyView


@dataclass(frozen=True, slots=True)
class ListedStudy:
    """A study that was found.

    Attributes:
        directory: Its directory.
        view: The study; None if it cannot be read.
        problem: Why it cannot be read; empty if it can.
    """

    directory: str
    view: StudyView | None
    problem: str = ""


def list_text(studies: Sequence[ListedStudy], *, width: int | None = None) -> str:
    """Return the output of `hptune list`."""
    rows = [("study", "state", "started", "trials", "best", "objective")]
    for each in _newest_first(studies):
        name, view = text.path(each.directory), each.view
        if view is None:
            rows.append((name, "unreadable", text.NOTHING, "", "", each.problem))
            continue
        started = text.moment(view.created_at)[:-3] if view.created_at else text.NOTHING
        best = text.NOTHING if view.best is None else values_text(view, view.best)
        rows.append((name, view.state, started, view.short_progress, best, str(view.goals)))
    return "\n".join(table(rows, left=("study", "state"), width=width))


def list_json(studies: Sequence[ListedStudy]) -> dict[str, object]:
    """Return the output of `hptune list --json`."""
    return {
        "studies": [
            {"study": each.directory, "state": None, "problem": each.problem}
            if (view := each.view) is None
            else {
                **best_json(view),
                "state": str(view.state),
                "created_at": view.created_at or None,
                "ended_trials": view.ended,
                "budget_trials": view.budget_trials,
            }
            for each in _newest_first(studies)
        ]
    }


def _newest_first(studies: Sequence[ListedStudy]) -> list[ListedStudy]:
    def started(study: ListedStudy) -> float:
        return 0.0 if study.view is None else study.view.created_at

    return sorted(studies, key=started, reverse=True)
