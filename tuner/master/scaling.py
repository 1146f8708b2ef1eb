"""Measure how a model scales: short attempts of some steps each, one at a time.

The attempts run as those of a study do: on placements of the same workers, by the same executor,
ranks and strategies. There is no ledger, no search and no retry.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..clusters.base import Cluster
from ..config.model_file import Found
from ..config.settings import StudySettings
from ..core.goals import Goals
from ..core.messages import (
    AttemptEnded,
    Measured,
    Reported,
    WorkerJoined,
    WorkerLeaving,
    WorkerLeft,
    WorkerRefused,
)
from ..core.resources import Placement, Resources
from ..core.scaling.curve import Failure, Sample, ScalingCurve
from ..core.scaling.points import (
    BATCH,
    STEP_SECONDS,
    STEPS,
    Mode,
    Point,
    StepRequest,
    check_divides,
    points,
)
from ..core.scheduling.cluster import ClusterState
from ..core.space.completion import completed
from ..core.space.space import SearchSpace
from ..core.trial import AttemptId, Cause, Direction, Ending, Goal, Halt, Params, Usage
from ..errors import ModelFileError, StudyError, UsageError
from ..executors.base import Executor
from ..executors.parallel import ParallelExecutor
from ..reporting.text import plural
from ..storage.directory import StudyDirectory
from ..worker.dask.study_access import prepare_access
from ..worker.orders import AttemptLimits, AttemptOrder, StudyBrief
from .workforce import Workforce, choose_cluster

STEPS_SECONDS = 1.0
"""How long the steps of one run are timed."""
_JOIN_SECONDS = 60.0
"""Longest wait for workers that exist already to join."""
_END_SECONDS = 30.0
"""Longest wait for an attempt to end once it was told to."""
_POLL_SECONDS = 0.25
_SEED = 1
_TOO_LARGE = (Cause.OUT_OF_MEMORY, Cause.DEVICE_OUT_OF_MEMORY)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingRequest:
    """What to measure for one backend.

    Attributes:
        settings: The user's code and its workers; `source.backend` names the backend.
        devices: Numbers of devices, increasing.
        batch: The global batch; None for the model's own.
        modes: Strong scaling, weak scaling, or both.
        repeats: How often each point is measured.
        seconds: How long it may take, from when the workers are there.
    """

    settings: StudySettings
    devices: tuple[int, ...]
    batch: int | None
    modes: tuple[Mode, ...]
    repeats: int
    seconds: float


Note = Callable[[str], None]
"""Takes a line on the progress."""


def measure(request: ScalingRequest, directory: StudyDirectory, note: Note) -> ScalingCurve:
    """Measure one backend, and return what was measured.

    Args:
        request: What to measure.
        directory: Where the attempts keep their logs; must hold no study.
        note: Is told of each run.

    Raises:
        UsageError: The request does not fit the model or the machine; nothing was trained.
        StudyError: There are no workers.
    """
    settings = request.settings
    cluster = choose_cluster(settings, directory.path)
    _check_devices(request.devices, cluster)
    directory.create()
    with directory.acquire() as lock, Workforce(settings, cluster) as workers:
        found = workers.objective.read(directory.path)
        _check_code(found, settings)
        layout = workers.layout({})
        token, access = lock.owner.token, None
        if not cluster.is_local:
            access = prepare_access(directory.path, token, settings.source)
        executor = ParallelExecutor(cluster.executor(layout, access), workers.clock)
        largest = _largest(request.devices[-1], cluster)
        cluster.scale_up(largest, 1)
        runner = StepRunner(
            executor,
            ClusterState(),
            brief=_brief(request, workers.name, directory, token),
            space=SearchSpace.from_json(found.space),
        )
        wait_seconds = math.inf if settings.slurm else _JOIN_SECONDS
        until = time.monotonic() + wait_seconds
        while runner.resources(largest.processes) is None:
            runner.look()
            for line in cluster.scale_to({largest: 1}, executor.workers):
                note(line)
            if time.monotonic() > until:
                raise UsageError(
                    f"--devices asks for {largest.processes}, but {runner.pool_words} joined in "
                    f"{_JOIN_SECONDS:g} seconds; leave out larger numbers, or start more workers"
                )
        return measure_curve(runner, request, backend=found.backend, note=note)


def _check_devices(devices: Sequence[int], cluster: Cluster) -> None:
    """Check that this machine has as many devices; other workers tell when they join."""
    if not cluster.is_local:
        return
    has = cluster.capacity
    count, name = (len(has.gpus), "GPU") if has.gpus else (len(has.cpus), "core")
    if devices[-1] > count:
        raise UsageError(
            f"--devices asks for {devices[-1]} {name}s, but this machine has {count}; leave out "
            "larger numbers, or use other machines by --slurm or --connect"
        )


def _check_code(found: Found, settings: StudySettings) -> None:
    wanted = settings.source.backend
    if not found.is_keras:
        raise UsageError(
            f"{found.entry}(hp, trial) trains with a loop of its own, whose steps hptune cannot "
            "measure; `hptune scaling` needs build_model(hp) or a HyperModel"
        )
    if not found.calls_fit:
        raise UsageError(
            "fit() in the model file does not call model.fit, so hptune cannot measure its steps"
        )
    if wanted and found.backend != wanted:
        raise UsageError(
            f"--compare asks for {wanted}, but the model file chooses {found.backend} itself; use "
            'os.environ.setdefault("KERAS_BACKEND", …) there, or leave out --compare'
        )


def _brief(request: ScalingRequest, name: str, directory: StudyDirectory, token: str) -> StudyBrief:
    settings = request.settings
    return StudyBrief(
        name=name,
        directory=str(directory.path),
        working_directory=settings.working_directory,
        source=settings.source,
        goals=Goals((Goal(STEP_SECONDS, Direction.MIN),)),
        limits=AttemptLimits(epochs=1, checkpoint_every=0),
        master=token,
    )


def _largest(devices: int, cluster: Cluster) -> Resources:
    """Return what an attempt on the most devices asks for, on as few nodes as it can.

    Raises:
        UsageError: No worker can hold it.
    """
    refused: UsageError | None = None
    for nodes in divisors(devices):
        wanted = Resources(processes=devices, nodes=nodes)
        try:
            cluster.check_trial(wanted)
        except UsageError as error:
            refused = refused or error
        else:
            return wanted
    assert refused is not None
    raise refused


def divisors(count: int) -> list[int]:
    """Return the numbers that divide a number, the smallest first.

    >>> divisors(6)
    [1, 2, 3, 6]
    """
    return [each for each in range(1, count + 1) if count % each == 0]


class StepRunner:
    """Runs attempts that measure steps, one after another.

    Attributes:
        pool: The workers that have joined.
        device: What a device is: "GPU" if the workers have any, else "core".

    Args:
        executor: Open; the caller closes it.
        pool: The workers that are known already.
        brief: What every attempt is told.
        space: The search space, of which the default configuration is measured.
    """

    def __init__(
        self, executor: Executor, pool: ClusterState, *, brief: StudyBrief, space: SearchSpace
    ) -> None:
        self.pool = pool
        self._executor = executor
        self._brief = brief
        self._space = tuple(space.to_json())
        self._params: Params = completed(space, {})
        self._number = 0

    @property
    def device(self) -> str:
        """What a device is."""
        return "GPU" if self.pool.gpus else "core"

    @property
    def pool_words(self) -> str:
        """The workers' devices in words."""
        return f"workers with {plural(self.pool.gpus or self.pool.cpus, self.device)}"

    def resources(self, devices: int) -> Resources | None:
        """Return what an attempt on this many devices holds, on as few nodes as possible.

        Each device has a process of its own. None if the workers cannot hold it.
        """
        for nodes in divisors(devices):
            wanted = Resources(processes=devices, nodes=nodes)
            if self.pool.could_hold(wanted):
                return wanted
        return None

    def look(self) -> None:
        """Take in what happened to the workers, waiting a moment."""
        for event in self._executor.events(_POLL_SECONDS):
            self._take_in(event)

    def run(self, devices: int, request: StepRequest, until: float) -> Sample | Ending:
        """Measure one point once.

        Args:
            devices: Number of devices.
            request: What to measure on them.
            until: Time of `time.monotonic` at which the attempt is stopped.

        Returns:
            What was measured, or how the attempt ended without it.
        """
        wanted = self.resources(devices)
        placement = None if wanted is None else self.pool.take(wanted)
        if placement is None:
            return Ending(Cause.WORKER_LOST, reason="its workers are gone")
        name = AttemptId(self._number, 0)
        self._number += 1
        self._executor.start(
            AttemptOrder(
                brief=self._brief,
                attempt=name,
                params=self._params,
                space=self._space,
                placement=placement,
                seed=_SEED,
                incumbents=(),
                measure=request,
            )
        )
        found = _Found(devices)
        ending = self._watch(name, placement, found, until)
        self.pool.give_back(placement)
        return found.sample or ending

    def _watch(self, name: AttemptId, placement: Placement, found: _Found, until: float) -> Ending:
        """Collect what an attempt reports until it ends."""
        is_told = False
        while True:
            for event in self._executor.events(_POLL_SECONDS):
                self._take_in(event)
                match event:
                    case Reported(attempt=attempt) if attempt == name:
                        found.metrics = dict(event.report.metrics)
                    case Measured(attempt=attempt, usage=usage) if attempt == name:
                        found.usage = usage
                    case AttemptEnded(attempt=attempt, ending=ending) if attempt == name:
                        if ending.cause is not Cause.RETURNED:
                            found.metrics = None
                        return ending
            if all(worker not in self.pool for worker in placement.workers):
                return Ending(Cause.WORKER_LOST, reason="its worker is gone")
            now = time.monotonic()
            if now > until and not is_told:
                self._executor.stop(name, Halt.STOP)
                is_told, until = True, now + _END_SECONDS
            elif now > until:
                raise StudyError("an attempt did not end when it was told to; try again")

    def _take_in(self, event: Any) -> None:
        match event:
            case WorkerJoined():
                self.pool.add(
                    event.worker, event.node, event.capacity, ends_at=event.ends_at, gang=event.gang
                )
            case WorkerRefused(node=node, reason=reason):
                raise StudyError(f"{node} was refused: {reason}")
            case WorkerLeaving(worker=worker):
                self.pool.retire(worker)
            case WorkerLeft(worker=worker) if worker in self.pool:
                self.pool.remove(worker)


@dataclass(slots=True)
class _Found:
    """What one attempt has reported."""

    devices: int
    metrics: dict[str, float] | None = None
    usage: Usage | None = None

    @property
    def sample(self) -> Sample | None:
        if self.metrics is None:
            return None
        usage = self.usage
        return Sample(
            Point(self.devices, int(self.metrics[BATCH]) // self.devices),
            step_seconds=self.metrics[STEP_SECONDS],
            steps=int(self.metrics[STEPS]),
            memory_bytes=0 if usage is None else usage.peak_memory_bytes,
            gpu_memory_bytes=None if usage is None else usage.peak_gpu_memory_bytes,
        )


def measure_curve(
    runner: StepRunner, request: ScalingRequest, *, backend: str, note: Note
) -> ScalingCurve:
    """Measure all points, as often as asked for and as the time allows.

    The points of one round follow each other, and the next round goes through them in the opposite
    order, so that a machine that becomes slower does not favour one of them.

    Args:
        runner: Runs the attempts.
        request: What to measure.
        backend: Keras's backend.
        note: Is told of each run.

    Raises:
        UsageError: The batch does not divide by the numbers of devices.
        ModelFileError: The user's code failed in the first run.
    """
    until = time.monotonic() + request.seconds
    curve = ScalingCurve(
        backend=backend, device=runner.device, batch=request.batch or 0, devices=request.devices
    )
    if request.batch is not None:
        check_divides(request.batch, request.devices)
    else:
        curve = _with_own_batch(runner, request, curve, until, note)
        if not curve.batch:
            return curve
    order = points(request.devices, curve.batch, request.modes)
    for number in range(request.repeats):
        for point in order if number % 2 == 0 else reversed(order):
            is_done = sum(each.point == point for each in curve.samples) > number
            if is_done or curve.failure(point) is not None:
                continue
            if time.monotonic() > until:
                return _out_of_time(curve, request)
            step = StepRequest(point.batch_per_device, seconds=STEPS_SECONDS)
            curve = _added(curve, point, runner.run(point.devices, step, until), until, note)
    return curve


def _with_own_batch(
    runner: StepRunner, request: ScalingRequest, curve: ScalingCurve, until: float, note: Note
) -> ScalingCurve:
    """Measure the model's own batch on the fewest devices that hold it, which tells the batch."""
    for devices in request.devices:
        step = StepRequest(must_divide=request.devices, seconds=STEPS_SECONDS)
        result = runner.run(devices, step, until)
        if isinstance(result, Sample):
            curve = replace(curve, batch=result.point.batch)
            return _added(curve, result.point, result, until, note)
        if result.cause not in _TOO_LARGE:
            _raise_first(result)
        curve = _added(curve, Point(devices, 0), result, until, note)
    return curve


def _raise_first(ending: Ending) -> None:
    if ending.cause is Cause.STOPPED:
        raise StudyError("the time was up before the first steps were measured; raise --timeout")
    if ending.cause is Cause.EXCEPTION:
        raise ModelFileError(ending.reason, ending.detail)
    raise StudyError(f"the first steps could not be measured: {ending.reason}", ending.detail)


def _added(
    curve: ScalingCurve, point: Point, result: Sample | Ending, until: float, note: Note
) -> ScalingCurve:
    """Return the curve with the result of one run."""
    words = f"{curve.backend}: {plural(point.devices, curve.device)}, "
    words += f"{point.batch_per_device} samples each" if point.batch_per_device else "its batch"
    if isinstance(result, Sample):
        note(f"{words}: {result.step_seconds * 1000:.3g} ms a step")
        return replace(curve, samples=(*curve.samples, result))
    if result.cause is Cause.STOPPED and time.monotonic() > until:
        return curve
    is_too_large = result.cause in _TOO_LARGE
    reason = "out of memory" if is_too_large else result.reason
    note(f"{words}: {reason}")
    return replace(curve, failures=(*curve.failures, Failure(point, reason, is_too_large)))


def _out_of_time(curve: ScalingCurve, request: ScalingRequest) -> ScalingCurve:
    counts = [sum(e.point == p for e in curve.samples) for p in {e.point for e in curve.samples}]
    least = min(counts, default=0)
    line = (
        f"the time was up after {least} of {request.repeats} runs of each point; a longer "
        "--timeout measures all"
    )
    return replace(curve, notes=(*curve.notes, line))


def curves_of(
    requests: Sequence[ScalingRequest], directory: Callable[[], StudyDirectory], note: Note
) -> Iterator[ScalingCurve]:
    """Yield the curve of each backend; the time that one leaves is for those that follow.

    Args:
        requests: What to measure, one for each backend.
        directory: Returns a directory for one of them.
        note: Is told of each run.
    """
    left = sum(each.seconds for each in requests)
    for number, request in enumerate(requests):
        began = time.monotonic()
        share = left / (len(requests) - number)
        place = directory()
        try:
            yield measure(replace(request, seconds=share), place, note)
        finally:
            place.remove()
        left = max(0.0, left - (time.monotonic() - began))
