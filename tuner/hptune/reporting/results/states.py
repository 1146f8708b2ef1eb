"""The states of trials as people see them; a command's help needs these alone."""

from __future__ import annotations

INTERRUPTED = "interrupted"
"""The state of a trial that has begun and is to continue, but does not run."""

STATES = ("complete", "pruned", "failed", "running", "paused", INTERRUPTED, "waiting")
"""The words for the states of trials, see `StudyView.state_of`."""
