"""The user's command of `--notify`: called when a study starts, fails, waits, stops and ends."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from .. import text
from ..core.snapshot import StudySnapshot
from ..core.trial import Trial, TrialState

CALL_SECONDS = 60.0
"""How long one call of the command may take."""

END_SECONDS = 10.0
"""How long the end of a run waits for the calls that are not over."""


@dataclass(slots=True)
class Notifier:
    """Has the user's command called for each moment of a run once; nothing waits for a call.

    Attributes:
        command: A line for the shell; empty for no calls.
        directory: Where it runs.
        study: The study's directory.
        wait_seconds: After which wait of a job there is a call.
        call_seconds: How long one call may take.
        made: The moments for which there was a call in this run, or need be none.
    """

    command: str
    directory: str
    study: str
    wait_seconds: float
    call_seconds: float = CALL_SECONDS
    made: set[str] = field(default_factory=set)
    _processes: list[subprocess.Popen[str]] = field(default_factory=list)
    _has_failed: bool = False
    _lines: list[str] = field(default_factory=list)

    def observe(
        self, snapshot: StudySnapshot, ended: Sequence[Trial], waited_seconds: float
    ) -> None:
        """Call for what has happened.

        Args:
            snapshot: The study's present state.
            ended: The trials that ended since the last call.
            waited_seconds: How long the job that waits longest does.
        """
        failed = [trial for trial in ended if trial.state is TrialState.FAILED]
        if "start" not in self.made:
            self._call("start", "the study runs", snapshot)
            if snapshot.counts.get(TrialState.FAILED, 0) > len(failed):
                self.made.add("failure")  # it failed in an earlier run
        if failed:
            first = failed[0]
            self._call("failure", f"trial {first.number} failed", snapshot, first.reason)
        if waited_seconds > self.wait_seconds:
            words = f"a job has waited for {text.duration(waited_seconds)}"
            self._call("wait", words, snapshot, snapshot.jobs)
        if snapshot.stopping:
            self._call("stop", "the study stops", snapshot, snapshot.stopping)

    def end(self, snapshot: StudySnapshot, finish_reason: str, reason: str) -> None:
        """Call for the end of a run that has started."""
        if "start" in self.made:
            words = f"the study has ended ({finish_reason})"
            self._call("end", words, snapshot, reason, finish_reason)

    def lines(self) -> list[str]:
        """Return what the user should know of the command: the first call that fails."""
        code = next((code for each in self._processes if (code := each.poll())), 0)
        if code and not self._has_failed:
            self._fail("was killed" if code < 0 else f"ended with {code}")
        lines, self._lines = self._lines, []
        return lines

    def _fail(self, how: str) -> None:
        if not self._has_failed:
            self._lines.append(f"the command of --notify {how}; its next failures are not shown")
        self._has_failed = True

    def close(self, seconds: float = END_SECONDS) -> None:
        """Wait a limited time for the calls, and kill what still runs."""
        end_processes(self._processes, seconds)

    def kill(self) -> None:
        """Kill each call with all that it started."""
        end_processes(self._processes, 0.0)

    def _call(
        self,
        moment: str,
        words: str,
        snapshot: StudySnapshot,
        reason: str = "",
        finish_reason: str | None = None,
    ) -> None:
        if not self.command or moment in self.made:
            return
        self.made.add(moment)
        best = snapshot.best
        message = {
            "moment": moment,
            "study": self.study,
            "text": f"{self.study}: {words}" + (f": {reason}" if reason else ""),
            "reason": reason or None,
            "finish_reason": finish_reason,
            "counts": {str(state): count for state, count in snapshot.counts.items()},
            "metric": snapshot.goal.metric,
            "best": best and {"trial": best.number, "value": best.value},
        }
        try:
            process = self._started()
            self._processes.append(process)
            assert process.stdin is not None
            with process.stdin as pipe:
                pipe.write(json.dumps(message) + "\n")  # a pipe holds 64 kB: this does not wait
        except BrokenPipeError:
            pass  # a command need not read it
        except OSError as error:
            self._fail(f"cannot be started: {error.strerror or error}")

    def _started(self) -> subprocess.Popen[str]:
        """Return a call of the command, which `timeout` ends also if this process is killed."""
        limit = ("timeout", "-s", "KILL", str(self.call_seconds))
        return subprocess.Popen(
            [*limit, "/bin/sh", "-c", self.command],
            cwd=self.directory,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
        )


def end_processes(processes: Sequence[subprocess.Popen[Any]], seconds: float) -> None:
    """Wait a limited time for leaders of process groups, and kill those groups that still run."""
    until = time.monotonic() + seconds
    try:
        for process in processes:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(max(0.0, until - time.monotonic()))
    finally:  # also after Ctrl-C
        for process in processes:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
