"""Orders to run one attempt, for tests of what carries them out."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from hptune.core.attempt import AttemptId
from hptune.core.goals import Goals
from hptune.core.messages import Start
from hptune.core.resources import Placement
from hptune.core.trial import Direction, Goal
from hptune.user_code.model_file import check_path
from hptune.user_code.source import ObjectiveSource, SourceKind
from hptune.worker.orders import AttemptOrder, StudyBrief

ATTEMPT = AttemptId(0, 0)

BRIEF = StudyBrief(
    name="test",
    directory="study",
    working_directory=".",
    source=ObjectiveSource(SourceKind.FILE, "model.py"),
    goals=Goals((Goal("loss", Direction.MIN),)),
)
"""The part that all attempts of a study share, without any file."""


def order_of(file: Path) -> AttemptOrder:
    """Return the order for `ATTEMPT`, of an objective in a model file that is minimised."""
    study, folder = str(file.parent / "study"), str(file.parent)
    brief = replace(BRIEF, directory=study, working_directory=folder, source=check_path(file))
    return AttemptOrder(brief, Start(ATTEMPT, {}, Placement("worker", (0,)), 7), ())
