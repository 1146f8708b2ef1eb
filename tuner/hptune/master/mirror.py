"""The mirror of a run: a process that reads the ledger and sends trials to another tool."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from .. import text
from ..config.settings import StudySettings
from ..files.file_errors import storage_errors
from ..storage.directory import StudyDirectory
from .notify import end_processes

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

        EXPORTS.find(settings.mirror, [Path(settings.working_directory)]).check({})


class Mirror:
    """Runs `hptune export --follow` beside a run; nothing waits for it but the run's end.

    Args:
        settings: The study's settings.
        directory: Where the study is.
    """

    def __init__(self, settings: StudySettings, directory: StudyDirectory) -> None:
        self._processes: list[subprocess.Popen[bytes]] = []
        self._tool, self._working_directory = settings.mirror, settings.working_directory
        self._directory = directory
        self._log = directory.path / "mirror.log"

    def start(self) -> None:
        """Start it, if there is one."""
        if not self._tool:
            return
        study = str(self._directory.path.absolute())
        hptune = (sys.executable, "-P", "-m", "hptune")  # -P: no module of the user's shadows ours
        with storage_errors(self._directory.path), self._log.open("ab") as log:
            process = subprocess.Popen(
                [*hptune, "export", study, "--follow", "--format", self._tool],
                cwd=self._working_directory,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._processes.append(process)

    def close(self) -> str:
        """Wait a limited time until all is sent; return what the user does if it is not."""
        end_processes(self._processes, END_SECONDS)
        if not any(process.returncode for process in self._processes):
            return ""
        return (
            f"not all trials were sent to {self._tool} (see {text.path(self._log)}); "
            f"`hptune export {self._directory} --format {self._tool}` sends the others"
        )

    def kill(self) -> None:
        """End it at once."""
        end_processes(self._processes, 0.0)
