"""A run whose trials get as many devices as end the study soonest: what `split` needs from it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..core.messages import Event
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
    """Return what chooses the devices of each trial; None if the user has.

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
        trials_left=lambda: None if settings.budget_trials is None else trials_left(),
        learns=learns(settings.search),
        note=note,
        memory_bytes=plan.layout.resources.memory_bytes,
    )


def measured_split(
    splitter: Splitter | None,
    plan: RunPlan,
    study: OpenStudy,
    workers: Workforce,
    *,
    executor: Executor,
    requests: StopRequests,
    note: Note,
) -> Sequence[Event]:
    """Measure the model's steps unless an earlier run did, and tell the splitter.

    Returns:
        The events that the study's loop has yet to see.
    """
    if splitter is None or stored_curve(study.ledger.facts) is not None:
        return ()
    mode = mode_of(plan.settings)
    study.ledger.set_facts({MEASURING: True})
    curve, earlier = measure_split(
        executor,
        workers.cluster,
        study.directory,
        brief=brief(plan, study, workers),
        space=plan.space,
        mode=mode,
        backend=plan.backend,
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
