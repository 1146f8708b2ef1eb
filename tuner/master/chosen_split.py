"""The choice of devices for each trial in a run: connects `split` with its plan and its ledger."""

from __future__ import annotations

from collections.abc import Sequence

from ..core.messages import Event
from ..core.scaling.sizes import TrialSizes
from ..core.scaling.split import StepTimes
from ..executors.base import Executor
from ..samplers.registry import learns
from ..storage.scaling_file import MEASURING
from .compose import Run, brief
from .split import FACT, Note, Splitter, measure_split, mode_of, split_runner, stored_curve
from .stop_requests import StopRequests


class ChosenSplit:
    """Chooses the devices of each trial of a run; does nothing if the user gave their number.

    Args:
        run: The run.
        note: Takes lines for the user, such as each choice.
    """

    def __init__(self, run: Run, note: Note) -> None:
        self._run = run
        self._note = note
        self._is_opened = False
        self._mode = mode_of(run.plan.settings)
        self._curve = stored_curve(run.ledger.facts)
        self._splitter = self._make_splitter() if run.plan.settings.chooses_split else None

    def _make_splitter(self) -> Splitter:
        plan, curve = self._run.plan, self._curve
        has_end = plan.settings.budget_trials is not None
        return Splitter(
            StepTimes() if curve is None else StepTimes.of(curve, self._mode),
            "core" if curve is None else curve.device,
            sizes=TrialSizes.of(plan.layout.resources),
            trials_left=lambda: self._trials_left() if has_end else None,
            learns=learns(plan.settings.search),
            note=self._note,
        )

    def __call__(self, events: Sequence[Event]) -> Sequence[Event]:
        """Return the events, with the choice that follows from them."""
        if self._splitter is None:
            return events
        found = self._splitter(events)
        self._is_opened = True  # by the first event of the run
        return found

    def _trials_left(self) -> int:
        return self._run.trials_left if self._is_opened else self._run.trials_to_run

    def measured(self, executor: Executor, requests: StopRequests) -> Sequence[Event]:
        """Measure the model's steps, unless an earlier run did.

        Args:
            executor: Open.
            requests: Asked regularly for events from outside.

        Returns:
            The events that the study's loop must still handle.
        """
        if self._splitter is None or self._curve is not None:
            return ()
        run, plan, cluster = self._run, self._run.plan, self._run.workers.cluster
        usual = plan.layout.resources
        run.ledger.set_facts({MEASURING: True})
        sizes = TrialSizes.of(usual)
        runner = split_runner(
            executor, brief=brief(run), space=plan.space, sizes=sizes, requests=requests
        )
        curve = measure_split(
            runner,
            run.directory,
            mode=self._mode,
            backend=plan.backend,
            required_workers=cluster.required_workers,
            scale=lambda: cluster.scale_to({usual: run.trials_to_run}, executor.workers),
            note=self._note,
        )
        measured = {} if curve is None else {FACT: curve.to_json()}
        run.ledger.set_facts({**measured, MEASURING: False})
        if curve is None:
            return runner.seen
        times = StepTimes.of(curve, self._mode)
        if not times.seconds:
            why = curve.failures[0].reason if curve.failures else "the time was up"
            self._note(
                f"no training step could be measured ({why}); each trial gets 1 {curve.device}"
            )
        self._splitter.learn(times, curve.device)
        return runner.seen
