"""The choice of devices for each trial in a run: connects `split` with its plan and its ledger."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..core.messages import Event
from ..core.scaling.sizes import TrialSizes
from ..core.scaling.split import StepTimes
from ..executors.base import Executor
from ..samplers.registry import learns
from ..storage.scaling_file import MEASURING
from .compose import OpenStudy, brief
from .plan import RunPlan
from .split import FACT, Note, Splitter, measure_split, mode_of, stored_curve
from .stop_requests import StopRequests
from .workforce import Workforce


def splitter_for(
    plan: RunPlan, study: OpenStudy, *, trials_left: Callable[[], int], note: Note
) -> Splitter | None:
    """Return what chooses the devices of each trial; None if the user gave their number.

    Args:
        plan: The run's plan.
        study: The study.
        trials_left: Returns how many trials still run or could begin.
        note: Is told of each choice.
    """
    settings = plan.settings
    if not settings.chooses_split:
        return None
    curve = stored_curve(study.ledger.facts)
    return Splitter(
        StepTimes() if curve is None else StepTimes.of(curve, mode_of(settings)),
        "core" if curve is None else curve.device,
        sizes=TrialSizes.of(plan.layout.resources),
        trials_left=lambda: None if settings.budget_trials is None else trials_left(),
        learns=learns(settings.search),
        note=note,
    )


def measured_split(
    splitter: Splitter | None,
    plan: RunPlan,
    study: OpenStudy,
    workers: Workforce,
    *,
    executor: Executor,
    trials_left: Callable[[], int],
    requests: StopRequests,
    note: Note,
) -> Sequence[Event]:
    """Measure the model's steps unless an earlier run did, and tell the splitter.

    Args:
        splitter: Takes the step times; None if the user gave the number of devices.
        plan: The run's plan.
        study: The study.
        workers: Its workers.
        executor: Open.
        trials_left: Returns how many trials still run or could begin.
        requests: Asked regularly for events from outside.
        note: Takes lines for the user.

    Returns:
        The events that the study's loop must still handle.
    """
    if splitter is None or stored_curve(study.ledger.facts) is not None:
        return ()
    mode, cluster, usual = mode_of(plan.settings), workers.cluster, plan.layout.resources
    study.ledger.set_facts({MEASURING: True})
    curve, earlier = measure_split(
        executor,
        study.directory,
        brief=brief(plan, study, workers),
        space=plan.space,
        sizes=TrialSizes.of(usual),
        mode=mode,
        backend=plan.backend,
        required_workers=cluster.required_workers,
        scale=lambda: cluster.scale_to({usual: trials_left()}, executor.workers),
        requests=requests,
        note=note,
    )
    measured = {} if curve is None else {FACT: curve.to_json()}
    study.ledger.set_facts({**measured, MEASURING: False})
    if curve is None:
        return earlier
    times = StepTimes.of(curve, mode)
    if not times.seconds:
        why = curve.failures[0].reason if curve.failures else "the time was up"
        note(f"no training step could be measured ({why}); each trial gets 1 {curve.device}")
    splitter.learn(times, curve.device)
    return earlier
