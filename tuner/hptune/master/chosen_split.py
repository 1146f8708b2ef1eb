"""The devices of each trial in a run: connects `scaling.splitter` with its plan and ledger."""

from __future__ import annotations

from collections.abc import Sequence

from ..config.plugins import find_sampler
from ..core.messages import DecideSplit, Event
from ..core.notice import Notice, Notify
from ..core.resources import Resources
from ..executors.base import Executor
from ..scaling.curve import ScalingCurve
from ..scaling.points import Mode
from ..scaling.sizes import TrialSizes
from ..scaling.split import SplitTimes
from ..scaling.splitter import (
    FACT,
    FIRST_NUMBER,
    Splitter,
    measure_split,
    mode_of,
    stored_curve,
)
from ..scaling.step_runner import StepRunner
from .compose import Run, brief
from .stop_requests import StopRequests


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
        """Choose from now on, by the model's steps; they are measured unless an earlier run did.

        Args:
            executor: Open.
            requests: Asked regularly for events from outside.

        Returns:
            The events that the study's loop must still handle.
        """
        mode = mode_of(self._run.plan.settings)
        curve, seen = stored_curve(self._run.ledger.facts), list[Event]()
        if curve is None:
            curve, seen = self._measure(mode, executor, requests)
        if curve is not None and (times := SplitTimes.of(curve, mode)).seconds:
            self._splitter = Splitter(
                times,
                curve.device,
                sizes=TrialSizes.of(self._run.plan.layout.resources),
                learns=find_sampler(self._run.plan.settings).learns,
                note=self._note,
            )
        return seen

    def _measure(
        self, mode: Mode, executor: Executor, requests: StopRequests
    ) -> tuple[ScalingCurve | None, list[Event]]:
        """Return the curve, None if it could not be measured, and the events that were seen."""
        run, plan, cluster = self._run, self._run.plan, self._run.workers.cluster
        usual = plan.layout.resources
        run.ledger.set_facts({"measuring": True})
        sizes = TrialSizes.of(usual)
        runner = StepRunner(
            executor,
            brief=brief(run),
            space=plan.space,
            sizes=sizes,
            first_number=FIRST_NUMBER,
            requests=requests,
        )
        curve = measure_split(
            runner,
            run.directory,
            mode=mode,
            backend=plan.backend,
            required_workers=cluster.required_workers,
            scale=lambda: cluster.scale_to({usual: run.trials_to_run}, executor.workers),
            note=self._note,
        )
        measured = {} if curve is None else {FACT: curve.to_json()}
        run.ledger.set_facts({**measured, "measuring": False})
        if curve is not None and not SplitTimes.of(curve, mode).seconds:
            why = curve.failures[0].reason if curve.failures else "the time was up"
            self._note(
                Notice(
                    f"no training step could be measured ({why}); each trial gets 1 {curve.device}"
                )
            )
        return curve, runner.seen
