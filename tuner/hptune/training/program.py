"""A program in any language and environment as the objective of a study.

The program gets its hyperparameters as arguments, and writes its metrics as JSON objects, one to a
line: ``{"step": 3, "val_loss": 0.21}``. All other lines of its output go to the trial's log.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from ..errors import ProgramFailed
from ..text import signal_name
from ..user_code.programs import filled_in, runs_elsewhere
from .context import TrialContext, as_metrics

STEP_NAMES = ("step", "epoch")
"""Keys of the step in a line of metrics; without one, the lines are counted."""

GRACE_SECONDS = 8.0
"""Time from SIGTERM to SIGKILL: less than an attempt has before it is killed itself."""

_FROM_OUTSIDE = (signal.SIGKILL, signal.SIGTERM)
"""Signals by which programs do not end by their own fault."""

_POLL_SECONDS = 0.2
_MOST_CHARACTERS = 2000
_ERROR_LINES = 40
"""Last lines of the program's error output that a failure shows: a traceback with its cause."""
_REWRITTEN = (
    "the program changed or replaced what it had written into {}; let it append one line for each "
    "report"
)


def run_program(
    command: Sequence[str],
    trial: TrialContext,
    hp: Any,
    *,
    env: Mapping[str, str] | None = None,
) -> dict[str, float]:
    """Run a program to its end, and return the metrics that it reported last.

    In each argument, ``{lr}`` stands for the value of the hyperparameter `lr`, and
    ``{trial.checkpoint_dir}``, ``{trial.params_file}`` (all values, as JSON),
    ``{trial.metrics_file}``, ``{trial.number}``, ``{trial.seed}``, ``{trial.port}`` and
    ``{trial.epochs}`` for facts of the trial; ``{{`` is a brace. An argument with a hyperparameter
    that is not active is left out. No shell is involved. The same facts are in the environment, as
    ``HPTUNE_CHECKPOINT_DIR`` and so on.

    Each line that is a JSON object is a report, on standard output or in the metrics file, to which
    the program appends lines. If the study wants the trial to stop, the program gets SIGTERM, and
    is killed `GRACE_SECONDS` later. If something else kills the program, such as the kernel for
    lack of memory, this process ends in the same way, and the study runs the trial again.

    Args:
        command: The program and its arguments.
        trial: The trial, as `objective` gets it.
        hp: The hyperparameters, as `objective` gets them.
        env: Further environment variables for the program.

    Returns:
        The metrics of the last report; none if an earlier attempt of the trial has made all.

    Raises:
        AttemptStopped: The trial was told to stop. It is no `Exception`; do not catch it.
        ModelFileError: The command names something that is neither a hyperparameter nor a fact.
        ProgramFailed: The program cannot be started, ended with an error, reported nothing, or
            changed what it had written into the metrics file; or the trial has several processes.
    """
    if trial.world_size > 1:
        raise ProgramFailed(
            "run_program runs one program for each trial, and this trial has "
            f"{trial.world_size} processes; leave out --processes-per-trial and --nodes-per-trial, "
            "and let the program start its processes"
        )
    trial.runs_elsewhere = runs_elsewhere(command)
    trial.should_stop()  # the search for hyperparameters ends here, before anything is started
    facts = _facts(trial)
    Path(facts["params_file"]).write_text(json.dumps(dict(hp.values), indent=1))
    arguments = list(filled_in(command, hp.values, facts))
    variables = {f"HPTUNE_{name.upper()}": value for name, value in facts.items()}
    metrics_file = Path(facts["metrics_file"])
    reports = _Reports(trial)
    reports.read_earlier(metrics_file)
    metrics_file.unlink(missing_ok=True)
    metrics_file.touch()
    process = _start(arguments, {**os.environ, **variables, **(env or {})})
    errors: deque[str] = deque(maxlen=_ERROR_LINES)
    with _reading(process, reports, errors, metrics_file):
        is_stopped = _wait(process, trial, reports)
    if reports.failure is not None:
        raise reports.failure
    if is_stopped and (process.returncode or not trial.has_reported_all):
        trial.stop_if_told()
    if process.returncode:
        _die_if_killed(arguments[0], process.returncode)
        how = _how_it_failed(arguments, process.returncode, errors)
        raise ProgramFailed(how, "".join(errors).rstrip())
    # An earlier attempt may have made all reports, and been killed before it ended.
    if not reports.latest and trial.resumed_from is None:
        raise ProgramFailed(
            f"{arguments[0]} reported no metrics. Let it print one JSON object to a line, such as "
            '{"step": 1, "val_loss": 0.5}, or write such lines into the file $HPTUNE_METRICS_FILE',
            "".join(errors).rstrip(),
        )
    return reports.latest


def _facts(trial: TrialContext) -> dict[str, str]:
    return {
        "checkpoint_dir": str(trial.checkpoint_dir),
        "params_file": str(trial.directory / "params.json"),
        "metrics_file": str(trial.directory / "metrics.jsonl"),
        "number": str(trial.number),
        "seed": str(trial.seed),
        "port": str(trial.port),
        "epochs": "" if trial.epochs is None else str(trial.epochs),
    }


def _start(arguments: Sequence[str], variables: Mapping[str, str]) -> subprocess.Popen[str]:
    try:
        return subprocess.Popen(
            arguments,
            env=variables,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            bufsize=1,
            process_group=0,
        )
    except OSError as error:
        raise ProgramFailed(
            f"{arguments[0]} cannot be started on this machine: {error.strerror or error}"
        ) from error


def _wait(process: subprocess.Popen[str], trial: TrialContext, reports: _Reports) -> bool:
    """Wait for the end of the program; return whether it was told to stop."""
    kill_at: float | None = None
    try:
        while process.poll() is None:
            if kill_at is None and (trial.should_stop() or reports.failure is not None):
                _signal(process, signal.SIGTERM)
                kill_at = time.monotonic() + GRACE_SECONDS
            if kill_at is not None and time.monotonic() > kill_at:
                _signal(process, signal.SIGKILL)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_POLL_SECONDS)
    finally:
        # What it has started must neither run on nor keep its pipes open.
        _signal(process, signal.SIGKILL)
        process.wait()
    return kill_at is not None


def _signal(process: subprocess.Popen[str], number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)


def _die_if_killed(name: str, code: int) -> None:
    """End this process as something else ended the program; return if it ended by itself.

    A shell or launcher that waits for the killed process exits with 128 and the signal's number.
    """
    number = -code if code < 0 else code - 128
    if number not in _FROM_OUTSIDE:
        return
    sys.stderr.write(f"{name} was ended by {signal.Signals(number).name}\n")
    sys.stderr.flush()
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    os.kill(os.getpid(), number)


def _how_it_failed(arguments: Sequence[str], code: int, errors: Sequence[str]) -> str:
    how = f"was ended by {signal_name(-code)}" if code < 0 else f"ended with exit code {code}"
    said = next((line.strip() for line in reversed(errors) if line.strip()), "")
    return f"{arguments[0]} {how}{f': {said[:_MOST_CHARACTERS]}' if said else ''}"


class _Reports:
    """Reports the program's metrics to the study.

    Attributes:
        latest: The metrics of the last report.
        failure: Why a report was refused; None if none was.
    """

    def __init__(self, trial: TrialContext) -> None:
        self.latest: dict[str, float] = {}
        self.failure: Exception | None = None
        self._trial = trial
        # A program that has kept nothing begins again.
        self._continues = not trial.is_first_attempt and any(trial.checkpoint_dir.iterdir())
        self._count = (trial.resumed_from or 0) if self._continues else 0
        self._lock = threading.Lock()

    def fail(self, error: Exception) -> None:
        """Refuse the reports, unless one was refused already."""
        with self._lock:
            self.failure = self.failure or error

    def read_earlier(self, metrics_file: Path) -> None:
        """Report the steps that an earlier attempt was killed too early to read."""
        if self._continues:
            with contextlib.suppress(OSError):
                for line in metrics_file.read_text(errors="replace").splitlines():
                    self.read(line, after=self._trial.resumed_from or 0)

    def read(self, line: str, *, after: int | None = None) -> None:
        """Report a line, if it has metrics, and a step after the one that is given, if one is."""
        if not line.lstrip().startswith("{"):
            return
        try:
            found = json.loads(line)
        except (ValueError, RecursionError):
            return
        steps = [found.pop(name) for name in STEP_NAMES if name in found]
        # Other lines may be JSON too: those of a log have texts.
        if not found or not all(type(value) in (int, float) for value in (*found.values(), *steps)):
            return
        is_known = after is not None and not (steps and steps[0] > after)
        if is_known or any(step % 1 for step in steps[:1]):
            return
        metrics = as_metrics(found)
        with self._lock:
            self._count = int(steps[0]) if steps else self._count + 1
            self.latest = metrics
            if self.failure is None:
                try:
                    self._trial.report(self._count, **metrics)
                except Exception as error:  # raised where the objective runs
                    self.failure = error


class _MetricsFile:
    """The lines that a program appends to a file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = path.open("rb")
        self._part = b""
        self._latest = (0, b"")

    def close(self) -> None:
        self._file.close()

    def new_lines(self, *, with_last: bool) -> Iterator[str]:
        """Yield the lines that were added, and the last one, which may have no end, if asked."""
        while chunk := self._file.readline():
            self._part += chunk
            self._latest = self._file.tell() - len(self._part), self._part
            if self._part.endswith(b"\n"):
                yield self._part.decode(errors="replace")
                self._part = b""
        if with_last:
            yield self._part.decode(errors="replace")

    @property
    def is_appended_to(self) -> bool:
        """Whether the file still is the one that was read, with the line that was read last."""
        start, line = self._latest
        with contextlib.suppress(OSError):  # a program may remove it
            if not os.path.samestat(self._path.stat(), os.fstat(self._file.fileno())):
                return False
        return os.pread(self._file.fileno(), len(line), start) == line


@contextlib.contextmanager
def _reading(
    process: subprocess.Popen[str], reports: _Reports, errors: deque[str], metrics_file: Path
) -> Iterator[None]:
    """Read what the program writes, until it and what it has started are gone."""

    def copy(stream: IO[str], out: IO[str], take: Callable[[str], object]) -> None:
        # Closed here: another thread that closed it would wait for this one's reading.
        with stream:
            for line in stream:
                take(line)
                with contextlib.suppress(OSError, ValueError):
                    out.write(line)

    over = threading.Event()

    def follow() -> None:
        with contextlib.closing(_MetricsFile(metrics_file)) as file:
            while True:
                was_over = over.is_set()
                for line in file.new_lines(with_last=was_over):
                    reports.read(line)
                if not file.is_appended_to:
                    reports.fail(ProgramFailed(_REWRITTEN.format(metrics_file.name)))
                if was_over or reports.failure is not None:
                    return
                over.wait(_POLL_SECONDS)

    readers = [
        threading.Thread(target=target, args=arguments, daemon=True)
        for target, *arguments in (
            (copy, process.stdout, sys.stdout, reports.read),
            (copy, process.stderr, sys.stderr, errors.append),
            (follow,),
        )
    ]
    for reader in readers:
        reader.start()
    try:
        yield
    finally:
        over.set()
        # A process that left the program's group may keep its pipes open forever.
        deadline = time.monotonic() + GRACE_SECONDS
        for reader in readers:
            reader.join(max(0.0, deadline - time.monotonic()))
