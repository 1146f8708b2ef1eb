"""Number of devices of each trial if hptune chooses it: `--gpus-per-trial auto`.

The model's steps are measured once, when the study begins. Then the split with which the study ends
soonest is chosen, and chosen again whenever workers join or leave. Each choice is an event, so a
replay reads it.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from ..config.settings import StudySettings
from ..core.data_parallel import BatchRule
from ..core.messages import DecideSplit
from ..core.notice import Notice, Notify
from ..core.resources import Resources
from ..core.scheduling.cluster import ClusterState
from ..storage.directory import StudyDirectory
from ..storage.ledger import StudyFacts
from ..text import plural
from .curve import Failure, ScalingCurve
from .file import write_curves
from .measurer import MeasuringPlan, measure_curve
from .points import Mode
from .sizes import TrialSizes
from .split import SplitTimes, choose_split, split_text
from .step_runner import StepRunner

FACT: Final = "scaling"
"""Name of the ledger's fact that holds the measured curve."""

_ROUNDS = 2
_SECONDS = 120.0
"""Longest time to measure."""
_STEPS_SECONDS = 0.5
FIRST_NUMBER = 1_000_000
"""Trial number of the first measurement. It is larger than that of any trial, so a measurement
never uses a trial's directory."""
_MEMORY_MARGIN = 1.25
"""Memory that a trial asks for, relative to what its measured steps used: it also validates, and
writes checkpoints."""


def mode_of(settings: StudySettings) -> Mode:
    """Return what stays the same when a trial gets more devices."""
    return Mode.STRONG if settings.batch_rule is BatchRule.GLOBAL else Mode.WEAK


class Splitter:
    """Answers how many devices each trial gets from now on.

    Args:
        times: Step times; has at least one.
        device: What a device is: "core", "GPU" or "process".
        sizes: What trials hold. Where it names no memory, they ask for what was measured.
        learns: Whether the search learns from its trials.
        note: Takes a line on each choice.
    """

    def __init__(
        self,
        times: SplitTimes,
        device: str,
        *,
        sizes: TrialSizes,
        learns: bool,
        note: Notify,
    ) -> None:
        self._times = times
        self._device = device
        self._sizes = sizes
        self._learns = learns
        self._note = note
        self._devices = 0

    def __call__(self, question: DecideSplit) -> tuple[Resources, str]:
        """Return what a trial asks for, and what was chosen and why; no words for no change."""
        cluster_state = ClusterState()
        for number, capacity in enumerate(question.workers):
            if capacity.gpus or self._device != "GPU":
                cluster_state.add(str(number), "", capacity)

        def at_once(devices: int) -> int:
            return _slots(cluster_state, self._resources(devices, cluster_state))

        split = choose_split(self._times, at_once, question.trials_left, learns=self._learns)
        if split is None or (
            split.devices == self._devices and _slots(cluster_state, question.usual)
        ):
            return question.usual, ""
        resources = self._resources(split.devices, cluster_state)
        assert resources is not None, "a size that was measured is a size"
        self._devices = split.devices
        words = split_text(split, self._times, self._device)
        self._note(Notice(words))
        return resources, words

    def _resources(self, devices: int, cluster_state: ClusterState) -> Resources | None:
        wanted = self._sizes.on(devices, has_gpus=self._device == "GPU")
        measured = self._times.memory_bytes.get(devices)
        if wanted is None or wanted.memory_bytes or measured is None:
            return wanted
        # A size that could be measured fits the largest worker, whatever the margin.
        most = cluster_state.most_memory_bytes or measured
        memory = max(measured, min(int(_MEMORY_MARGIN * measured), most))
        return replace(wanted, memory_bytes=memory)


def _slots(cluster_state: ClusterState, wanted: Resources | None) -> int:
    """Return how many trials the workers hold at once."""
    return (
        0
        if wanted is None
        else sum(cluster_state.slots_when_empty(each, wanted) for each in cluster_state)
    )


def measure_split(
    runner: StepRunner,
    directory: StudyDirectory,
    *,
    mode: Mode,
    backend: str,
    required_workers: Callable[[], int],
    scale: Callable[[], Sequence[Notice]],
    note: Notify,
) -> ScalingCurve | None:
    """Measure the steps of the default configuration before the first trial.

    It waits for as many workers as the first trial does, and measures all numbers of devices that
    they hold.

    Args:
        runner: Numbers its attempts from `FIRST_NUMBER` on. Later, it knows the events for the
            study's loop.
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
        len(runner.workers) < required_workers() or runner.resources(1) is None
    ):
        runner.look()
        for notice in scale():
            note(notice)
    try:
        curve = None if runner.wants_stop else _curve(runner, mode, backend, note)
    finally:
        for number in runner.numbers:
            shutil.rmtree(directory.trial(number), ignore_errors=True)
    if runner.wants_stop or curve is None:
        return None
    if not curve.samples and not curve.failures:
        line = (
            "no training step could be measured in time, or its workers left; each trial gets 1 "
            f"{curve.device}, and hptune resume measures again"
        )
        note(Notice(line))
        return None
    write_curves(directory.path, [curve])
    return curve


def _curve(runner: StepRunner, mode: Mode, backend: str, note: Notify) -> ScalingCurve:
    """Measure steps at each number of devices."""
    sizes = _sizes(runner)
    others = ", ".join(map(str, sizes[:-1]))
    shown = f"{others} and " if others else ""
    shown += plural(sizes[-1], runner.device)
    own = "" if runner.device == "process" else ", a process for each"
    note(Notice(f"measuring training steps on {shown}{own}, to choose those of each trial …"))

    def divides(devices: int, batch: int) -> bool:
        return mode is Mode.WEAK or batch % devices == 0

    plan = MeasuringPlan(
        devices=sizes,
        points=lambda batch: [mode.point(batch, each) for each in sizes if divides(each, batch)],
        repeats=_ROUNDS,
        seconds=_SECONDS,
        steps_seconds=_STEPS_SECONDS,
    )
    curve, _ = measure_curve(runner, plan, backend=backend, told=lambda _point, _result: None)
    for each in sizes:
        if not divides(each, curve.batch):
            reason = f"the batch of {curve.batch} does not divide by {each}"
            curve = curve.with_result(Failure(mode.point(curve.batch, each), reason))
    for failure in curve.failures:
        note(
            Notice(f"leaving out {plural(failure.point.devices, runner.device)}: {failure.reason}")
        )
    return curve


def _sizes(runner: StepRunner) -> tuple[int, ...]:
    """Return the powers of two that the workers can hold on one node."""
    sizes = [1]
    while (wanted := runner.resources(2 * sizes[-1])) is not None and wanted.nodes == 1:
        sizes.append(2 * sizes[-1])
    return tuple(sizes)


def stored_curve(facts: StudyFacts) -> ScalingCurve | None:
    """Return the curve that an earlier run of the study measured; None if none did."""
    plain = facts.get(FACT)
    return None if plain is None else ScalingCurve.from_json(plain)
