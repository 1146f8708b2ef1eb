"""Studies whose trials get as many devices as end them soonest, in virtual time."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from unittest import mock

import pytest

from engine_checks import check_engine
from engine_driver import EngineDriver, returned
from hptune.config.asked import asked
from hptune.config.parallel_trials import check_splits
from hptune.config.settings import StudySettings
from hptune.core.attempt import Attempt, AttemptId, Cause, Ending, Halt, Report
from hptune.core.engine.engine import Engine
from hptune.core.goals import Goals
from hptune.core.messages import (
    AttemptEnded,
    DecideSplit,
    Event,
    Reported,
    SplitChosen,
    WorkerJoined,
    WorkerLeft,
)
from hptune.core.resources import Capacity, Resources
from hptune.core.space.space import FloatParameter, SearchSpace
from hptune.core.step_request import BATCH, STEP_SECONDS, STEPS
from hptune.core.trial import Direction, Goal, Params, TrialState
from hptune.errors import UsageError
from hptune.executors.base import Executor
from hptune.master.chosen_split import FIRST_NUMBER, measure_split
from hptune.master.scaling import ScalingRequest, check_code, wait_for_workers
from hptune.samplers.random_search import RandomSampler
from hptune.scaling.curve import Mode, ScalingCurve
from hptune.scaling.measurer import MeasuringPlan
from hptune.scaling.split import Splitter, SplitTimes
from hptune.scaling.step_runner import StepRunner, TrialSizes
from hptune.storage.directory import StudyDirectory
from hptune.user_code.source import Found, ObjectiveSource, SourceKind
from hptune.worker.orders import AttemptOrder, StudyBrief
from scaling_curves import CURVES
from simulated import SimulatedExecutor
from simulated_parts import Curve, SimulatedWorker
from simulated_studies import Memory, Played, play

GOALS = Goals((Goal("score", Direction.MAX),))
EPOCHS = 4
SIZES = TrialSizes()
MARGIN = 1.05


def curve(_params: Params, _seed: int) -> Curve:
    return [{"score": epoch / 10} for epoch in range(EPOCHS)]


def study(
    times: Mapping[int, float],
    workers: Sequence[SimulatedWorker],
    trials: int,
    *,
    fixed: int | None = None,
    sizes: TrialSizes = SIZES,
    lines: list[str] | None = None,
) -> tuple[Played, Memory]:
    """Run a study in which each trial gets a fixed number of devices, or what is chosen."""
    executor = SimulatedExecutor(
        curve=curve,
        seconds_per_epoch=lambda params, worker: 60.0,
        relative_seconds=lambda processes: times[processes],
        workers=workers,
    )
    engine, memory = Engine(), Memory()
    known: list[str] = [] if lines is None else lines
    splitter = Splitter(
        SplitTimes(times),
        "core",
        sizes=sizes,
        learns=False,
        note=lambda notice: known.append(notice.text),
    )
    played = play(
        executor,
        space=SearchSpace((FloatParameter("x", 0.0, 1.0),)),
        goals=GOALS,
        trials=trials,
        make_sampler=lambda space: RandomSampler(space, 1),
        memory=memory,
        engine=engine,
        resources=sizes.on(fixed or 1),
        split=None if fixed else splitter,
    )
    check_engine(engine)
    assert all(trial.state is TrialState.COMPLETE for trial in engine.trials)
    return played, memory


def choices(events: Sequence[Event]) -> list[int]:
    chosen = (each for each in events if isinstance(each, SplitChosen) and each.reason)
    return [each.resources.processes for each in chosen]


@pytest.mark.parametrize("model", CURVES)
def test_a_pool_that_grows_is_split_again_and_beats_every_fixed_split(model: str) -> None:
    workers = [
        SimulatedWorker(name="first", cores=8),
        SimulatedWorker(name="second", cores=8, joins_seconds=300.0),
    ]
    for trials in (3, 12, 40):
        chosen, memory = study(CURVES[model], workers, trials)
        fixed = [
            study(CURVES[model], workers, trials, fixed=devices)[0].seconds
            for devices in CURVES[model]
        ]
        assert chosen.seconds <= MARGIN * min(fixed), (trials, choices(memory.events), fixed)


def test_a_trial_that_begins_again_is_counted_once(driver: EngineDriver) -> None:
    driver.open(4)
    driver.join()
    for number in range(4):
        driver.suggest([{"x": number}])
        ending = Ending(Cause.GIVEN_UP) if number == 3 else returned(0.5)
        driver.end(AttemptId(number, 0), ending)
    driver.open(5, retried=(3,), splits=True)
    driver.join()
    driver.end(AttemptId(3, 1), returned(0.5))
    driver.join("another")
    asked = [c for _, commands in driver.story for c in commands if isinstance(c, DecideSplit)]
    assert [each.trials_left for each in asked] == [2, 1], "trial 3 again, and a new one"


def test_trials_of_a_size_that_no_worker_has_any_more_run_on_fewer_devices() -> None:
    workers = [
        SimulatedWorker(name="large", cores=8, leaves_seconds=50.0),
        SimulatedWorker(name="small", cores=2, joins_seconds=100.0),
    ]
    lines: list[str] = []
    _, memory = study(CURVES["scales well"], workers, 2, lines=lines)
    assert choices(memory.events)[0] == 4
    assert choices(memory.events)[-1] < 4
    assert len(lines) == len(choices(memory.events))
    assert lines[0].startswith("4 cores for each trial, 2 at once: ")
    # A choice follows at once on what changes the pool, so nothing starts by the old one.
    at = [i for i, each in enumerate(memory.events) if isinstance(each, SplitChosen)]
    assert all(isinstance(memory.events[i - 1], WorkerJoined | WorkerLeft) for i in at)


def test_a_replay_of_the_events_makes_the_same_choices() -> None:
    workers = [
        SimulatedWorker(name="first", cores=4),
        SimulatedWorker(name="second", cores=8, joins_seconds=100.0),
    ]
    _, memory = study(CURVES["does not fit one device"], workers, 9)
    assert choices(memory.events)
    engine, last = Engine(), dict[AttemptId, Attempt]()
    for event in memory.events:
        engine.handle(event)
        last.update((each.id, each) for each in engine.take_changes()[1])
    assert last == memory.attempts
    sizes = {len(each.placement.ranks) for each in last.values()}
    assert sizes <= set(CURVES["does not fit one device"])


def splitter(times: SplitTimes, sizes: TrialSizes, *, device: str = "core") -> Splitter:
    return Splitter(times, device, sizes=sizes, learns=False, note=lambda _: None)


def chosen_on(splits: Splitter, *workers: Capacity, trials: int = 100) -> Resources:
    """Return what trials ask for on these workers."""
    chosen, reason = splits(DecideSplit(workers, trials, Resources()))
    assert reason
    return chosen


def test_a_trial_keeps_what_the_user_asked_for_and_as_many_are_counted_as_fit() -> None:
    times = SplitTimes(CURVES["scales well"])
    few = splitter(times, TrialSizes(memory_bytes=10**9))
    assert chosen_on(few, Capacity((0, 1)), trials=1) == Resources(processes=2, memory_bytes=10**9)
    # Of many trials with a core each, eight would run at once; memory holds two.
    eight = Capacity(tuple(range(8)), memory_bytes=16 * 10**9)
    large = splitter(times, TrialSizes(memory_bytes=8 * 10**9))
    assert chosen_on(large, eight) == Resources(processes=4, memory_bytes=8 * 10**9)
    # RESOURCES = {"cpus": 4}: its processes divide the cores.
    wide = splitter(times, TrialSizes.of(Resources(cpus=4)), device="process")
    assert chosen_on(wide, eight) == Resources(cpus=4, processes=4)
    # Four GPUs, but cores for two processes only.
    gpus = Capacity((0, 1), gpus=("0", "1", "2", "3"))
    on_gpus = splitter(times, TrialSizes(), device="GPU")
    assert chosen_on(on_gpus, gpus, trials=1).processes == 2
    on_cores = splitter(times, TrialSizes.of(Resources(gpus=0)))
    assert chosen_on(on_cores, gpus, trials=1) == Resources(gpus=0, processes=2)


def test_without_an_amount_trials_ask_for_the_memory_that_was_measured() -> None:
    gigabyte = 10**9
    measured = SplitTimes({1: 1.0, 2: 0.6, 4: 0.35}, {1: 4 * gigabyte, 2: 5 * gigabyte})
    worker = Capacity(tuple(range(4)), memory_bytes=12 * gigabyte)
    # Three trials of one core would fit without the margin. Of the two that fit with it, each has
    # one core, so one trial after another on all four ends the study sooner.
    wanted = chosen_on(splitter(measured, TrialSizes()), worker)
    assert wanted == Resources(processes=4)
    known = SplitTimes(measured.seconds, {**measured.memory_bytes, 4: 7 * gigabyte})
    wanted = chosen_on(splitter(known, TrialSizes()), worker)
    assert wanted == Resources(processes=4, memory_bytes=8_750_000_000)
    # What was measured fits, so it is not refused for the margin.
    small = Capacity((0,), memory_bytes=4 * gigabyte)
    assert chosen_on(splitter(known, TrialSizes()), small) == Resources(memory_bytes=4 * gigabyte)


def test_when_the_largest_worker_leaves_trials_ask_for_what_the_others_have() -> None:
    gigabyte = 10**9
    splits = splitter(SplitTimes({1: 1.0}, {1: 4 * gigabyte}), TrialSizes())
    large, small = (Capacity((0,), memory_bytes=each * gigabyte) for each in (8, 4))
    usual = chosen_on(splits, large)
    assert usual.memory_bytes == 5 * gigabyte
    # The margin would not fit here, and need not as long as the other worker is there.
    assert splits(DecideSplit((large, small), 100, usual)) == (usual, "")
    chosen, reason = splits(DecideSplit((small,), 100, usual))
    assert chosen == Resources(memory_bytes=4 * gigabyte)
    assert reason


def test_a_study_whose_memory_holds_few_trials_is_within_5_percent_of_the_best_split() -> None:
    sizes = TrialSizes(memory_bytes=8 * 10**9)
    times = CURVES["scales well"]
    workers = [
        SimulatedWorker(name="first", cores=8, memory_bytes=16 * 10**9),
        SimulatedWorker(name="second", cores=8, memory_bytes=12 * 10**9, joins_seconds=300.0),
    ]
    for trials in (3, 12, 40):
        chosen, memory = study(times, workers, trials, sizes=sizes)
        fixed = [
            study(times, workers, trials, fixed=devices, sizes=sizes)[0].seconds
            for devices in times
        ]
        assert chosen.seconds <= MARGIN * min(fixed), (trials, choices(memory.events), fixed)


class _LosesWorkers(Executor):
    """Executor of one worker, from which the first attempts are lost."""

    dashboard = ""

    def __init__(self, lost: int, batch: float = 32.0, cause: Cause = Cause.WORKER_LOST) -> None:
        self._lost = lost
        self._cause = cause
        self._batch = batch
        self._events: list[Event] = [WorkerJoined(1.0, "w", "node", Capacity((0, 1)))]

    def open(self) -> None: ...

    def start(self, order: AttemptOrder) -> None:
        name, devices = order.attempt, order.placement.ranks
        if self._lost:
            self._lost -= 1
            ending = Ending(self._cause, reason="gone")
        else:
            ending = Ending(Cause.RETURNED)
            metrics = {BATCH: self._batch, STEPS: 8.0, STEP_SECONDS: 1.0 / len(devices)}
            self._events.append(Reported(1.0, name, Report(1, metrics)))
        self._events.append(AttemptEnded(1.0, name, ending))

    def stop(self, attempt: AttemptId, halt: Halt = Halt.STOP) -> None: ...

    def events(self, timeout_seconds: float) -> list[Event]:
        found, self._events = self._events, []
        return found

    def wake(self) -> None: ...

    def close(self) -> None: ...


def measured(
    executor: Executor, tmp_path: Path, notes: list[str]
) -> tuple[ScalingCurve | None, Sequence[Event]]:
    """Return what a study with `auto` measures on this executor, and the events it saw."""
    source = ObjectiveSource(SourceKind.FILE, "/model.py")
    directory = StudyDirectory(tmp_path / "study").create()
    runner = StepRunner(
        executor,
        brief=StudyBrief("study", str(directory), source, GOALS),
        space=SearchSpace((FloatParameter("x", 0.0, 1.0),)),
        first_number=FIRST_NUMBER,
    )
    curve = measure_split(
        runner,
        directory,
        mode=Mode.STRONG,
        backend="jax",
        required_workers=int,
        scale=mock.Mock(),
        note=lambda notice: notes.append(notice.text),
    )
    return curve, runner.seen


@pytest.mark.parametrize("cause", [Cause.WORKER_LOST, Cause.RELEASED, Cause.NO_ROOM])
@pytest.mark.parametrize(("lost", "counts"), [(2, {1: 1, 2: 1}), (1, {1: 2, 2: 2}), (99, None)])
def test_a_lost_worker_says_nothing_of_a_number_of_devices(
    tmp_path: Path, lost: int, counts: dict[int, int] | None, cause: Cause
) -> None:
    notes: list[str] = []
    curve, seen = measured(_LosesWorkers(lost, cause=cause), tmp_path, notes)
    assert [type(each) for each in seen] == [WorkerJoined]
    if counts is None:
        assert curve is None
        assert "hptune resume measures again" in notes[-1]
        return
    assert curve is not None
    assert not curve.failures
    assert Counter(each.point.devices for each in curve.samples) == counts


class _WorkerComesBack(_LosesWorkers):
    """Executor whose worker loses its connection for a moment, during the first attempt."""

    def start(self, order: AttemptOrder) -> None:
        if order.attempt.trial == FIRST_NUMBER:
            self._events += [
                WorkerLeft(1.0, "w", "gone"),
                WorkerJoined(1.0, "w", "node", Capacity((0, 1))),
            ]
        super().start(order)


def test_a_worker_that_comes_back_has_as_many_devices_as_before(tmp_path: Path) -> None:
    notes: list[str] = []
    curve, _ = measured(_WorkerComesBack(1), tmp_path, notes)
    assert curve is not None
    assert Counter(each.point.devices for each in curve.samples) == {1: 2, 2: 2}


class _Hangs(_LosesWorkers):
    """Executor of attempts from the third on that do not end."""

    def start(self, order: AttemptOrder) -> None:
        if order.attempt.trial < FIRST_NUMBER + 2:
            super().start(order)


def test_a_study_goes_on_if_a_measurement_does_not_end_when_it_is_told_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = itertools.count(step=10.0)
    monkeypatch.setattr("hptune.scaling.step_runner.time", mock.Mock(monotonic=lambda: next(now)))
    monkeypatch.setattr("hptune.scaling.measurer.time", mock.Mock(monotonic=lambda: next(now)))
    curve, _ = measured(_Hangs(0), tmp_path, [])
    assert curve is not None
    assert Counter(each.point.devices for each in curve.samples) == {1: 1, 2: 1}


def test_the_user_is_told_which_numbers_of_devices_are_left_out(tmp_path: Path) -> None:
    notes: list[str] = []
    curve, _ = measured(_LosesWorkers(0, batch=31), tmp_path, notes)
    assert curve is not None
    assert SplitTimes.of(curve).seconds == {1: 1.0}
    first, second = notes
    assert first.startswith(
        "measuring training steps on 1 and 2 cores, a process for each (no worker has a GPU)"
    )
    assert second == "leaving out 2 cores: the batch of 31 does not divide by 2"


def test_the_user_is_told_which_devices_are_missing_until_the_wait_is_over(tmp_path: Path) -> None:
    notes: list[str] = []
    source = ObjectiveSource(SourceKind.FILE, "/model.py")
    runner = StepRunner(
        _LosesWorkers(0),
        brief=StudyBrief("study", str(tmp_path), source, GOALS),
        space=SearchSpace((FloatParameter("x", 0.0, 1.0),)),
    )
    clock = mock.Mock(monotonic=mock.Mock(side_effect=itertools.count(step=2)))
    with (
        mock.patch("hptune.master.scaling.time", clock),
        pytest.raises(UsageError, match=r"asks for 4, but after 9 seconds the workers have 2 core"),
    ):
        wait_for_workers(
            runner, 4, seconds=9, scale=mock.Mock(), note=lambda notice: notes.append(notice.text)
        )
    assert notes == ["waiting for 4 cores; the workers have 2"]
    wait_for_workers(
        runner, 2, seconds=0, scale=mock.Mock(), note=lambda notice: notes.append(notice.text)
    )


def test_a_training_loop_of_the_users_own_has_no_steps_to_measure() -> None:
    source = ObjectiveSource(SourceKind.FILE, "/model.py")
    settings = StudySettings(source=source, working_directory="/", processes_per_trial="auto")
    found = Found(is_keras=False, space=(), constants={}, entry="objective")
    with pytest.raises(UsageError, match=r"a loop of its own.*--processes-per-trial 2"):
        check_splits(found, settings)
    own_loop = Found(is_keras=True, space=(), constants={}, backend="jax", calls_fit=False)
    with pytest.raises(UsageError, match=r"does not call model\.fit"):
        check_splits(own_loop, settings)


def test_pytorch_has_no_strategy_for_the_devices_of_one_process() -> None:
    source = ObjectiveSource(SourceKind.FILE, "/model.py")
    request = ScalingRequest(
        asked=asked(StudySettings(source=source, working_directory="/")),
        plan=MeasuringPlan(devices=(1, 2), modes=(Mode.WEAK,), repeats=1, seconds=1.0),
        in_one_process=True,
    )
    assert request.plan.divisors == (), "each device has a whole batch"
    found = Found(is_keras=True, space=(), constants={}, backend="jax")
    check_code(found, request)
    with pytest.raises(UsageError, match="--one-process is given, but Keras on PyTorch"):
        check_code(replace(found, backend="torch"), request)
