"""What can go wrong with Slurm, and whose business it is."""

from __future__ import annotations


class JobQueueError(Exception):
    """Base of every error of this package; its message says what to do."""


class ConfigError(JobQueueError):
    """The slurm.toml, or what it asks for, is wrong; mend it."""


class SubmissionError(JobQueueError):
    """Slurm refuses a job; the message has Slurm's own words."""


class SlurmUnavailableError(JobQueueError):
    """Slurm's commands are missing here, or do not answer."""


class JobsFailError(JobQueueError):
    """Jobs start and end again without ever having been of use."""
