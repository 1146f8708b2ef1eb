"""The errors of this package."""

from __future__ import annotations


class JobQueueError(Exception):
    """Base of every error of this package; its message says what to do."""


class ConfigError(JobQueueError):
    """The slurm.toml is wrong, or asks for something that does not exist."""


class SubmissionError(JobQueueError):
    """Slurm refuses a job; the message has Slurm's words."""


class ClosedForNowError(SubmissionError):
    """Slurm takes no jobs of this kind at present, as during maintenance; later it may."""


class NotStartedError(SubmissionError):
    """Slurm has accepted a job, and did not start it in time; later it may."""


class SlurmUnavailableError(JobQueueError):
    """Slurm's commands do not answer; `ADVICE` says what to do."""

    ADVICE = "Run this again when Slurm answers"


class NoSlurmError(SlurmUnavailableError):
    """Slurm's commands are missing here, or know no Slurm."""

    ADVICE = "Run this where Slurm answers, such as on a login node"


class NoAccountingError(SlurmUnavailableError):
    """The cluster keeps no accounting of its jobs."""

    ADVICE = "Its administrators can enable it"


class JobsFailError(JobQueueError):
    """Jobs end again and again without ever having been useful."""


class ShapesFailError(JobsFailError):
    """So do the jobs of every shape of the slurm.toml, which may be wrong."""
