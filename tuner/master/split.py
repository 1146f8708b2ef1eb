"""Devices of each trial where the user leaves them to hptune: `--gpus-per-trial auto`.

The model's steps are measured once, when the study begins. Then the split with which the study ends
soonest is chosen, and chosen again whenever workers join or leave. Each choice is an event, so a
replay reads it.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ..clusters.base import Cluster
from ..config.model_file import Found
from ..config.parallel_trials import carrier_of
from ..config.settings import StudySettings
from ..core.data_parallel import BatchRule, DataParallel
from ..core.goals import Goals
from ..core.messages import (
    Event,
    SplitChosen,
    WorkerJoined,
    WorkerLeaving,
    WorkerLeft,
)
from ..core.resources import Resources
from ..core.scaling.curve import Failure, Sample, ScalingCurve
from ..core.scaling.points import STEP_SECONDS, Mode, Point, StepRequest
from ..core.scaling.split import Pool, StepTimes, choose_split, split_words
from ..core.space.space import SearchSpace
from ..core.trial import Cause, Direction, Ending, Goal
from ..errors import UsageError
from ..executors.base import Executor
from ..storage.directory import StudyDirectory
from ..storage.scaling_file import write_curves
from ..worker.orders import StudyBrief
from .step_runner import StepRunner

FACT = "scaling"
"""Name of the ledger's fact that holds the measured curve."""

_ROUNDS = 2
_SECONDS = 120.0
"""Longest time to measure."""
_STEPS_SECONDS = 0.5
_FIRST_NUMBER = 1_000_000
"""Number of the first measurement among the trials' directories: no study has so many trials."""
_TOO_LARGE = (Cause.OUT_OF_MEMORY, Cause.DEVICE_OUT_OF_MEMORY)
_NOT_OF_THE_MODEL = (Cause.WORKER_LOST, Cause.RANK_LOST, Cause.STOPPED)
"""Ends that say nothing of a number of devices, which the next round may measure."""

Note = Callable[[str], None]


def check_splits(found: Found, settings: StudySettings) -> None:
    """Check that trials can train on several devices.

    Raises:
        UsageError: The user's code cannot be measured or divided.
    """
    if not settings.chooses_split:
        return
    if not found.is_keras:
        raise UsageError(
            f"{found.entry}(hp, trial) trains with a loop of its own, whose steps hptune cannot "
            "measure; give a number instead of auto, such as --processes-per-trial 2"
        )
    carrier_of(found, Resources(processes=2), settings)


def mode_of(settings: StudySettings) -> Mode:
    """Return what trials on more devices keep: their batch, or that of each device."""
    return Mode.STRONG if settings.batch_rule is BatchRule.GLOBAL else Mode.WEAK


class Splitter:
    """Adds to the events of a study how many devices each trial gets from then on.

    Args:
        times: Step times; empty until they are measured.
        device: What a device is: "core" or "GPU".
        trials_left: Returns how many trials are left to start; None without an end.
        learns: Whether the search learns from its trials.
        note: Is told of each choice.
        memory_bytes: Host memory of a trial; 0 means that memory is not counted.
    """

    def __init__(
        self,
        times: StepTimes,
        device: str,
        *,
        trials_left: Callable[[], int | None],
        learns: bool,
        note: Note,
        memory_bytes: int = 0,
    ) -> None:
        self._times = times
        self._memory_bytes = memory_bytes
        self._device = device
        self._trials_left = trials_left
        self._learns = learns
        self._note = note
        self._workers: dict[str, int] = {}
        self._devices = 0

    def learn(self, times: StepTimes, device: str) -> None:
        """Choose by these step times from now on."""
        self._times, self._device = times, device

    def __call__(self, events: Sequence[Event]) -> Sequence[Event]:
        """Return the events, with a choice before the first one that changes the pool.

        It comes before, so that nothing is started there by the old choice.
        """
        changing = (WorkerJoined, WorkerLeaving, WorkerLeft)
        first = next((i for i, each in enumerate(events) if isinstance(each, changing)), None)
        if first is None or not self._times.seconds:
            return events
        for event in events:
            self._take_in(event)
        pool = Pool(tuple(self._workers.values()))
        left = self._trials_left()
        split = choose_split(self._times, pool, left, learns=self._learns)
        if split is None or split.devices == self._devices:
            return events
        self._devices = split.devices
        words = split_words(split, self._times, self._device)
        self._note(words)
        resources = Resources(processes=split.devices, memory_bytes=self._memory_bytes)
        chosen = SplitChosen(events[first].at, resources, words)
        return [*events[:first], chosen, *events[first:]]

    def _take_in(self, event: Event) -> None:
        match event:
            case WorkerJoined(worker=worker, capacity=capacity):
                devices = capacity.gpus if self._device == "GPU" else capacity.cpus
                self._workers[worker] = len(devices)
            case WorkerLeaving(worker=worker) | WorkerLeft(worker=worker):
                self._workers.pop(worker, None)


def measure_split(
    executor: Executor,
    cluster: Cluster,
    directory: StudyDirectory,
    *,
    brief: StudyBrief,
    space: SearchSpace,
    mode: Mode,
    backend: str,
    requests: Callable[[], Sequence[Event]],
    note: Note,
) -> tuple[ScalingCurve | None, Sequence[Event]]:
    """Measure the steps of the default configuration before the first trial.

    Args:
        executor: Open.
        cluster: Where its workers come from.
        directory: The study's directory.
        brief: What the study's attempts are told.
        space: The search space.
        mode: What trials on more devices keep.
        backend: Keras's backend.
        requests: Asked regularly for events from outside.
        note: Takes lines for the user.

    Returns:
        The curve, and the events that the study's loop has yet to see. No curve if the study is to
        stop, or if neither a time nor a failure of the model is known.
    """
    limits = replace(
        brief.limits,
        epochs=1,
        checkpoint_every=0,
        master_grace_seconds=0.0,
        data_parallel=DataParallel(brief.limits.data_parallel.choice),
    )
    goals = Goals((Goal(STEP_SECONDS, Direction.MIN),))
    runner = StepRunner(
        executor,
        brief=replace(brief, goals=goals, limits=limits),
        space=space,
        first_number=_FIRST_NUMBER,
        requests=requests,
    )
    while not runner.is_told and runner.resources(1) is None:
        runner.look()
        for line in cluster.scale_to({Resources(): 1}, executor.workers):
            note(line)
    try:
        curve = None if runner.is_told else _measure(runner, mode, backend, note)
    finally:
        for number in runner.numbers:
            shutil.rmtree(directory.trial(number), ignore_errors=True)
    if runner.is_told or curve is None:
        return None, runner.seen
    if not curve.samples and not curve.failures:
        note(
            "no training step could be measured in time, or its workers left; each trial gets 1 "
            f"{curve.device}, and hptune resume measures again"
        )
        return None, runner.seen
    write_curves(directory.path, [curve])
    return curve, runner.seen


def _measure(runner: StepRunner, mode: Mode, backend: str, note: Note) -> ScalingCurve:
    """Measure steps at each number of devices, twice."""
    sizes = _sizes(runner)
    shown = " and ".join(filter(None, (", ".join(map(str, sizes[:-1])), str(sizes[-1]))))
    note(f"measuring training steps on {shown} {runner.device}s, to choose those of each trial …")
    curve = ScalingCurve(backend=backend, device=runner.device, batch=0, devices=sizes)
    until = time.monotonic() + _SECONDS
    for number in range(_ROUNDS):
        for devices in sizes if number % 2 == 0 else reversed(sizes):
            if runner.is_told or time.monotonic() > until:
                return curve
            curve = _with_run(runner, curve, devices, mode, until)
    return curve


def _sizes(runner: StepRunner) -> tuple[int, ...]:
    """Return the powers of two that the workers can hold on one node."""
    sizes = [1]
    while (wanted := runner.resources(2 * sizes[-1])) is not None and wanted.nodes == 1:
        sizes.append(2 * sizes[-1])
    return tuple(sizes)


def _with_run(
    runner: StepRunner, curve: ScalingCurve, devices: int, mode: Mode, until: float
) -> ScalingCurve:
    """Return the curve with one more run; a size that does not divide the batch is left out."""
    if not curve.batch:
        request = StepRequest(seconds=_STEPS_SECONDS)
        point = Point(devices, 0)
    elif mode is Mode.STRONG and curve.batch % devices:
        return curve
    else:
        point = Point(devices, mode.batch_per_device(curve.batch, devices))
        request = StepRequest(point.batch_per_device, seconds=_STEPS_SECONDS)
    if curve.failure(point) is not None:
        return curve
    result = runner.run(devices, request, until)
    if isinstance(result, Sample):
        samples = (*curve.samples, result)
        return replace(curve, batch=curve.batch or result.point.batch, samples=samples)
    if result.cause in _NOT_OF_THE_MODEL:
        return curve
    return replace(curve, failures=(*curve.failures, _failure(point, result)))


def _failure(point: Point, ending: Ending) -> Failure:
    is_too_large = ending.cause in _TOO_LARGE
    return Failure(point, "out of memory" if is_too_large else ending.reason, is_too_large)


def stored_curve(facts: Mapping[str, Any]) -> ScalingCurve | None:
    """Return the curve that an earlier run of the study measured; None if none did."""
    plain = facts.get(FACT)
    return None if plain is None else ScalingCurve.from_json(plain)
