"""The mirror of a run: a process that reads the ledger and sends trials to another tool."""

from __future__ import annotations

import contextlib
import os
import re
import runpy
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from .. import text
from ..config.settings import StudySettings
from ..errors import StudyError, UsageError
from ..storage.directory import StudyDirectory
from ..worker.process_ids import die_with_parent

END_SECONDS = 20.0
"""How long the end of a run waits for what was not sent yet."""


def check_mirror(settings: StudySettings) -> None:
    """Check that there is such an export, and its package.

    Raises:
        UsageError: There is none.
        MissingPackageError: The package is not installed.
    """
    if settings.mirror:
        from ..reporting.exports.registry import EXPORTS

        try:
            EXPORTS.find(settings.mirror, [Path(settings.working_directory)]).check({})
        except UsageError as error:  # it names the option of `hptune export`
            error.message = re.sub(r"(--|unknown )format\b", r"\1mirror", error.message)
            error.args = (error.message, error.detail)
            raise


@contextlib.contextmanager
def mirrored(
    settings: StudySettings, directory: StudyDirectory, note: Callable[[str], None]
) -> Iterator[Callable[[], None]]:
    """Send trials that end in the context to the mirror, if there is one; only its end waits.

    Yields what shows the mirror's first failure, if called after that.

    Args:
        settings: The study's settings.
        directory: Where the study is.
        note: Takes a line for the user.
    """
    if not settings.mirror:
        yield lambda: None
        return
    log, tool = directory.path / "mirror.log", settings.mirror
    log.touch()
    lines, has_failed = log.open(errors="replace"), False
    lines.seek(0, os.SEEK_END)
    process, waits = _started(settings, directory, log), False

    def show_failure() -> None:
        nonlocal has_failed
        line = next((line for line in lines if "; tried again in " in line), "")
        if not has_failed and (line or process.poll()):
            has_failed = True
            words = line.strip() or "it has ended"
            note(f"the mirror {tool} failed: {words}; more is in {text.path(log)}")

    try:
        yield show_failure
        waits = True
    except StudyError:  # not after a second Ctrl-C, or where no end is recorded
        waits = True
        raise
    finally:
        lines.close()
        if waits and process.poll() is None:
            limit = text.duration(END_SECONDS)
            note(f"the last trials are sent to {tool}, for {limit} at most; Ctrl-C skips this")
            with contextlib.suppress(subprocess.TimeoutExpired, KeyboardInterrupt):
                process.wait(END_SECONDS)
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        if process.wait():
            note(
                f"not all trials were sent to {tool} (see {text.path(log)}); "
                f"`hptune export {directory} --format {tool}` sends the others"
            )


def _started(
    settings: StudySettings, directory: StudyDirectory, log: Path
) -> subprocess.Popen[bytes]:
    study = str(directory.path.absolute())
    # -P: no file of the user's must hide a module.
    hptune = (sys.executable, "-P", "-m", __name__, str(os.getpid()))
    with log.open("ab") as output:
        return subprocess.Popen(
            [*hptune, "export", study, "--follow", "--format", settings.mirror],
            cwd=settings.working_directory,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,  # Ctrl-C is not for it
        )


def main() -> None:
    """Run `hptune` until the process ends that started this one."""
    die_with_parent(int(sys.argv.pop(1)))
    runpy.run_module("hptune", run_name="__main__")


if __name__ == "__main__":
    main()
