"""Single attempts in real processes, without a study around them."""

from __future__ import annotations

import queue
import textwrap
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hptune.config.objectives import resolve_goals
from hptune.core.attempt import AttemptId, Ending, Halt, StopAt, Usage
from hptune.core.messages import (
    AttemptEnded,
    AttemptStarted,
    Event,
    Measured,
    ParametersUsed,
    Reported,
    Start,
)
from hptune.core.resources import Placement
from hptune.core.space.space import SearchSpace
from hptune.core.step_request import StepRequest
from hptune.core.trial import Score
from hptune.user_code.model_file import check_path
from hptune.user_code.source import Found
from hptune.worker.forkserver.client import Busy, ForkServer
from hptune.worker.orders import AttemptLimits, AttemptOrder, ProbeOrder, StudyBrief
from hptune.worker.runner import AttemptRunner


@dataclass(frozen=True, slots=True)
class Result:
    """Result of an attempt."""

    ending: Ending
    reports: list[tuple[int, Mapping[str, float]]]
    used: ParametersUsed | None
    directory: Path
    usages: list[Usage]
    told_at: float = 0.0

    @property
    def log(self) -> str:
        return (self.directory / "log.txt").read_text()

    @property
    def steps(self) -> list[int]:
        return [step for step, _ in self.reports]


_FOUND: dict[tuple[int, str], Found] = {}
"""Declarations of model files, by the fork server that read them: many tests run the same one."""


class Attempts:
    """Reads model files and runs single attempts of them."""

    def __init__(self, warm: ForkServer, directory: Path, *, file: str = "model.py") -> None:
        self.warm = warm
        self._directory = directory
        self._file = file
        self._events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self._number = 0

    def probe(self, text: str, *, busy: Busy = lambda _: None) -> Found:
        """Return what the model file declares."""
        source, here = check_path(self._write(text)), str(self._directory)
        return self.warm.probe(ProbeOrder(source, here, here), busy)

    def run(
        self,
        text: str,
        *,
        epochs: int = 2,
        incumbents: Sequence[Score] = (),
        deterministic: bool = False,
        objectives: Sequence[str] = (),
        constraints: Sequence[str] = (),
        seed: int = 7,
        trial: int | None = None,
        number: int = 0,
        resume_from: int | None = None,
        checkpoint_every: int | None = None,
        halt: tuple[int, Halt] | None = None,
        rungs: Sequence[int] = (),
        placement: Placement | None = None,
        timeout_seconds: float = 120.0,
        hang_timeout_seconds: float | None = None,
        keep_last: bool = False,
        stop_at: StopAt = StopAt.BATCH,
        measure: StepRequest | None = None,
        **params: Any,
    ) -> Result:
        """Run the file's training once, with its defaults except `params`.

        `halt` is the step after whose report the attempt is told to stop, and why.
        """
        read = id(self.warm), text
        found = _FOUND[read] = _FOUND[read] if read in _FOUND else self.probe(text)
        source = check_path(self._write(text))
        goals, _ = resolve_goals(found, objectives, constraints)
        brief = StudyBrief(
            name="test",
            directory=str(self._directory / "study"),
            working_directory=str(self._directory),
            source=source,
            goals=goals,
            limits=AttemptLimits(
                epochs=epochs,
                trial_timeout_seconds=timeout_seconds,
                hang_timeout_seconds=hang_timeout_seconds,
                checkpoint_every=checkpoint_every,
                stop_at=stop_at,
            ),
            deterministic=deterministic,
        )
        self._number += 1
        order = AttemptOrder(
            brief,
            Start(
                AttemptId(self._number if trial is None else trial, number),
                {**SearchSpace.from_json(found.space).defaults(), **params},
                placement or Placement("worker", (0,)),
                seed,
                incumbents=tuple(incumbents),
                resume_from=resume_from,
                keep_last=keep_last,
                rungs=tuple(rungs),
            ),
            found.space,
            measure=measure,
        )
        return self._carry_out(order, halt)

    def _carry_out(self, order: AttemptOrder, halt: tuple[int, Halt] | None) -> Result:
        runner = AttemptRunner(
            order.brief.source, self._events.put, fork_server_address=self.warm.address
        )
        try:
            runner.start(order)
            return self._collect(order, runner, halt)
        finally:
            runner.close()

    def _collect(
        self, order: AttemptOrder, runner: AttemptRunner, halt: tuple[int, Halt] | None
    ) -> Result:
        reports: list[tuple[int, Mapping[str, float]]] = []
        used, told_at = None, 0.0
        usages: list[Usage] = []
        while True:
            event = self._events.get(timeout=180)
            if isinstance(event, AttemptEnded):
                return Result(event.ending, reports, used, order.directory, usages, told_at=told_at)
            if isinstance(event, Reported):
                reports.append((event.report.step, event.report.metrics))
                if halt is not None and event.report.step == halt[0]:
                    told_at = told_at or time.time()
                    runner.stop(order.attempt, halt[1])
            elif isinstance(event, ParametersUsed):
                used = event
            elif isinstance(event, Measured):
                usages.append(event.usage)
            else:
                assert isinstance(event, AttemptStarted)

    def checkpoint_dir_of(self, trial: int) -> Path:
        """Return the directory that a trial keeps from attempt to attempt."""
        return self._directory / "study" / "trials" / str(trial) / "checkpoint"

    def _write(self, text: str) -> Path:
        path = self._directory / self._file
        path.write_text(textwrap.dedent(text))
        return path
