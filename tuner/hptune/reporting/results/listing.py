"""The output of `hptune list`: studies below a directory, the newest first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import attrgetter

from ... import text
from ...core.trial import TrialState
from ..table import table
from .best import best_json, value_texts
from .view import StudyView


@dataclass(frozen=True, slots=True)
class ListedStudy:
    """A study that was found.

    Attributes:
        directory: Its directory.
        view: The study; None if it cannot be read.
        problem: Why it cannot be read; empty if it can.
        is_starting: Whether that is because a master still prepares it.
    """

    directory: str
    view: StudyView | None
    problem: str = ""
    is_starting: bool = False

    @property
    def state(self) -> str:
        """The study's state in one word, also if it cannot be read."""
        if self.view is None:
            return "starting" if self.is_starting else "unreadable"
        return str(self.view.state)

    @property
    def created_at(self) -> float:
        """When it was created, in seconds since the epoch; 0 if it cannot be read."""
        return 0.0 if self.view is None else self.view.created_at


def list_text(studies: Sequence[ListedStudy], *, width: int | None = None) -> str:
    """Return the output of `hptune list`."""
    rows = [("study", "state", "started", "trials", "best")]
    for each in _newest_first(studies):
        name, view = text.path(each.directory), each.view
        if view is None:
            rows.append((name, each.state, text.NOTHING, "", each.problem))
            continue
        started = text.moment(view.created_at)[:-3] if view.created_at else text.NOTHING
        rows.append((name, each.state, started, trials_cell(view), _best_text(view)))
    return "\n".join(table(rows, left=("study", "state"), width=width))


def trials_cell(view: StudyView) -> str:
    """Return how many trials ended, of how many, and how many failed."""
    failed = view.counts[TrialState.FAILED]
    return f"{view.short_progress}, {failed} failed" if failed else view.short_progress


def _best_text(view: StudyView) -> str:
    """Return the best value of each objective, and the constraints, as words that can wrap.

    If the best trial breaks constraints, these are named instead.
    """
    goals, best = view.goals, view.best
    values = [text.NOTHING] * len(goals.objectives) if best is None else value_texts(view, best)
    parts = [f"{value} {goal}" for value, goal in zip(values, goals.objectives, strict=True)]
    limits = (best and goals.broken(best.metrics)) or goals.constraints
    return ", ".join([*parts, *map(str, limits)])


def list_json(studies: Sequence[ListedStudy]) -> dict[str, object]:
    """Return the output of `hptune list --json`."""
    return {
        "studies": [
            {"study": each.directory, "state": each.state, "problem": each.problem}
            if (view := each.view) is None
            else {
                **best_json(view),
                "state": each.state,
                "created_at": view.created_at or None,
                "ended_trials": view.ended,
                "budget_trials": view.budget_trials,
                "confirmations": view.confirmations,
            }
            for each in _newest_first(studies)
        ]
    }


def _newest_first(studies: Sequence[ListedStudy]) -> list[ListedStudy]:
    return sorted(studies, key=attrgetter("created_at"), reverse=True)
