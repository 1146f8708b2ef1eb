"""Errors, grouped by what the caller should do about them.

`UsageError`
    The request is wrong. Correct the model file, the option or the call, and try again. The
    command line prints the message and exits with 2.
`StudyError`
    The study cannot continue. Finished trials are in the ledger; remove the cause and resume. The
    command line prints the message and exits with 1.

Every message says what was found, what is allowed and what to do next. Every error can be pickled,
because most are raised in one process and shown by another.
"""

from __future__ import annotations

import contextlib
import errno
import importlib.util
import json
import re
import shlex
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import unquote, urlsplit

DISK_FULL = (errno.ENOSPC, errno.EDQUOT)
"""Errors of the system when a disk is full, or a quota used up."""

_USER = re.compile(r"""\w://[^/:@?#"'<>]*:(?!\d+[/?#"'<>])""")
"""The beginning of a URL with a password, which is no port of one without."""

_END = re.compile("@(?!sha256:)|…")
"""What ends a password, which may have an @ or a slash. The digest of an image is none."""

_SECRET = re.compile(
    r"""([?&;#](?:[a-z]+_)*(?:password|passwd|pwd|token|secret|api_?key)=)[^\s&;#"'<>]+"""
    r"""|(https?://)[^\s/:@?#"'<>]+(?=(?::|:x-oauth-basic)?@)""",
    re.IGNORECASE,
)
"""A secret in a query, and who asks a web server without a password, which may be a token."""


def without_passwords(words: str) -> str:
    """Return a text in which the passwords of URLs are masked, also of one that is cut short.

    Masked again, it stays as it is: the ledger's texts are, when it is read.

    >>> without_passwords("postgresql://ada:secret@db/studies cannot be read")
    'postgresql://ada:***@db/studies cannot be read'
    """
    if "://" not in words:
        return words
    return re.sub(r"\S+", _masked, _SECRET.sub(r"\1\2***", words))


def _masked(found: re.Match[str]) -> str:
    word = found[0]
    end = max((each.start() for each in _END.finditer(word)), default=0)
    user = _USER.search(word, 0, end)
    return word if user is None else f"{word[: user.end()]}***{word[end:]}"


LINUX_ONLY = (
    "hptune runs trials on Linux only. On Windows, install it in WSL2; on macOS, use a container "
    "or a Linux machine. A study that you copy to macOS can be read there, such as by "
    "`hptune best` and `hptune report`."
)
"""What is said on other systems: trials are forked, isolated and measured by what Linux has."""


class HptuneError(Exception):
    """Base class of the errors that hptune reports to the user.

    Args:
        message: What was found, what is allowed, what to do next.
        detail: Longer text shown below the message, such as the user's own traceback.
    """

    def __init__(self, message: str, detail: str = "") -> None:
        self.message = without_passwords(message)
        self.detail = without_passwords(detail)
        super().__init__(self.message, self.detail)

    def _render_traceback_(self) -> list[str]:
        """Return what IPython shows in place of a traceback."""
        return [f"{type(self).__name__}: {self}"]

    def __str__(self) -> str:
        return f"{self.message}\n\n{self.detail}" if self.detail else self.message


@contextlib.contextmanager
def faults_of_others(fault: Callable[[str, str], HptuneError]) -> Iterator[None]:
    """Turn what a plug-in raises into an error of hptune; one of hptune passes.

    Args:
        fault: Makes the error, from what was raised in a line and the traceback.
    """
    try:
        yield
    except HptuneError:
        raise
    except Exception as error:  # code of others may raise anything
        words = f"{type(error).__name__}: {error}"
        raise fault(words, "".join(traceback.format_exception(error))) from error


class UsageError(HptuneError):
    """The request is wrong; correct it and try again (exit code 2)."""


class ModelFileError(UsageError):
    """The model file cannot be read, or has nothing to tune."""


class SpaceError(UsageError):
    """A hyperparameter or a configuration is not valid."""


class SpaceChangedError(UsageError):
    """The model file of a resumed study declares other hyperparameters than before."""


class UnknownMetricError(UsageError):
    """The objective does not report the metric that is optimised."""


class StudyExistsError(UsageError):
    """The directory already holds a study; resume it, or name another directory."""


class NoStudyError(UsageError):
    """The directory holds no study."""


class StartingStudyError(NoStudyError):
    """The directory holds no study yet: a master still reads the model."""


class MissingPackageError(UsageError):
    """A package of one of hptune's extras is not installed."""


class StudyError(HptuneError):
    """The study cannot continue; remove the cause and resume it (exit code 1)."""


class NotAFileError(StudyError):
    """A link, a pipe or a directory lies where a study has a file."""


class StudyLockedError(StudyError):
    """Another master is running this study."""


class NoTrialError(StudyError):
    """A program asked for a trial, and none is free now; try again later."""


class StudyOverError(NoTrialError):
    """A program asked for a trial, and the study has no more."""


class TrialOverError(StudyError):
    """A program told something of a trial that is over, or that another program has now."""


class StorageFullError(StudyError):
    """The study's file system is full, or does not allow writing."""


class ObjectiveFailedError(StudyError):
    """The objective failed too often, so the study was stopped."""


class ProgramFailed(StudyError):
    """A program that an objective ran has failed; `detail` is the end of its error output."""


class InvalidTransition(RuntimeError):
    """An event that the engine's state does not allow: a bug in hptune, not a user's error.

    Args:
        what: The transition that was requested.
        story: The trial's history, one line for each event.
    """

    def __init__(self, what: str, story: tuple[str, ...] = ()) -> None:
        super().__init__(what, story)
        self.what = what
        self.story = story

    def __str__(self) -> str:
        return "\n  ".join((self.what, *self.story))


_FRAMEWORKS = ("tensorflow", "jax", "torch")
_EXTRAS = {
    "PIL": ("examples",),
    "jax": ("jax",),
    "keras": _FRAMEWORKS,
    "keras_tuner": _FRAMEWORKS,
    "matplotlib": ("examples",),
    "mcp": ("mcp",),
    "mlflow": ("mlflow",),
    "optuna": ("optuna",),
    "pandas": ("dataframe",),
    "pyarrow": ("parquet",),
    "skopt": ("skopt",),
    "sklearn": ("examples",),
    "tensorboardX": ("tensorboard",),
    "tensorflow": ("tensorflow",),
    "torch": ("torch",),
}
"""The extras that bring a module; one of them is enough."""


def how_to_install(module: str | None) -> str:
    """Return the command that installs a module of an extra; empty if no extra has it.

    It names where hptune itself was installed from, and never its name alone: no index has hptune,
    and anybody could give that name to a package. Where that place is not known, or is gone, it
    names the packages of the extra.
    """
    first, *others = _EXTRAS.get(module or "", ("",))
    if not first:
        return ""
    choice = f" (or {' or '.join(others)} in place of {first})" if others else ""
    return f"pip install {own_source(first) or _packages_of(first)}{choice}"


def own_source(extra: str = "") -> str:
    """Return the folder, file or URL that hptune was installed from, as pip's argument.

    Args:
        extra: An extra that is to be installed with it.

    Returns:
        Empty if hptune was not installed from such a place, or if the place is gone.
    """
    from importlib import metadata

    record = json.loads(metadata.distribution("hptune").read_text("direct_url.json") or "{}")
    url, extras = record.get("url", ""), f"[{extra}]" if extra else ""
    path = unquote(urlsplit(url).path) if url.startswith("file:") else ""
    if "vcs_info" in record:
        of_repository = record["vcs_info"]
        url = f"{of_repository['vcs']}+{url}@{of_repository['commit_id']}"
    elif path:
        if not Path(path).exists():
            return ""
        option = "-e " if record.get("dir_info", {}).get("editable") else ""
        return option + shlex.quote(path + extras)
    return shlex.quote(f"hptune{extras} @ {url}") if url else ""


def _packages_of(extra: str) -> str:
    from importlib import metadata

    from packaging.requirements import Requirement

    return shlex.join(
        f"{each.name}{each.specifier}"
        for each in map(Requirement, metadata.requires("hptune") or ())
        if each.marker and each.marker.evaluate({"extra": extra})
    )


def check_installed(module: str, purpose: str) -> None:
    """Check that a module of an extra is installed.

    Args:
        module: The module.
        purpose: What needs it, as the subject of a sentence.

    Raises:
        MissingPackageError: It is not installed.
    """
    if importlib.util.find_spec(module) is None:
        raise MissingPackageError(
            f"{purpose} needs {module}, which is not installed; install it with: "
            f"{how_to_install(module)}"
        )
