"""All checks, each in a process of its own and within its time."""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import secrets
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from typing import IO

from .findings import Finding, Status, Subject, failed
from .storage import clean_up


@dataclass(frozen=True, slots=True)
class Check:
    """Something to look at.

    Attributes:
        name: In a word or two, as the report shows it where the check itself breaks down.
        module: Where its function is, loaded in the check's own process only.
        function: `function(subject)`, which yields the findings.
        limit_seconds: How long it may take.
        advice: What to do where it takes longer or breaks down.
        late: What it is if it takes longer.
    """

    name: str
    module: str
    function: str
    limit_seconds: float
    advice: str
    late: Status = Status.FAIL

    def run(self, subject: Subject) -> Iterator[Finding]:
        """The findings, as they are found."""
        found: Callable[[Subject], Iterator[Finding]] = getattr(
            importlib.import_module(f"tuner.doctor.{self.module}"), self.function
        )
        return found(subject)


CHECKS = (
    Check("versions", "machine", "check_versions", 15, "install hptune into a new environment"),
    Check(
        "machine", "machine", "check_machine", 30, "is the GPUs' driver in order? try nvidia-smi"
    ),
    Check(
        *("file system", "storage", "check_storage", 60),
        "the file system is slow or does not answer; name another directory (--study DIR)",
    ),
    Check(
        *("a worker", "workers", "check_workers", 60),
        "can processes be started, and does the network answer?",
    ),
    Check(
        *("training", "framework", "check_training", 180),
        "does load_data take long, or the first batch? a trial would wait as long",
        late=Status.WARN,
    ),
)


def examine(subject: Subject, checks: Sequence[Check] = CHECKS) -> Iterator[Finding]:
    """Run all checks at once; their findings come in the order of the checks.

    Never raises: a check that breaks down or takes too long is a finding.
    """
    subject = replace(subject, token=secrets.token_hex(4))
    try:
        yield from _at_once(subject, checks)
    finally:
        with contextlib.suppress(OSError):
            clean_up(subject)


def _at_once(subject: Subject, checks: Sequence[Check]) -> Iterator[Finding]:
    started: list[subprocess.Popen[bytes]] = []
    with ThreadPoolExecutor(len(checks)) as pool:
        running = [pool.submit(_in_own_process, check, subject, started) for check in checks]
        try:
            for each in running:
                yield from each.result()
        except BaseException:
            # Whoever is interrupted does not wait for the rest.
            for each in running:
                each.cancel()
            for process in started:
                if process.poll() is None:
                    _kill_group(process.pid)
            raise


def _in_own_process(
    check: Check, subject: Subject, started: list[subprocess.Popen[bytes]]
) -> list[Finding]:
    arguments = [check.name, json.dumps(asdict(subject))]
    with tempfile.TemporaryFile() as errors:
        try:
            process = subprocess.Popen(
                # -P: a file of the user's called random.py must not hide the library's.
                [sys.executable, "-P", "-m", "tuner.doctor", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                env={"TF_CPP_MIN_LOG_LEVEL": "2", **os.environ},
                start_new_session=True,
            )
        except OSError as error:
            return [failed(check.name, f"no process can be started: {error}", check.advice)]
        started.append(process)
        output, is_late = _output(process, check.limit_seconds)
        findings = [Finding.from_json(json.loads(line)) for line in output.splitlines()]
        if is_late:
            found = f"not done after {check.limit_seconds:g} seconds"
            findings.append(Finding(check.name, check.late, found, check.advice))
        elif process.returncode:
            findings.append(failed(check.name, _end(process.returncode, errors), check.advice))
        return findings


def _output(process: subprocess.Popen[bytes], limit_seconds: float) -> tuple[str, bool]:
    """What the process wrote, and whether it took too long; whatever it started goes with it."""
    is_late = False
    try:
        try:
            output = process.communicate(timeout=limit_seconds)[0]
        except subprocess.TimeoutExpired:
            is_late = True
            _kill_group(process.pid)
            output = process.communicate()[0]
    finally:
        _kill_group(process.pid)
        process.wait()
    return output.decode(errors="replace"), is_late


def _kill_group(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


def _end(status: int, errors: IO[bytes]) -> str:
    errors.seek(0)
    lines = [line for line in errors.read().decode(errors="replace").splitlines() if line.strip()]
    manner = f"killed by signal {-status}" if status < 0 else f"exit status {status}"
    return f"the check broke down ({manner}){': ' if lines else ''}{lines[-1] if lines else ''}"
