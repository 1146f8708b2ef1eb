"""What an objective returns, joined with what it reported."""

from __future__ import annotations

import textwrap

import pytest
from attempts import Attempts

from tuner.core.trial import Cause

OBJECTIVE = """
OBJECTIVE = "score"
DIRECTION = "max"

def objective(hp, trial):
    hp.Int("n", 0, 9)
    for step, score in enumerate([0.3, 0.9, 0.5], start=1):
        trial.report(step, score=score, loss=1.0 - score, memory=step)
    return {returned}
"""


@pytest.mark.parametrize(
    ("returned", "metrics", "step"),
    [
        ("score", {"score": 0.5, "loss": 0.5, "memory": 3.0}, 3),
        # An epoch's value is that epoch's, with all that was measured then.
        ("0.9", {"score": 0.9, "loss": 1.0 - 0.9, "memory": 2.0}, 2),
        # A number that no epoch had comes after the last one.
        ("0.7", {"score": 0.7, "loss": 0.5, "memory": 3.0}, 3),
        # What is returned counts for more than what was reported.
        ('{"score": 0.9, "memory": 8, "size": 4}',
         {"score": 0.9, "loss": 1.0 - 0.9, "memory": 8.0, "size": 4.0}, 2),
    ],
)  # fmt: skip
def test_what_was_reported_belongs_to_the_result(
    attempts: Attempts, returned: str, metrics: dict[str, float], step: int
) -> None:
    ending = attempts.run(OBJECTIVE.replace("{returned}", returned)).ending
    assert ending.cause is Cause.RETURNED, ending
    assert dict(ending.metrics) == metrics
    assert ending.step == step


def test_without_reports_the_result_is_what_is_returned(attempts: Attempts) -> None:
    text = textwrap.dedent(OBJECTIVE).replace("trial.report", "dict").replace("step, score=", "a=")
    ending = attempts.run(text.replace("{returned}", "score")).ending
    assert ending.cause is Cause.RETURNED, ending
    assert (dict(ending.metrics), ending.step) == ({"score": 0.5}, None)
