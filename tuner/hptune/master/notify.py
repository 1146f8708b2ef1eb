"""The user's command of `--notify`: called when a study starts, fails, waits, stops and ends."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from typing import IO

from .. import text
from ..config.settings import StudySettings
from ..core.snapshot import StudySnapshot
from ..core.trial import Trial, TrialState

CALL_SECONDS = 60.0
"""How long one call of the command may take."""

END_SECONDS = 10.0
"""How long the end of a run waits for calls: with it, a job or container may end them."""

_ERROR_BYTES = 300
_ERROR_LINES = 3
"""How much is shown at most of the standard error of a command that fails: its end."""


class Notifier:
    """Calls the user's command for each moment of a run once; only the run's end waits for calls.

    Args:
        settings: The study's settings.
        study: The study's directory.
        note: Takes a line for the user.
    """

    def __init__(self, settings: StudySettings, study: str, note: Callable[[str], None]) -> None:
        self._settings = settings
        self._study = study
        self._note = note
        self._moments: set[str] = set()
        self._calls: list[tuple[subprocess.Popen[bytes], IO[bytes]]] = []
        self._has_failed = False

    def observe(
        self, snapshot: StudySnapshot, ended: Sequence[Trial], waited_seconds: float
    ) -> None:
        """Call for what has happened.

        Args:
            snapshot: The study's present state.
            ended: The trials that ended since the last call.
            waited_seconds: How long the job that waits longest does.
        """
        self._call("start", "the study runs", snapshot)
        failed = [trial for trial in ended if trial.state is TrialState.FAILED]
        if failed and snapshot.counts[TrialState.FAILED] == len(failed):  # none in an earlier run
            words = f"trial {failed[0].number} failed"
            self._call("failure", words, snapshot, failed[0].reason)
        if waited_seconds > self._settings.notify_wait_seconds:
            words = f"a job has waited for {text.duration(waited_seconds)}"
            self._call("wait", words, snapshot, snapshot.jobs)
        if snapshot.stopping:
            self._call("stop", "the study stops", snapshot, snapshot.stopping)
        self._show_failure()

    def end(self, snapshot: StudySnapshot, finish_reason: str, reason: str) -> None:
        """Call for the end of a run that has started, and wait a limited time for all calls."""
        if "start" not in self._moments or "end" in self._moments:
            return
        words = f"the study has ended ({finish_reason})"
        self._call("end", words, snapshot, reason, finish_reason)
        until = time.monotonic() + END_SECONDS
        with contextlib.suppress(subprocess.TimeoutExpired, KeyboardInterrupt):
            for call, _ in self._calls:
                call.wait(max(0.0, until - time.monotonic()))
        self._show_failure()
        for _, errors in self._calls:
            errors.close()

    def _call(
        self, moment: str, words: str, now: StudySnapshot, reason: str = "", finish: str = ""
    ) -> None:
        if not self._settings.notify or moment in self._moments:
            return
        self._moments.add(moment)
        best = now.best
        message = {
            "moment": moment,
            "study": self._study,
            "text": f"{self._study}: {words}" + (f": {reason}" if reason else ""),
            "reason": reason or None,
            "finish_reason": finish or None,
            "counts": {str(state): count for state, count in now.counts.items()},
            "metric": now.goal.metric,
            "best": best and {"trial": best.number, "value": best.value},
        }
        try:
            self._start(json.dumps(message) + "\n")
        except OSError as error:
            self._fail(f"cannot be started: {error.strerror or error}")

    def _start(self, message: str) -> None:
        # A file, as a command that does not read a pipe would hold this process up.
        with tempfile.TemporaryFile() as file, contextlib.ExitStack() as opened:
            file.write(message.encode())
            file.seek(0)
            limit = ("timeout", "-s", "KILL", str(CALL_SECONDS))  # also if this process is killed
            errors = opened.enter_context(tempfile.TemporaryFile())
            call = subprocess.Popen(
                [*limit, "/bin/sh", "-c", self._settings.notify],
                cwd=self._settings.working_directory,
                stdin=file,
                stdout=subprocess.DEVNULL,
                stderr=errors,
                start_new_session=True,  # Ctrl-C is not for it
            )
            self._calls.append((call, errors))
            opened.pop_all()  # `end` closes it

    def _show_failure(self) -> None:
        for call, errors in self._calls:
            if (code := call.poll()) and not self._has_failed:
                how = "was killed" if code < 0 else f"ended with {code}"
                self._fail(": ".join(filter(None, (how, _last_lines(errors)))))

    def _fail(self, how: str) -> None:
        if not self._has_failed:
            self._note(f"the command of --notify {how}; its next failures are not shown")
        self._has_failed = True


def _last_lines(errors: IO[bytes]) -> str:
    """Return the last lines of what a command wrote to its standard error, as one."""
    errors.seek(max(0, errors.seek(0, os.SEEK_END) - _ERROR_BYTES))
    lines = filter(None, map(text.clean, errors.read().decode(errors="replace").splitlines()))
    return "; ".join([*lines][-_ERROR_LINES:])
