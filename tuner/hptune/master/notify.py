"""The user's command of `--notify`: called when a study starts, fails, waits, stops and ends."""

from __future__ import annotations

import contextlib
import enum
import json
import os
import queue
import signal
import subprocess
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from .. import text
from ..core.snapshot import StudySnapshot
from ..core.trial import Trial, TrialState

CALL_SECONDS = 60.0
"""How long one call of the command may take."""

END_SECONDS = 10.0
"""How long the end of a run waits for the calls that are not over."""

_OUTPUT_CHARACTERS = 120


class Moment(enum.StrEnum):
    """What the command is called for, each once in a run."""

    START = "start"
    FAILURE = "failure"
    WAIT = "wait"
    STOP = "stop"
    END = "end"


class CommandThread:
    """Calls a command in a thread of its own, one call after the other; errors are lines.

    Args:
        command: A line for the shell; empty for no calls.
        directory: Where it runs.
        call_seconds: How long one call may take.
    """

    def __init__(self, command: str, directory: str, call_seconds: float = CALL_SECONDS) -> None:
        self._command, self._directory = command, directory
        self._call_seconds = call_seconds
        self._messages: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._has_failed = False
        self._is_closed = False
        self._process: subprocess.Popen[str] | None = None
        # No call begins after `kill`, which a signal handler may call during `close`.
        self._lock = threading.RLock()
        # A daemon: the process never waits for it for longer than `close` does.
        self._thread = threading.Thread(target=self._work, name="hptune-notify", daemon=True)
        if command:
            self._thread.start()

    def call(self, message: Mapping[str, object]) -> None:
        """Have the command called with a message; returns at once."""
        self._messages.put(json.dumps(message) + "\n")

    def lines(self) -> list[str]:
        """Return what the user should know since the last call: the first failure."""
        return [self._lines.get() for _ in range(self._lines.qsize())]

    def close(self, seconds: float = END_SECONDS) -> None:
        """Wait a limited time for the calls, and kill what still runs."""
        try:
            if self._command and not self._is_closed:
                self._messages.put(None)
                self._thread.join(seconds)
                if self._thread.is_alive():
                    self._fail(f"was killed {text.duration(seconds)} after the end of the run")
        finally:  # also after Ctrl-C
            self.kill()

    def kill(self) -> None:
        """Kill the command and all that it started; no further call begins."""
        with self._lock:
            self._is_closed = True
            self._kill_group()

    def _kill_group(self) -> None:
        with self._lock:
            if self._process is not None:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(self._process.pid, signal.SIGKILL)

    def _work(self) -> None:
        while (message := self._messages.get()) is not None and not self._is_closed:
            try:
                self._call(message)
            except OSError as error:
                self._fail(f"cannot be started: {error.strerror or error}")

    def _call(self, message: str) -> None:
        with self._lock:
            if self._is_closed:
                return
            self._process = process = subprocess.Popen(
                ["/bin/sh", "-c", self._command],  # with the pipes and variables of the user
                cwd=self._directory,
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                text=True,
                errors="replace",
                start_new_session=True,
            )
        with process:  # closes its pipes
            try:
                _, output = process.communicate(message, timeout=self._call_seconds)
                if process.returncode:
                    last = text.shorten(output.strip().rpartition("\n")[2], _OUTPUT_CHARACTERS)
                    self._fail(f"ended with {process.returncode}" + (f" ({last})" if last else ""))
            except subprocess.TimeoutExpired:
                self._fail(f"was killed after {text.duration(self._call_seconds)}")
            finally:
                self._kill_group()
        self._process = None

    def _fail(self, words: str) -> None:
        if not (self._has_failed or self._is_closed):
            self._has_failed = True
            self._lines.put(
                f"the command of --notify {words}. The study continues, later failures of the "
                "command are not shown"
            )


@dataclass(slots=True)
class Notifier:
    """Decides when the command of a run is called, and with what.

    Attributes:
        thread: Calls the command.
        study: The study's directory.
        wait_seconds: After which wait of a job there is a call.
        made: The moments for which there was a call in this run, or need be none.
    """

    thread: CommandThread
    study: str
    wait_seconds: float
    made: set[Moment] = field(default_factory=set)

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
        if Moment.START not in self.made:
            self._call(Moment.START, "the study runs", snapshot)
            if snapshot.counts.get(TrialState.FAILED, 0) > len(failed):
                self.made.add(Moment.FAILURE)  # it failed in an earlier run
        if failed:
            words, number = f"trial {failed[0].number} failed", failed[0].number
            self._call(Moment.FAILURE, words, snapshot, reason=failed[0].reason, trial=number)
        if waited_seconds > self.wait_seconds:
            words = f"a job has waited for {text.duration(waited_seconds)}"
            self._call(Moment.WAIT, words, snapshot, reason=snapshot.jobs)
        if snapshot.stopping:
            self._call(Moment.STOP, "the study stops", snapshot, reason=snapshot.stopping)

    def end(self, snapshot: StudySnapshot, finish_reason: str, reason: str) -> None:
        """Call for the end of a run that has started."""
        if Moment.START in self.made:
            words = f"the study has ended ({finish_reason})"
            self._call(Moment.END, words, snapshot, reason=reason, finish_reason=finish_reason)

    def _call(
        self, moment: Moment, words: str, snapshot: StudySnapshot, reason: str = "", **more: Any
    ) -> None:
        if moment in self.made:
            return
        self.made.add(moment)
        best = snapshot.best
        self.thread.call(
            {
                "moment": moment,
                "study": self.study,
                "text": f"{self.study}: {words}" + (f": {reason}" if reason else ""),
                "reason": reason or None,
                "finish_reason": None,
                "trial": None,
                "counts": {str(state): count for state, count in snapshot.counts.items()},
                "budget_trials": snapshot.budget_trials,
                "metric": snapshot.goal.metric,
                "best": best and {"trial": best.number, "value": best.value},
                **more,
            }
        )
