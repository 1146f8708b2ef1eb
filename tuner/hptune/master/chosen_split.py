"""The devices of each trial in a run, if hptune chooses their number: `--gpus-per-trial auto`.

The model's steps are measured once, when the study begins. Then the split with which the study ends
soonest is chosen, and chosen again whenever workers join or leave. Each choice is an event, so a
replay reads it.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Final

from ..core.data_parallel import BatchRule
from ..core.kinds import enumerated
from ..core.messages import DecideSplit, Event
from ..core.notice import Notice, Notify
from ..core.resources import Resources
from ..executors.base import Executor
from ..scaling.curve import Failure, Mode, ScalingCurve, write_curves
from ..scaling.measurer import MeasuringPlan, measure_curve
from ..scaling.split import Splitter, SplitTimes
from ..scaling.step_runner import StepRunner, TrialSizes
from ..storage.directory import StudyDirectory
from ..text import plural
from .compose import Run, brief
from .stop_requests import StopRequests

_FACT: Final = "scaling"
"""Name of the ledger's fact that holds the measured curve."""
_ROUNDS = 2
_SECONDS = 120.0
"""Longest time to measure."""
_STEPS_SECONDS = 0.5
FIRST_NUMBER = 1_000_000
"""Trial number of the first measurement. It is larger than that of any trial, so a measurement
never uses a trial's directory."""


class ChosenSplit:
    """Chooses the devices of each trial of a run.

    Args:
        run: The run.
        note: Takes lines for the user, such as each choice.
    """

    def __init__(self, run: Run, note: Notify) -> None:
        self._run = run
        self._note = note
        self._splitter: Splitter | None = None

    @property
    def is_known(self) -> bool:
        """Whether there are times to choose by."""
        return self._splitter is not None

    def __call__(self, question: DecideSplit) -> tuple[Resources, str]:
        """Return what a trial asks for from now on, and why."""
        assert self._splitter is not None, "the engine asks only if the times are known"
        return self._splitter(question)

    def measured(self, executor: Executor, requests: StopRequests) -> Sequence[Event]:
        """Choose from now on, by the model's steps.

        They are measured unless an earlier run did so for such trials, on workers of such a kind.

        Args:
            executor: Open.
            requests: Asked regularly for events from outside.

        Returns:
            The events that the study's loop must still handle.
        """
        settings, known = self._run.plan.settings, self._run.ledger.facts.get(_FACT)
        mode = Mode.STRONG if settings.batch_rule is BatchRule.GLOBAL else Mode.WEAK
        sizes, seen = TrialSizes.of(self._run.plan.layout.resources), list[Event]()
        if known is None or known.get("of", self._of) != self._of:
            curve, seen = self._measure(mode, sizes, executor, requests)
        else:
            curve = ScalingCurve.from_json(known)
        if curve is not None and (times := SplitTimes.of(curve, mode)).seconds:
            learns = self._run.plan.asked.sampler.learns
            self._splitter = Splitter(
                times, curve.device, sizes=sizes, learns=learns, note=self._note
            )
        return seen

    @property
    def _of(self) -> dict[str, object]:
        """What is measured: what a trial holds, and on which workers."""
        plan = self._run.plan
        held = asdict(TrialSizes.of(plan.layout.resources))
        return {"held": held, "on": [plan.settings.cluster, plan.settings.slurm]}

    def _measure(
        self, mode: Mode, sizes: TrialSizes, executor: Executor, requests: StopRequests
    ) -> tuple[ScalingCurve | None, list[Event]]:
        """Return the curve, None if it could not be measured, and the events that were seen."""
        run, plan, cluster = self._run, self._run.plan, self._run.workers.cluster
        run.ledger.set_facts({"measuring": True})
        runner = StepRunner(
            executor,
            brief=brief(run),
            space=plan.space,
            sizes=sizes,
            first_number=FIRST_NUMBER,
            requests=requests,
        )
        wanted = {plan.layout.resources: run.trials_to_run}

        def scale() -> None:
            cluster.scale_to(wanted, executor.workers)
            for notice in cluster.notices():
                self._note(notice)

        curve = measure_split(
            runner,
            run.directory,
            mode=mode,
            backend=plan.resolved.code.backend,
            required_workers=cluster.required_workers,
            scale=scale,
            note=self._note,
        )
        measured = {} if curve is None else {_FACT: {**curve.to_json(), "of": self._of}}
        run.ledger.set_facts({**measured, "measuring": False})
        if curve is not None and not SplitTimes.of(curve, mode).seconds:
            why = curve.failures[0].reason if curve.failures else "the time was up"
            line = f"no training step could be measured ({why}); each trial gets 1 {curve.device}"
            self._note(Notice(line))
        return curve, runner.seen


def measure_split(
    runner: StepRunner,
    directory: StudyDirectory,
    *,
    mode: Mode,
    backend: str,
    required_workers: Callable[[], int],
    scale: Callable[[], None],
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
        scale: Finds workers.
        note: Takes lines for the user.

    Returns:
        The curve; None if the study is to stop, or if neither a time nor a failure of the model is
        known.
    """
    while not runner.wants_stop and (
        len(runner.workers) < required_workers() or runner.resources(1) is None
    ):
        runner.look()
        scale()
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
    shown = enumerated(*map(str, sizes[:-1]), plural(sizes[-1], runner.device))
    own = "" if runner.device == "process" else ", a process for each"
    own += "" if runner.cluster_state.gpus else " (no worker has a GPU)"
    note(Notice(f"measuring training steps on {shown}{own}, to choose those of each trial …"))

    plan = MeasuringPlan(
        devices=sizes,
        modes=(mode,),
        repeats=_ROUNDS,
        seconds=_SECONDS,
        steps_seconds=_STEPS_SECONDS,
        is_for_trials=True,
    )
    curve, _ = measure_curve(runner, plan, backend=backend, on_result=lambda _point, _result: None)
    for size in sizes:
        if not plan.can_divide(curve.batch, size):
            reason = f"the batch of {curve.batch} does not divide by {size}"
            curve = curve.with_result(Failure(mode.point(curve.batch, size), reason))
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
