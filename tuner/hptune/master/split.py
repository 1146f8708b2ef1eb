"""Number of devices of each trial if hptune chooses it: `--gpus-per-trial auto`.

The model's steps are measured once, when the study begins. Then the split with which the study ends
soonest is chosen, and chosen again whenever workers join or leave. Each choice is an event, so a
replay reads it.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from ..config.settings import StudySettings
from ..core.attempt import Cause
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
from ..core.scaling.sizes import TrialSizes
from ..core.scaling.split import SplitTimes, choose_split, split_words
from ..core.scheduling.cluster import ClusterState
from ..core.space.space import SearchSpace
from ..core.trial import Direction, Goal
from ..executors.base import Executor
from ..storage.directory import StudyDirectory
from ..storage.ledger import StudyFacts
from ..storage.scaling_file import write_curves
from ..text import plural
from ..worker.orders import StudyBrief
from .step_runner import StepRunner

FACT: Final = "scaling"
"""Name of the ledger's fact that holds the measured curve."""

_ROUNDS = 2
_SECONDS = 120.0
"""Longest time to measure."""
_STEPS_SECONDS = 0.5
_FIRST_NUMBER = 1_000_000
"""Trial number of the first measurement. It is larger than that of any trial, so a measurement
never uses a trial's directory."""
_NOT_OF_THE_MODEL = (Cause.WORKER_LOST, Cause.RANK_LOST, Cause.STOPPED)
"""Causes that do not depend on the number of devices; the next round measures it again."""
_MEMORY_MARGIN = 1.25
"""Memory that a trial asks for, relative to what its measured steps used: it also validates, and
writes checkpoints."""

Note = Callable[[str], None]


def mode_of(settings: StudySettings) -> Mode:
    """Return what stays the same when a trial gets more devices."""
    return Mode.STRONG if settings.batch_rule is BatchRule.GLOBAL else Mode.WEAK


class Splitter:
    """Adds to the events of a study how many devices each trial gets from then on.

    Args:
        times: Step times; no choice follows if it has no times.
        device: What a device is: "core", "GPU" or "process".
        sizes: What trials hold. Where it names no memory, they ask for what was measured.
        trials_left: Returns how many trials are left to start; None without an end.
        learns: Whether the search learns from its trials.
        note: Takes a line on each choice.
    """

    def __init__(
        self,
        times: SplitTimes,
        device: str,
        *,
        sizes: TrialSizes,
        trials_left: Callable[[], int | None],
        learns: bool,
        note: Note,
    ) -> None:
        self._times = times
        self._device = device
        self._sizes = sizes
        self._trials_left = trials_left
        self._learns = learns
        self._note = note
        self._places = ClusterState()
        self._devices = 0
        self._chosen: Resources | None = None

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
        left = self._trials_left()
        split = choose_split(self._times, self._at_once, left, learns=self._learns)
        if split is None or (split.devices == self._devices and self._rooms(self._chosen)):
            return events
        resources = self._resources(split.devices)
        assert resources is not None, "a size that was measured is a size"
        self._devices, self._chosen = split.devices, resources
        words = split_words(split, self._times, self._device)
        self._note(words)
        chosen = SplitChosen(events[first].at, resources, words)
        return [*events[:first], chosen, *events[first:]]

    def _at_once(self, devices: int) -> int:
        """Return how many trials of a size the workers hold at once."""
        return self._rooms(self._resources(devices))

    def _rooms(self, wanted: Resources | None) -> int:
        if wanted is None:
            return 0
        return sum(self._places.rooms_when_empty(each, wanted) for each in self._places)

    def _resources(self, devices: int) -> Resources | None:
        wanted = self._sizes.on(devices, has_gpus=self._device == "GPU")
        measured = self._times.memory_bytes.get(devices)
        if wanted is None or wanted.memory_bytes or measured is None:
            return wanted
        # A size that could be measured fits the largest worker, whatever the margin.
        most = self._places.most_memory_bytes or measured
        memory = max(measured, min(int(_MEMORY_MARGIN * measured), most))
        return replace(wanted, memory_bytes=memory)

    def _take_in(self, event: Event) -> None:
        match event:
            case WorkerJoined() if event.capacity.gpus or self._device != "GPU":
                self._places.add(event.worker, event.node, event.capacity)
            case WorkerLeaving(worker=worker) | WorkerLeft(worker=worker) if worker in self._places:
                self._places.remove(worker)


def split_runner(
    executor: Executor,
    *,
    brief: StudyBrief,
    space: SearchSpace,
    sizes: TrialSizes,
    requests: Callable[[], Sequence[Event]],
) -> StepRunner:
    """Return what runs the steps of a study's default configuration, see `StepRunner`."""
    limits = replace(
        brief.limits,
        epochs=1,
        checkpoint_every=0,
        master_grace_seconds=0.0,
        data_parallel=DataParallel(brief.limits.data_parallel.choice),
    )
    goals = Goals((Goal(STEP_SECONDS, Direction.MIN),))
    return StepRunner(
        executor,
        brief=replace(brief, goals=goals, limits=limits),
        space=space,
        sizes=sizes,
        first_number=_FIRST_NUMBER,
        requests=requests,
    )


def measure_split(
    runner: StepRunner,
    directory: StudyDirectory,
    *,
    mode: Mode,
    backend: str,
    required_workers: Callable[[], int],
    scale: Callable[[], Sequence[str]],
    note: Note,
) -> ScalingCurve | None:
    """Measure the steps of the default configuration before the first trial.

    It waits for as many workers as the first trial does, and measures all numbers of devices that
    they hold.

    Args:
        runner: Made by `split_runner`. Later, it knows the events for the study's loop.
        directory: The study's directory.
        mode: What stays the same when a trial gets more devices.
        backend: Keras's backend.
        required_workers: Returns how many workers there must be before the first trial.
        scale: Finds workers, and returns lines for the user.
        note: Takes lines for the user.

    Returns:
        The curve; None if the study is to stop, or if neither a time nor a failure of the model is
        known.
    """
    while not runner.wants_stop and (
        len(runner.places) < required_workers() or runner.resources(1) is None
    ):
        runner.look()
        for line in scale():
            note(line)
    try:
        curve = None if runner.wants_stop else _measure(runner, mode, backend, note)
    finally:
        for number in runner.numbers:
            shutil.rmtree(directory.trial(number), ignore_errors=True)
    if runner.wants_stop or curve is None:
        return None
    if not curve.samples and not curve.failures:
        note(
            "no training step could be measured in time, or its workers left; each trial gets 1 "
            f"{curve.device}, and hptune resume measures again"
        )
        return None
    write_curves(directory.path, [curve])
    return curve


def _measure(runner: StepRunner, mode: Mode, backend: str, note: Note) -> ScalingCurve:
    """Measure steps at each number of devices, twice."""
    sizes = _sizes(runner)
    others = ", ".join(map(str, sizes[:-1]))
    shown = f"{others} and " if others else ""
    shown += plural(sizes[-1], runner.device)
    own = "" if runner.device == "process" else ", a process for each"
    note(f"measuring training steps on {shown}{own}, to choose those of each trial …")
    curve = ScalingCurve(backend=backend, device=runner.device, batch=0, devices=sizes)
    until = time.monotonic() + _SECONDS
    for number in range(_ROUNDS):
        for devices in sizes if number % 2 == 0 else reversed(sizes):
            if runner.wants_stop or time.monotonic() > until:
                return curve
            known = len(curve.failures)
            curve = _with_run(runner, curve, devices, mode, until)
            for failure in curve.failures[known:]:
                note(f"leaving out {plural(devices, runner.device)}: {failure.reason}")
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
    else:
        point = Point(devices, mode.batch_per_device(curve.batch, devices))
        request = StepRequest(point.batch_per_device, seconds=_STEPS_SECONDS)
    if curve.failure(point) is not None:
        return curve
    if mode is Mode.STRONG and curve.batch % devices:
        reason = f"the batch of {curve.batch} does not divide by {devices}"
        return curve.with_result(Failure(point, reason))
    result = runner.run(devices, request, until)
    if isinstance(result, Sample):
        batch = curve.batch or result.point.batch
        return replace(curve.with_result(result), batch=batch)
    if result.cause in _NOT_OF_THE_MODEL:
        return curve
    return curve.with_result(Failure.of(point, result))


def stored_curve(facts: StudyFacts) -> ScalingCurve | None:
    """Return the curve that an earlier run of the study measured; None if none did."""
    plain = facts.get(FACT)
    return None if plain is None else ScalingCurve.from_json(plain)
