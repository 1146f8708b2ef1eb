"""`hptune scaling`: measures how a model scales, on workers of its own."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from ..clusters.base import Cluster
from ..clusters.choice import choose_cluster
from ..config.asked import Asked
from ..core.attempt import Cause, Ending
from ..core.notice import Notice, Notify
from ..core.resources import Resources
from ..core.space.space import SearchSpace
from ..core.step_request import check_divides
from ..errors import ModelFileError, StudyError, UsageError
from ..executors.parallel import ParallelExecutor
from ..files.file_errors import storage_errors
from ..reporting.terminal.progress import Progress
from ..scaling.curve import Failure, Point, Sample, ScalingCurve
from ..scaling.measurer import NOT_OF_THE_MODEL, MeasuringPlan, measure_curve
from ..scaling.step_runner import STEP_GOALS, StepRunner, TrialSizes, divisors
from ..storage.directory import StudyDirectory
from ..text import amount, plural
from ..user_code.source import Found
from ..worker.dask.study_access import prepare_access
from ..worker.orders import StudyBrief
from .code_reader import reading
from .workforce import Workforce

_JOIN_SECONDS = 60.0
"""Longest wait for workers that exist already to join."""
_NOTE_SECONDS = 3.0
"""Time after which the user is told that workers are missing; those of this machine join sooner."""
_ONE_PROCESS = "all devices of a run are those of one process"


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingRequest:
    """What to measure for one backend.

    Attributes:
        asked: The user's code and its workers; `source.backend` names the backend.
        plan: What to measure; its time counts from when the workers are there.
        in_one_process: Whether one process has all devices, instead of one process for each.
        is_compared: Whether the user has named the backend; else it is that of this shell, if any.
    """

    asked: Asked
    plan: MeasuringPlan
    in_one_process: bool = False
    is_compared: bool = False


def measure(request: ScalingRequest, directory: StudyDirectory, progress: Progress) -> ScalingCurve:
    """Measure one backend, and return what was measured.

    Args:
        request: What to measure.
        directory: Where the attempts keep their logs; must hold no study.
        progress: Shows what is read, and a line on each run.

    Raises:
        UsageError: The request does not fit the model or the machine; nothing was trained.
        StudyError: There are no workers.
    """
    settings, devices = request.asked.settings, request.plan.devices[-1]
    note = progress.note
    cluster = choose_cluster(request.asked, directory.path)
    _check_devices(devices, cluster)
    cluster.prepare(note)
    directory.create()
    progress.busy(reading(settings.source))
    with directory.acquire() as lock, lock.beating(), Workforce(request.asked, cluster) as workers:
        found = workers.code.read(directory.path, progress.busy)
        check_code(found, request)
        layout = workers.layout({})
        token, access = lock.owner.token, None
        if not cluster.is_local:
            with storage_errors(directory.path):
                access = prepare_access(directory.path, token, settings.source)
        executor = ParallelExecutor(cluster.executor(layout, access), workers.clock)
        sizes = TrialSizes(in_one_process=request.in_one_process)
        largest = _largest(devices, sizes, cluster)
        cluster.scale_up(largest, 1)
        runner = StepRunner(
            executor,
            brief=StudyBrief(
                name=workers.name,
                directory=str(directory.path),
                source=settings.source,
                goals=STEP_GOALS,
                master=token,
            ),
            space=SearchSpace.from_json(found.space),
            sizes=sizes,
        )

        def scale() -> None:
            cluster.scale_to({largest: 1}, executor.workers)
            for notice in cluster.notices():
                note(notice)

        wait_for_workers(
            runner,
            devices,
            seconds=_join_seconds(request, cluster),
            scale=scale,
            note=note,
        )
        return measured_curve(runner, request, backend=found.backend, note=note)


def _join_seconds(request: ScalingRequest, cluster: Cluster) -> float:
    """Return how long to wait for workers, which may wait in a queue for any time."""
    if request.asked.cluster.queues:
        return math.inf
    return _JOIN_SECONDS if cluster.is_local else min(_JOIN_SECONDS, request.plan.seconds)


def wait_for_workers(
    runner: StepRunner,
    devices: int,
    *,
    seconds: float,
    scale: Callable[[], None],
    note: Notify,
) -> None:
    """Wait until the workers have as many devices, and tell the user what is missing.

    Args:
        runner: Knows the workers.
        devices: The largest number of devices.
        seconds: Longest wait.
        scale: Finds workers.
        note: Takes lines for the user.

    Raises:
        UsageError: There were too few devices until the end.
        StudyError: The workers were refused.
    """
    began, shown = time.monotonic(), ""
    while runner.resources(devices) is None:
        runner.look()
        scale()
        if runner.resources(devices) is not None:
            return
        if runner.workers.refused and not runner.cluster_state.cpus:
            raise StudyError(runner.workers.refused)
        has = runner.devices
        waits = time.monotonic() - began
        if waits > seconds:
            raise UsageError(
                f"--devices asks for {devices}, but after {seconds:g} seconds the workers have "
                f"{plural(has, runner.device)}; leave out larger numbers, or start more workers"
            )
        line = f"waiting for {plural(devices, runner.device)}; "
        line += f"the workers have {has}" if has else "no worker has joined"
        if line != shown and waits > _NOTE_SECONDS:
            shown = line
            note(Notice(line))


def _check_devices(devices: int, cluster: Cluster) -> None:
    """Check that this machine has as many devices; other workers tell when they join."""
    if not cluster.is_local:
        return
    has = cluster.capacity
    count, name = (len(has.gpus), "GPU") if has.gpus else (len(has.cpus), "core")
    if devices > count:
        raise UsageError(
            f"--devices asks for {devices} {name}s, but this machine has {count}; leave out "
            "larger numbers, or use other machines by --slurm or --connect"
        )


def check_code(found: Found, request: ScalingRequest) -> None:
    """Check that the steps of the user's code can be measured as asked for.

    Raises:
        UsageError: They cannot.
    """
    wanted = request.asked.settings.source.backend
    if not found.is_keras:
        raise UsageError(
            f"{found.entry}(hp, trial) trains with a loop of its own, whose steps hptune cannot "
            "measure; `hptune scaling` needs build_model(hp) or a HyperModel"
        )
    if not found.calls_fit:
        raise UsageError(
            "fit() in the model file does not call model.fit, so hptune cannot measure its steps"
        )
    if request.is_compared and wanted != found.backend:
        raise UsageError(
            f"--compare asks for {wanted}, but the model file chooses {found.backend} itself; use "
            'os.environ.setdefault("KERAS_BACKEND", …) there, or leave out --compare'
        )
    if request.in_one_process and found.backend == "torch":
        raise UsageError(
            "--one-process is given, but Keras on PyTorch trains on one device in each process; "
            "leave it out"
        )


def _largest(devices: int, sizes: TrialSizes, cluster: Cluster) -> Resources:
    """Return what an attempt on the most devices asks for, on as few nodes as it can.

    Whether workers of other machines have GPUs is unknown, so GPUs are tried first.

    Raises:
        UsageError: No worker can hold it.
    """
    refused: UsageError | None = None
    has_gpus = (bool(cluster.capacity.gpus),) if cluster.is_local else (True, False)
    for gpus, nodes in itertools.product(has_gpus, divisors(devices)):
        wanted = sizes.on(devices, nodes=nodes, has_gpus=gpus)
        if wanted is None:
            continue
        try:
            cluster.check_trial(wanted)
        except UsageError as error:
            refused = refused or error
        else:
            return wanted
    assert refused is not None
    raise refused


def measured_curve(
    runner: StepRunner, request: ScalingRequest, *, backend: str, note: Notify
) -> ScalingCurve:
    """Measure all points, as often as asked for and as the time allows.

    Args:
        runner: Runs the attempts.
        request: What to measure.
        backend: Keras's backend.
        note: Takes a line on each run.

    Raises:
        UsageError: The batch does not divide by the numbers of devices.
        ModelFileError: The user's code failed in the first run.
        StudyError: The first run failed otherwise.
    """
    plan = request.plan
    if plan.batch is not None:
        check_divides(plan.batch, plan.divisors)
    lost: list[str] = []
    has_figures = False

    def show(point: Point, result: Sample | Ending) -> None:
        nonlocal has_figures
        point = result.point if isinstance(result, Sample) else point
        devices = plural(point.devices, runner.device)
        batch = f"{point.batch_per_device} samples each" if point.batch_per_device else "its batch"
        words = f"{backend}: {devices}, {batch}"
        if isinstance(result, Sample):
            has_figures = True
            note(Notice(f"{words}: {amount(1000.0 * result.step_seconds)} ms a step"))
            return
        failure = Failure.of(point, result)
        is_of_code = result.cause is Cause.EXCEPTION and not has_figures
        if (is_of_code or not point.batch_per_device) and not failure.is_too_large:
            _raise_first(result)
        if result.cause is Cause.STOPPED:
            return
        note(Notice(f"{words}: {failure.reason}"))
        if result.cause in NOT_OF_THE_MODEL:
            lost.append(f"{devices}: {failure.reason}")

    curve, is_time_up = measure_curve(runner, plan, backend=backend, on_result=show)
    found = [_ONE_PROCESS] if request.in_one_process else []
    found += dict.fromkeys(lost)
    if curve.batch and is_time_up:
        found += _missing_runs(curve, plan)
    return replace(curve, notes=tuple(found))


def _raise_first(ending: Ending) -> None:
    if ending.cause is Cause.STOPPED:
        raise StudyError("the time was up before the first steps were measured; raise --timeout")
    if ending.cause is Cause.EXCEPTION:
        raise ModelFileError(ending.reason, ending.detail)
    raise StudyError(f"the first steps could not be measured: {ending.reason}", ending.detail)


def _missing_runs(curve: ScalingCurve, plan: MeasuringPlan) -> list[str]:
    """Return a line that says how many runs were done, if the time was up before all of them."""
    able = [point for point in plan.points(curve.batch) if curve.failure(point) is None]
    least = min((len(curve.runs(point)) for point in able), default=plan.repeats)
    if least >= plan.repeats:
        return []
    runs = f"{least} of {plan.repeats} runs of each point"
    return [f"the time was up after {runs}; a longer --timeout measures all"]
