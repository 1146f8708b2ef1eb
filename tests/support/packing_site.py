"""A study whose trials use what their configurations need, to test how they are packed."""

from __future__ import annotations

from collections.abc import Callable

from engine_driver import EngineDriver, returned
from hptune.core.attempt import AttemptId, Ending, Usage
from hptune.core.resources import Amount, Capacity, Resources
from hptune.core.trial import Params

GB = 1_000_000_000
ALL = tuple(Amount)
Need = Callable[[Params], float]


class Site:
    """An engine, and trials that use what their configurations need.

    Args:
        capacity: What the worker has.
        memory: The peak memory of a trial, in bytes.
        busy: The share of the time that a trial keeps a core busy while it is alone there.
        starved: The share of the time that a trial waits for a core.
        slowdown: The factor by which steps take longer with this many trials per core.
        gpu_memory: The memory of a trial on a GPU, in bytes; None if it cannot be measured.
        trials: The number of trials; None for no limit.
        learns: Whether the search learns.
        measured: The amounts that measurement decides.
        resources: What the user asked for.
    """

    def __init__(
        self,
        capacity: Capacity,
        *,
        memory: Need = lambda params: GB,
        busy: Need = lambda params: 1.0,
        starved: float = 0.0,
        slowdown: Callable[[float], float] = lambda residents: 1.0,
        gpu_memory: Need | None = None,
        trials: int | None = 40,
        learns: bool = False,
        measured: tuple[Amount, ...] = ALL,
        resources: Resources | None = None,
    ) -> None:
        self.driver = EngineDriver()
        self.capacity = capacity
        self.memory, self.busy, self.slowdown = memory, busy, slowdown
        self.gpu_memory = gpu_memory
        self.starved = starved
        self.seconds = dict[AttemptId, float]()
        self.trained = dict[AttemptId, float]()
        self.steps = dict[AttemptId, float]()
        self.most_held = 0.0
        self.most_running = 0
        self.free_share: float | None = None
        self.driver.open(trials, measured=measured, resources=resources, learns=learns)
        self.driver.join_with("w", capacity)
        self.answer()

    def answer(self) -> None:
        while self.driver.ask is not None:
            self.driver.suggest([{"units": 16 + n * 7 % 33} for n in self.driver.ask.numbers])

    def measure(self, name: AttemptId, seconds: float = 10.0) -> None:
        params = self.driver.trial(name.trial).params
        if name not in self.seconds:
            self.driver.report(name, 1, score=0.5)
        self.seconds[name] = self.seconds.get(name, 0.0) + seconds
        held = self.driver.running[name]
        co_located = sum(each.worker == held.worker for each in self.driver.running.values())
        slowdown = self.slowdown(co_located / len(self.driver.workers[held.worker].cpus))
        is_first = name not in self.steps  # steps are counted from the first report on
        self.trained[name] = 0.0 if is_first else self.trained[name] + seconds
        self.steps[name] = 0.0 if is_first else self.steps[name] + seconds / slowdown
        gpu = int(self.gpu_memory(params)) if self.gpu_memory and held.gpus else None
        usage = Usage(
            peak_memory_bytes=int(self.memory(params)),
            peak_gpu_memory_bytes=gpu,
            cpu_seconds=self.seconds[name] * self.busy(params) / slowdown,
            seconds=self.seconds[name],
            seconds_per_step=self.trained[name] / steps if (steps := self.steps[name]) else None,
            starved_seconds=self.starved * self.seconds[name],
        )
        self.driver.measure(name, usage, free_share=self.free_share)
        self.answer()
        memory = sum(self.memory(self.driver.trial(n.trial).params) for n in self.driver.running)
        self.most_held = max(self.most_held, memory)
        self.most_running = max(self.most_running, len(self.driver.running))

    def watch(self) -> None:
        """Measure all running attempts twice."""
        for _ in range(2):
            now = self.driver.at + 10.0
            for name in [*self.driver.running]:
                self.driver.at = now
                self.measure(name)

    def end(self, name: AttemptId, ending: Ending | None = None) -> None:
        self.driver.end(name, ending or returned(0.5))
        self.answer()

    def run(self) -> None:
        """Run the study to its end, trial by trial."""
        for _ in range(500):
            if not self.driver.running:
                break
            self.watch()
            self.end(next(iter(self.driver.running)))
        assert self.driver.finish is not None
        self.driver.check_replay()


def cores(count: int, memory_bytes: int = 64 * GB) -> Capacity:
    return Capacity(tuple(range(count)), memory_bytes=memory_bytes)
