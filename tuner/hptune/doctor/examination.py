"""All checks, each in a process of its own and with a time limit."""

from __future__ import annotations

import contextlib
import json
import os
import pkgutil
import secrets
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import IO

from ..text import signal_name
from .findings import Finding, Status, Subject, failed
from .storage import clean_up


@dataclass(frozen=True, slots=True)
class Check:
    """A check.

    Attributes:
        name: The finding's name if the check itself breaks down.
        function: `module:function` in `hptune.doctor`, loaded in the check's own process only.
        limit_seconds: Time limit.
        advice: What to do if it breaks down or exceeds the limit.
        late: Its result if it exceeds the limit.
    """

    name: str
    function: str
    limit_seconds: float
    advice: str
    late: Status = Status.FAIL

    def run(self, subject: Subject) -> Iterator[Finding]:
        """Yield the findings as they are found."""
        function: Callable[[Subject], Iterator[Finding]] = pkgutil.resolve_name(
            f"hptune.doctor.{self.function}"
        )
        return function(subject)


CHECKS = (
    # They all start at once, and on a cold network file system Python's imports alone take long.
    Check("versions", "machine:check_versions", 60, "make a new environment for hptune"),
    Check("machine", "machine:check_machine", 60, "check the GPU driver"),
    Check(
        *("file system", "storage:check_storage", 90),
        "the file system is slow or does not answer: choose another directory with --study DIR",
    ),
    Check(
        *("a worker", "workers:check_workers", 90),
        "check that processes can be started and that the network works",
    ),
    Check(
        *("training", "framework:check_training", 180),
        "loading data or the first batch takes long, and each trial would wait for it",
        late=Status.WARN,
    ),
)


def examine(subject: Subject, checks: Sequence[Check] = CHECKS) -> Iterator[Finding]:
    """Run all checks at once, and yield their findings in the order of the checks.

    Never raises: a check that crashes or takes too long is a finding.
    """
    subject = replace(subject, token=secrets.token_hex(4))
    with contextlib.ExitStack() as stack:
        stack.callback(clean_up, subject)
        running = []
        for check in checks:
            files = [stack.enter_context(tempfile.TemporaryFile()) for _ in range(2)]
            running.append(_RunningCheck(check, *files))
            stack.callback(running[-1].kill)
        # In a thread, because an interrupt of the main thread within `Popen` would leave a process.
        # After an interrupt the thread may still run: `kill` keeps it from starting more.
        starting = threading.Thread(target=_start, args=(running, subject))
        starting.start()
        starting.join()
        for each in running:
            yield from each.findings()


def _start(checks: Sequence[_RunningCheck], subject: Subject) -> None:
    for check in checks:
        check.start(subject)


class _RunningCheck:
    """A check in a process of its own, which writes to two files."""

    def __init__(self, check: Check, output: IO[bytes], errors: IO[bytes]) -> None:
        self._check = check
        self._output, self._errors = output, errors
        self._deadline = 0.0
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()
        self._is_over = False

    def start(self, subject: Subject) -> None:
        """Start the process, unless the check is over."""
        arguments = [self._check.name, json.dumps(asdict(subject))]
        with self._lock:
            if self._is_over:
                return
            self._deadline = time.monotonic() + self._check.limit_seconds
            try:
                self._process = subprocess.Popen(
                    # -P: a file random.py in the current directory must not hide the library's.
                    [sys.executable, "-P", "-m", "hptune.doctor", *arguments],
                    stdin=subprocess.DEVNULL,
                    stdout=self._output,
                    stderr=self._errors,
                    env={"TF_CPP_MIN_LOG_LEVEL": "2", **os.environ},
                    start_new_session=True,
                )
            except OSError as error:
                self._errors.write(f"cannot start a process: {error}".encode())

    def findings(self) -> Iterator[Finding]:
        """Wait for the end of the check, or for its time limit, and yield its findings."""
        check, status, is_late = self._check, 1, False
        if self._process is not None:
            try:
                status = self._process.wait(max(0.0, self._deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                is_late = True
        self.kill()
        for line in _lines(self._output):
            yield Finding.from_json(json.loads(line))
        if is_late:
            found = f"not done after {check.limit_seconds:g} seconds"
            yield Finding(check.name, check.late, found, check.advice)
        elif status:
            how = f"killed by {signal_name(-status)}" if status < 0 else f"exit status {status}"
            error = "".join(f": {line}" for line in _lines(self._errors)[-1:])
            yield failed(check.name, f"the check crashed ({how}){error}", check.advice)

    def kill(self) -> None:
        """End the process and all that it started; may be repeated."""
        with self._lock:
            if self._process is not None and not self._is_over:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(self._process.pid, signal.SIGKILL)
                self._process.wait()
            self._is_over = True


def _lines(file: IO[bytes]) -> list[str]:
    file.seek(0)
    return [line for line in file.read().decode(errors="replace").splitlines() if line.strip()]
