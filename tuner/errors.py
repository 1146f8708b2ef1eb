"""What can go wrong, grouped by what the caller should do about it.

`UsageError`
    The request cannot be carried out as it stands. Mend the model file, the option or the call,
    then ask again. The command line prints the message and exits with 2.
`StudyError`
    The study could not go on. What was finished is in the ledger; mend the cause and resume.
    The command line prints the message and exits with 1.

Every message says what was found, what is allowed and what to do next. Every error survives
pickling, because most of them are raised in another process than the one that shows them.
"""

from __future__ import annotations


class HptuneError(Exception):
    """Base of every error that hptune raises on purpose.

    Args:
        message: What was found, what is allowed, what to do next.
        detail: Longer text shown below the message, such as the user's own traceback.
    """

    def __init__(self, message: str, detail: str = "") -> None:
        super().__init__(message, detail)
        self.message = message
        self.detail = detail

    def __str__(self) -> str:
        return self.message


class UsageError(HptuneError):
    """The request is wrong; change it and ask again (exit code 2)."""


class ModelFileError(UsageError):
    """The user's model file cannot be read, or offers nothing to tune."""


class SpaceError(UsageError):
    """A hyperparameter's bounds, or a configuration, make no sense."""


class SpaceChangedError(UsageError):
    """A resumed study's model file declares other hyperparameters than before."""


class UnknownMetricError(UsageError):
    """The metric to optimise is not among those that the objective reports."""


class StudyExistsError(UsageError):
    """The directory already holds a study; resume it, or name another directory."""


class NoStudyError(UsageError):
    """The directory holds no study."""


class StudyError(HptuneError):
    """The study cannot go on; mend the cause and resume it (exit code 1)."""


class StudyLockedError(StudyError):
    """Another master is running this study."""


class StorageFullError(StudyError):
    """The study's file system has no room left (or forbids writing)."""


class ObjectiveFailedError(StudyError):
    """The objective keeps failing in the same way; the study was stopped early."""


class InvalidTransition(RuntimeError):
    """An event that the engine's state does not allow: a bug in hptune, never the user's fault.

    Args:
        what: The transition that was asked for.
        story: What happened to the trial before, one line each.
    """

    def __init__(self, what: str, story: tuple[str, ...] = ()) -> None:
        super().__init__(what, story)
        self.what = what
        self.story = story

    def __str__(self) -> str:
        return "\n  ".join((self.what, *self.story))
