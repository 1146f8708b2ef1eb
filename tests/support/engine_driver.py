"""Driver that feeds an engine with events, and checks its commands against a model of its own."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import pytest

from engine_checks import check_engine
from hptune.core.attempt import Attempt, AttemptId, Cause, Ending, Halt, Report, Usage
from hptune.core.engine.engine import Engine
from hptune.core.goals import Goals
from hptune.core.messages import (
    Ask,
    AttemptEnded,
    AttemptStarted,
    Command,
    Continue,
    DecidePacking,
    DecideSplit,
    Discard,
    Event,
    ExcludeNode,
    Finish,
    FinishReason,
    KeepBest,
    Measured,
    NodeExcluded,
    PackingDecided,
    ParametersUsed,
    Question,
    Reported,
    SplitChosen,
    Start,
    Stop,
    StopRequested,
    StudyOpened,
    Suggested,
    Tell,
    UserRequested,
    WorkerJoined,
    WorkerLeaving,
    WorkerLeft,
)
from hptune.core.packing.decision import decide
from hptune.core.resources import Capacity, Placement, Resources
from hptune.core.seeds import training_seed
from hptune.core.study_config import StudyConfig
from hptune.core.trial import ADDED, Direction, Goal, Params, Suggestion, Trial, TrialState
from hptune.core.user_requests import UserAction
from hptune.core.workers import Phase
from hptune.pruners.registry import make_pruner
from hptune.storage.ledger.codec import decode_event, encode_event

GOAL = Goal("score", Direction.MAX)
GOALS = Goals((GOAL,))
SEED = 7
FIRST = AttemptId(0, 0)
"""The first attempt of the first trial."""


def returned(score: float, **others: float) -> Ending:
    """Return the ending of an attempt that has a result."""
    return Ending(Cause.RETURNED, {"score": score, **others}, step=1)


def states(driver: EngineDriver) -> list[TrialState]:
    """Return the state of each trial."""
    return [trial.state for trial in driver.engine.trials]


class EngineDriver:
    """An engine, its events so far, and what its commands alone imply.

    Every event goes through the ledger's codec, every step through `check_engine`, and every
    command is checked against this model: so each test that uses this checks the engine's promises
    too.

    Attributes:
        engine: The engine.
        story: Every event, as read from the ledger, with the commands that it was answered with.
        workers: The workers there are.
        nodes: The node of each worker.
        leaving: Those that were about to leave.
        running: What attempts that were started and are not over hold.
        over: The attempts that are over.
        starts: The latest start of every trial.
        total: How many trials the sampler and the user are to suggest; None for no limit.
        ask: The question that is not answered yet.
        finish: How the study ended, if it has.
        split: Chooses what trials ask for, if `splits` is an option of the opening.
        excluded: The nodes whose workers get nothing, as attempts are lost there.
    """

    def __init__(self) -> None:
        self.engine = Engine(make_pruner)
        self.story: list[tuple[Event, list[Command]]] = []
        self.workers: dict[str, Capacity] = {}
        self.nodes: dict[str, str] = {}
        self.leaving: set[str] = set()
        self.running: dict[AttemptId, Placement] = {}
        self.over: list[AttemptId] = []
        self.starts: dict[int, Start] = {}
        self.total: int | None = None
        self.ask: Ask | None = None
        self.finish: Finish | None = None
        self.split: Callable[[DecideSplit], Resources] = lambda question: question.usual
        self.excluded: set[str] = set()
        self._away: set[str] = set()
        self._lost: set[tuple[AttemptId, str]] = set()  # attempts and the workers that left them
        self.at = 1_000.0
        self._trial_rows: dict[int, Trial] = {}
        self._attempt_rows: dict[AttemptId, Attempt] = {}
        self._stopping = False
        self.told_to_stop: dict[AttemptId, Halt] = {}
        self._furthest: dict[int, int] = {}
        self._others: dict[int, int] = {}  # by reports that lack the goal
        self.discarded: set[int] = set()
        self._put_away: set[int] = set()

    # --- events -----------------------------------------------------------------------------

    def open(
        self,
        trials: int | None = None,
        *,
        go_on: tuple[int, ...] = (),
        added: Sequence[Params] = (),
        retried: tuple[int, ...] = (),
        retries_nodes: bool = False,
        was_handed_over: bool = False,
        **options: Any,
    ) -> list[Command]:
        """Open the study; `options` are fields of `StudyConfig`, None for the default."""
        given = {name: value for name, value in options.items() if value is not None}
        config = StudyConfig(**{"trials": trials, "goals": GOALS, "seed": SEED, **given})
        suggestions = tuple(Suggestion(params, ADDED) for params in added)
        opened = StudyOpened(
            self.at,
            config,
            go_on=go_on,
            added=suggestions,
            retried=retried,
            retries_nodes=retries_nodes,
            was_handed_over=was_handed_over,
        )
        for number in retried:
            self._furthest.pop(number, None)
            self._others.pop(number, None)
        self._away |= self.workers.keys()
        if retries_nodes:
            self.excluded.clear()
        self.workers.clear()
        self.leaving.clear()
        self.over.extend(self.running)
        self.running.clear()
        self.total = trials
        self.ask = self.finish = None
        self._stopping = False
        return self.feed(opened)

    def join(self, worker: str = "w", cores: int = 1, gpus: int = 0) -> list[Command]:
        capacity = Capacity(tuple(range(cores)), tuple(f"g{number}" for number in range(gpus)))
        return self.join_with(worker, capacity)

    def join_with(
        self,
        worker: str,
        capacity: Capacity,
        *,
        ends_at: float | None = None,
        node: str = "",
        gang: str = "",
    ) -> list[Command]:
        self.workers[worker] = capacity
        self.nodes[worker] = node = node or f"node of {worker}"
        if worker not in self._away:
            self.excluded.discard(node)
        elif node in self.excluded:
            self.leaving.add(worker)
        self._away.discard(worker)
        return self.feed(WorkerJoined(self.at, worker, node, capacity, ends_at, gang))

    def about_to_leave(self, worker: str = "w") -> list[Command]:
        self.leaving.add(worker)
        return self.feed(WorkerLeaving(self.at, worker, "SIGTERM"))

    def leave(self, worker: str = "w", reason: str = "gone") -> list[Command]:
        """Lose a worker; an attempt with ranks on other workers is over when it has ended."""
        self.workers.pop(worker, None)
        self.leaving.discard(worker)
        for name, held in list(self.running.items()):
            if not any(each in self.workers for each in held.workers):
                del self.running[name]
                self.over.append(name)
            self._lost.add((name, worker))
        return self.feed(WorkerLeft(self.at, worker, reason))

    def suggest(
        self,
        params: Sequence[Params] | None = None,
        *,
        resources: Callable[[int], Resources | None] = lambda _: None,
    ) -> list[Command]:
        """Answer the question; with fewer suggestions than asked for, the space is exhausted."""
        if self.ask is None:
            raise AssertionError("nothing was asked")
        numbers, self.ask = self.ask.numbers, None
        if params is None:
            params = [{"x": number} for number in numbers]
        suggestions = tuple(
            Suggestion(each, "test", resources(number))
            for each, number in zip(params, numbers, strict=False)
        )
        exhausted = len(suggestions) < len(numbers)
        return self.feed(Suggested(self.at, numbers[0], suggestions, exhausted))

    def started(self, name: AttemptId, pid: int = 1) -> list[Command]:
        return self.feed(AttemptStarted(self.at, name, pid))

    def report(self, name: AttemptId, step: int, **metrics: float) -> list[Command]:
        if name in self.running and math.isfinite(metrics.get(GOAL.metric, 0.0)):
            steps = self._furthest if GOAL.metric in metrics else self._others
            steps[name.trial] = max(step, steps.get(name.trial, 0))
        return self.feed(Reported(self.at, name, Report(step, metrics)))

    def measure(
        self, name: AttemptId, usage: Usage, *, free_share: float | None = None
    ) -> list[Command]:
        return self.feed(Measured(self.at, name, usage, free_share))

    def end(self, name: AttemptId, ending: Ending) -> list[Command]:
        if self.running.pop(name, None) is not None:
            self.over.append(name)
        return self.feed(AttemptEnded(self.at, name, ending))

    def used(
        self, name: AttemptId, values: Params, declared: Iterable[Mapping[str, object]] = ()
    ) -> list[Command]:
        return self.feed(ParametersUsed(self.at, name, tuple(declared), values))

    def stop(
        self, finish_reason: FinishReason = FinishReason.INTERRUPTED, reason: str = "Ctrl-C"
    ) -> list[Command]:
        return self.feed(StopRequested(self.at, finish_reason, reason))

    def user(
        self,
        action: UserAction,
        *,
        trial: int | None = None,
        added: Sequence[Params] = (),
        refused: str = "",
    ) -> list[Command]:
        """Feed a user's request."""
        suggestions = tuple(Suggestion(params, ADDED) for params in added)
        return self.feed(UserRequested(self.at, "r", action, "ada", trial, suggestions, refused))

    def go(
        self,
        trials: int | None = None,
        *,
        cores: int = 1,
        **options: Any,
    ) -> list[Command]:
        """Open a study with one worker, and answer its first question."""
        self.open(trials, **options)
        self.join(cores=cores)
        return self.suggest()

    # --- the model --------------------------------------------------------------------------

    def feed(self, event: Event) -> list[Command]:
        """Let the engine handle an event that has been in the ledger, and check its answer."""
        again = decode_event(*encode_event(event))
        assert repr(again) == repr(event)  # NaN is not equal to itself
        commands = self.engine.handle(again)
        self.story.append((again, commands))
        self.at += 1.0
        trials, attempts = self.engine.take_changes()
        self._trial_rows.update((trial.number, trial) for trial in trials)
        self._attempt_rows.update((attempt.id, attempt) for attempt in attempts)
        for command in commands:
            self._check(command)
        # Studies of packing have thousands of measurements, and few change more than one attempt.
        changed = bool(commands or trials or not isinstance(again, Measured))
        check_engine(self.engine, trials_changed=changed)
        if changed:
            self._check_books()
        for command in commands:
            if isinstance(command, Question):
                assert command is commands[-1], "something follows before the answer"
                self.at -= 1.0  # it is decided at once
                return [*commands, *self.feed(self._answer(command))]
        return commands

    def _answer(self, question: Question) -> Event:
        match question:
            case DecidePacking(evidence=evidence):
                return PackingDecided(self.at, decide(evidence))
            case DecideSplit():
                return SplitChosen(self.at, self.split(question), "")
            case ExcludeNode(node=node):
                assert node not in self.excluded, f"{node} is excluded twice"
                self.excluded.add(node)
                self.leaving |= {each for each in self.workers if self.nodes[each] == node}
                return NodeExcluded(self.at, node)

    def _check(self, command: Command) -> None:
        assert self.finish is None or isinstance(command, Tell), f"{command} after the finish"
        match command:
            case Start(attempt=name, placement=placement):
                assert not self._stopping, f"{command} while the study stops"
                assert name not in self.running, f"{name} is started twice"
                assert name not in self.over, f"{name} is started again"
                workers = placement.workers
                assert set(workers) <= set(self.workers), f"{command} on an unknown worker"
                assert not set(workers) & self.leaving, f"{command} on one about to leave"
                assert len({self.nodes[worker] for worker in workers}) == len(workers)
                assert len({len(rank.cpus) for rank in placement.ranks}) == 1
                assert len({len(rank.gpus) for rank in placement.ranks}) == 1
                before = self.starts.get(name.trial)
                expected = 0 if before is None else before.attempt.number + 1
                assert name.number == expected, f"{name} follows {before}"
                assert command.seed == training_seed(SEED, name.trial)
                assert command.params == self.trial(name.trial).params
                self._check_incumbents(command)
                others = self._others.get(name.trial)
                assert command.resume_from == self._furthest.get(name.trial, others)
                self.running[name] = placement
                self.starts[name.trial] = command
                self.discarded.discard(name.trial)  # it trains on, and may leave a model again
                for worker in workers:
                    self._check_held(worker)
            case Stop(attempt=name, halt=halt):
                self._stopping = self._stopping or halt is Halt.STOP
                told = self.told_to_stop.get(name)
                is_replaced = told is Halt.PRUNE and halt is not Halt.PRUNE
                assert told is None or is_replaced, f"{name} is told to stop twice"
                self.told_to_stop[name] = halt
                assert name in self.running or name in self.over
            case Continue(attempt=name):
                self.told_to_stop.pop(name, None)  # the order is taken back
            case Ask(numbers=numbers):
                assert self.ask is None, "two questions at once"
                assert not self._stopping, f"{command} while the study stops"
                first = len(self._trial_rows)
                assert [*numbers] == [*range(first, first + len(numbers))]
                assert numbers
                searched = sum(each.confirms is None for each in self._trial_rows.values())
                assert self.total is None or searched + len(numbers) <= self.total
                self.ask = command
            case KeepBest(trials=trials):
                assert trials == self.engine.front
                assert all(trial.state is TrialState.COMPLETE for trial in trials)
                fresh = {trial.number for trial in trials} - self._put_away
                assert not self.discarded & fresh, "is thrown away"
                self._put_away |= fresh
            case Discard(trial=number):
                if number in self.engine.kept:
                    assert number in self._put_away, "its model is not in a safe place"
                else:
                    self.discarded.add(number)
                    self._put_away.discard(number)
            case Finish():
                assert not self.running, f"{command} while {self.running} run"
                self.finish = command
            case _:
                pass

    def _check_incumbents(self, start: Start) -> None:
        if self.trial(start.attempt.trial).confirms is not None:
            assert start.incumbents == ()
        elif not any(trial.confirms is not None for trial in self.engine.trials):
            assert start.incumbents == tuple(trial.score for trial in self.engine.front)

    def _check_held(self, worker: str) -> None:
        capacity = self.workers[worker]
        held = [rank for rank in self._held() if rank.worker == worker]
        cpus, gpus = dict[int, float](), dict[str, float]()
        for placement in held:
            for cpu in placement.cpus:
                cpus[cpu] = cpus.get(cpu, 0.0) + placement.cpu_share
            for gpu in placement.gpus:
                gpus[gpu] = gpus.get(gpu, 0.0) + placement.gpu_share
            assert len(placement.gpus) <= 1 or placement.gpu_share == 1.0
        assert set(cpus) <= set(capacity.cpus)
        assert set(gpus) <= set(capacity.gpus)
        assert all(share <= 1.000001 for share in (*cpus.values(), *gpus.values()))
        if capacity.memory_bytes:
            assert sum(placement.memory_bytes for placement in held) <= capacity.memory_bytes

    def _held(self) -> list[Placement]:
        """Return what the ranks of running attempts hold now, on the workers that there are.

        It may be less than at their start.
        """
        held = [(n, rank) for n in self.running for rank in self._attempt_rows[n].placement.ranks]
        there = [(n, rank) for n, rank in held if rank.worker in self.workers]
        return [rank for n, rank in there if (n, rank.worker) not in self._lost]

    def _check_books(self) -> None:
        snapshot = self.engine.snapshot
        assert {run.attempt.id for run in snapshot.running} == set(self.running)
        if snapshot.stopping:
            assert set(self.running) <= set(self.told_to_stop), "an attempt was not told to stop"
        assert snapshot.workers == len(self.workers)
        assert {each.name for each in self.engine.workers} == self.workers.keys()
        on_excluded = [each for each in self.engine.workers if each.node in self.excluded]
        assert all(each.phase is Phase.DRAINING for each in on_excluded)
        assert snapshot.cpus == sum(len(each.cpus) for each in self.workers.values())
        cpus = sum(len(held.cpus) * held.cpu_share for held in self._held())
        assert snapshot.cpus_held == pytest.approx(cpus)
        assert snapshot.gpus == sum(len(each.gpus) for each in self.workers.values())
        gpus = sum(len(held.gpus) * held.gpu_share for held in self._held())
        assert snapshot.gpus_held == pytest.approx(gpus)
        assert [*self.engine.trials] == [self._trial_rows[n] for n in sorted(self._trial_rows)]
        ended = {name for name, row in self._attempt_rows.items() if row.outcome is not None}
        assert ended == set(self.over)
        assert set(self._attempt_rows) == ended | set(self.running)

    def trial(self, number: int) -> Trial:
        return self._trial_rows[number]

    def attempt(self, name: AttemptId) -> Attempt:
        return self._attempt_rows[name]

    @property
    def attempts(self) -> list[Attempt]:
        return [*self._attempt_rows.values()]

    def check_replay(self) -> None:
        """Check that the same events make the same study."""
        other = Engine(make_pruner)
        for event, commands in self.story:
            assert other.handle(event) == commands
        assert [*other.trials] == [*self.engine.trials]
        assert other.snapshot == self.engine.snapshot
        assert other.active_seconds == self.engine.active_seconds
