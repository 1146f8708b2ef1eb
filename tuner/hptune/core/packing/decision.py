"""Decides the packing plan from what trials were measured to use.

Trials share cores by the processor time that they use, and GPUs by the memory that they hold
there. The number on a device grows in steps, each only after trials were seen to train at the step
before, and only as long as the device does more work in total.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from dataclasses import replace

from ..packing_plan import (
    CO_LOCATED,
    MIN_OBSERVED,
    Estimate,
    PackingEvidence,
    PackingPlan,
    SharingPlan,
    Training,
    trials_that_fill_a_core,
)
from ..resources import Amount, size
from ..scheduling.worker import MOST_ON_A_GPU
from ..trial import Params
from .forecast import fit

_GROWTH = {Amount.CPUS: 4, Amount.GPUS: 2}
"""The factor of one step: larger for cores, since it is known how busy trials keep them."""

_LATEST = 16
"""Trials that determine how busy trials keep a core."""

_LEAST_MEMORY_SHARE = 0.1
"""Share of the largest worker's memory that the trials of a device hold, from which on the user is
told of it."""

_WORTHWHILE = 1.05
"""The factor by which more trials must do more work in total, since each takes longer."""


def decide(evidence: PackingEvidence) -> PackingPlan:
    """Return the plan that follows from the plan in force and the observations."""
    before, observations = evidence.plan, evidence.observations
    memory = _memory((observation.params, observation.memory_bytes) for observation in observations)
    gpu_memory = _memory(
        (observation.params, observation.gpu_memory_bytes) for observation in observations
    )
    cores = _sharing(Amount.CPUS, before.cores, evidence)
    gpus = _sharing(Amount.GPUS, before.gpus, evidence, gpu_memory=gpu_memory)
    plan = PackingPlan(memory, gpu_memory, cores, gpus, before.reason, before.advice)
    for device, old, new in (
        (Amount.CPUS, before.cores, cores),
        (Amount.GPUS, before.gpus, gpus),
    ):
        if new.is_held_back:
            plan = replace(plan, advice=_advice(device, new))
        if new.most != old.most or (new.is_held_back and not before.reason):
            reason = _reason(
                device, plan, evidence, is_less=new.most < min(old.most, evidence.limit)
            )
            plan = replace(plan, reason=reason)
    return plan


def _memory(values: Iterable[tuple[Params, int]]) -> Estimate | None:
    # A driver that does not know the processes of an attempt says that they hold nothing.
    known = [(params, float(held)) for params, held in values if held]
    return fit(known) if len(known) >= MIN_OBSERVED else None


def _sharing(
    device: Amount,
    before: SharingPlan,
    evidence: PackingEvidence,
    *,
    gpu_memory: Estimate | None = None,
) -> SharingPlan:
    trained = [
        (observation.params, observation.training)
        for observation in evidence.observations
        if observation.training is not None and observation.training.device is device
    ]
    if not trained:
        return _limited(before, evidence.limit)
    busy = fit([(_with_co_located(*each), max(0.01, each[1].busy)) for each in trained])
    shares = [busy.typical({**params, CO_LOCATED: 1.0}) for params, _ in trained[-_LATEST:]]
    known = replace(
        before, busy=busy, busy_range=(min(shares), statistics.median(shares), max(shares))
    )
    if device not in evidence.measured or evidence.settled.get(device, 0) < MIN_OBSERVED:
        return _limited(known, evidence.limit)
    if device is Amount.CPUS:
        carries = trials_that_fill_a_core(min(shares))
    else:  # without knowing what trials hold there, none is shared
        carries = 1 if gpu_memory is None else MOST_ON_A_GPU
    timed = [
        (_with_co_located(*each), seconds)
        for each in trained
        if (seconds := each[1].seconds_per_step)
    ]
    step_seconds = fit(timed) if timed else None
    return _stepped(device, known, step_seconds, carries=carries, limit=evidence.limit)


def _with_co_located(params: Params, training: Training) -> Params:
    return {**params, CO_LOCATED: training.co_located}


def _stepped(
    device: Amount, known: SharingPlan, step_seconds: Estimate | None, *, carries: int, limit: int
) -> SharingPlan:
    """Let more trials share a device, or fewer.

    Args:
        device: The kind of device.
        known: How trials share it now.
        step_seconds: The time of a step; None if unknown.
        carries: The number of trials that a device carries if they do not slow each other down.
        limit: The number that the search allows.
    """
    most = min(known.most, limit)
    best = _best_level(step_seconds, known.tried)
    more = min(_GROWTH[device] * most, carries)
    # That more trials did no more work is not forgotten because those observations are.
    may_try_again = not known.was_too_many or (
        step_seconds is not None and CO_LOCATED in step_seconds.depends_on
    )
    wanted = most
    if best < most:
        wanted = best
    elif more > max(most, known.tried):
        wanted = more
    elif more > most and best > most and may_try_again:
        wanted = min(more, best)
    return replace(
        known,
        most=min(wanted, limit),
        tried=max(known.tried, min(wanted, limit)),
        was_too_many=known.was_too_many or best < most,
        is_held_back=wanted > limit,
    )


def _limited(known: SharingPlan, limit: int) -> SharingPlan:
    if known.most <= limit:
        return known
    return replace(known, most=limit, is_held_back=True)


def _best_level(step_seconds: Estimate | None, tried: int) -> int:
    """Return the fewest trials with which a device does about as much as with any number tried."""
    done = {
        level: level / (step_seconds.typical({CO_LOCATED: float(level)}) if step_seconds else 1.0)
        for level in range(1, tried + 1)
    }
    most = max(done.values())
    return next(level for level in done if _WORTHWHILE * done[level] >= most)


def _reason(device: Amount, plan: PackingPlan, evidence: PackingEvidence, *, is_less: bool) -> str:
    is_gpu = device is Amount.GPUS
    sharing = plan.gpus if is_gpu else plan.cores
    device_name = "GPU" if is_gpu else "core"
    words = f"up to {sharing.most} trials share a {device_name}"
    if sharing.most == 1:
        words = f"1 trial per {device_name}"
    if is_less:
        words += " (with more, a device did no more work in total)"
    elif is_gpu and plan.gpu_memory is not None:
        words += f" (each holds about {size(plan.gpu_memory.usual_upper)} of its memory)"
    elif sharing.busy_range:
        least, _, most = (f"{each:.2g}" for each in sharing.busy_range)
        words += f" (each uses {least if least == most else f'{least} to {most}'} of it)"
    return words + _memory_words(plan.memory, evidence, trials=sharing.most)


def _memory_words(memory: Estimate | None, evidence: PackingEvidence, *, trials: int) -> str:
    """Return what each of some trials holds; empty if unknown, or too little to matter."""
    if memory is None or Amount.MEMORY not in evidence.measured:
        return ""
    if trials * memory.usual_upper < _LEAST_MEMORY_SHARE * evidence.most_memory_bytes:
        return ""
    words = f"; about {size(memory.usual_upper)} of memory each"
    names = memory.varies_with([each.params for each in evidence.observations])
    return words + (f", depending on {' and '.join(names)}" if names else "")


def _advice(device: Amount, sharing: SharingPlan) -> str:
    """Return how to run more at once; empty if most trials leave no room for more."""
    more = _GROWTH[device] * sharing.most
    if device is Amount.CPUS:
        more = min(more, sharing.trials_per_core() or more)
    if more <= sharing.most:
        return ""
    name, option = {
        Amount.GPUS: ("GPU", "--gpus-per-trial"),
        Amount.CPUS: ("core", "--cpus-per-trial"),
    }[device]
    return (
        f"more trials would fit on a {name}, but the search learns from earlier trials; "
        f"{option} {1 / more:.2g} runs more at once"
    )
