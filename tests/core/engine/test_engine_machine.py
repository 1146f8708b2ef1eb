"""Any order of legal events, late and repeated ones included, keeps the engine consistent."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from engine_driver import GOAL, EngineDriver, returned
from hptune.core.attempt import AttemptId, Cause, Ending, Halt, Outcome, Usage
from hptune.core.budget import Device, DeviceBudget
from hptune.core.goals import Comparison, Constraint, Goals
from hptune.core.messages import (
    Ask,
    Command,
    Continue,
    Finish,
    FinishReason,
    GrowSpace,
    Start,
    Stop,
    StudyClosed,
    Tell,
    WorkerJoined,
    WorkerLeaving,
    WorkerRefused,
)
from hptune.core.node_failures import MAX_NODE_FAILURES
from hptune.core.pruner import PrunerSettings
from hptune.core.ranking import Ranking
from hptune.core.resources import Amount, Capacity, Resources
from hptune.core.trial import Direction, Goal, TrialState
from hptune.core.user_requests import UserAction

BUDGETS = st.none() | st.integers(1, 12)
LIMITS = st.none() | st.integers(0, 3)
PARALLEL = st.sampled_from(
    [
        Resources(processes=2),
        Resources(processes=2, gpus=0, memory_bytes=4),
        Resources(processes=2, nodes=2),
        Resources(processes=2, nodes=2, gpus=2),
        Resources(processes=4, nodes=2, gpus=0),
        Resources(processes=3, nodes=3, cpus=6, gpus=0, memory_bytes=9),
    ]
)
PLAIN = st.builds(
    Resources,
    cpus=st.sampled_from([0.4, 0.5, 1, 1, 2, 3]),
    gpus=st.sampled_from([None, 0, 0.5, 1, 2]),
    memory_bytes=st.sampled_from([0, 4]),
)
RESOURCES = PLAIN | PLAIN | PARALLEL
OWN_RESOURCES = st.lists(st.none() | RESOURCES, min_size=1, max_size=4)
CAPACITIES = st.builds(
    lambda cores, gpus, memory, taken: Capacity(
        tuple(range(10, 10 + cores)),
        tuple("ABCD"[:gpus]),
        memory_bytes=memory,
        gpu_memory_bytes=10 * (memory > 3),
        memory_taken_bytes=taken,
    ),
    cores=st.integers(0, 6),
    gpus=st.integers(0, 3),
    memory=st.sampled_from([0, 3, 9]),
    taken=st.sampled_from([0, 0, 2]),
)
PRUNERS = st.just(PrunerSettings()) | st.builds(
    PrunerSettings,
    name=st.sampled_from(["asha", "hyperband"]),
    epochs=st.sampled_from([4, 9]),
    options=st.fixed_dictionaries(
        {
            "reduction_factor": st.sampled_from([2, 3]),
            "pruner_mode": st.sampled_from(["stop", "promote"]),
        }
    ),
)
SMALL = Constraint("size", Comparison.AT_MOST, 2.0)
GOALS = st.builds(
    Goals,
    st.sampled_from([(GOAL,), (GOAL, Goal("size", Direction.MIN))]),
    st.sampled_from([(), (SMALL,)]),
)
OPENINGS = st.fixed_dictionaries(
    {
        "trials": BUDGETS,
        "resources": RESOURCES,
        "max_failures": LIMITS,
        "first": st.sampled_from([0, 0, 1, 2, 5]),
        "same_failure_limit": st.integers(0, 3),
        "confirm": st.sampled_from([0, 0, 1, 3]),
        "keep_checkpoints": st.integers(0, 3),
        "budget": st.sampled_from([None, None, DeviceBudget(Device.CORE, 0.004)]),
        "measured": st.sampled_from([(), tuple(Amount), (Amount.MEMORY,), (Amount.CPUS,)]),
        "learns": st.booleans(),
        "splits": st.booleans(),
    }
)
SCORES = st.sampled_from([0.0, 0.5, 1.0, -1.0, math.nan, math.inf])
SIZES = st.sampled_from([1.0, 2.0, 3.0, None, math.inf])
ENDINGS = (
    st.builds(returned, SCORES, size=st.sampled_from([1.0, 2.0, 3.0, 4.0]))
    | st.builds(
        Ending,
        st.sampled_from([each for each in Cause if each is not Cause.MASTER_LOST]),
        reason=st.sampled_from(["ValueError: 1", "KeyError: 2"]),
    )
    | st.just(Ending(Cause.RETURNED, {"other": 1.0}))
)


def without_study_stops(commands: list[Command]) -> list[Command]:
    """Return the commands without stops of all attempts: any event may reveal a spent budget."""
    return [each for each in commands if not (isinstance(each, Stop) and each.halt is Halt.STOP)]


class EngineMachine(RuleBasedStateMachine):
    """Events from the loop and from any executor, in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.driver = EngineDriver()
        self.joined = 0
        self.clock = 0.0
        self.steps = 0
        self.went_on = set[int]()
        self.stopped = set[int]()
        self.ends = list[float]()

    def some_attempt(self, data: st.DataObject, *, late: bool) -> AttemptId:
        names = self.driver.over if late else [*self.driver.running]
        return data.draw(st.sampled_from(names))

    @initialize(
        opening=OPENINGS,
        goals=GOALS,
        pruner=PRUNERS,
        repeats=st.integers(1, 2),
    )
    def first_opening(
        self,
        *,
        opening: Mapping[str, Any],
        goals: Goals,
        pruner: PrunerSettings,
        repeats: int,
    ) -> None:
        self.goals, self.repeats = goals, repeats
        self.open(opening, pruner, 0)

    @property
    def has_lived(self) -> bool:
        """Return whether enough has happened for a break to be of interest."""
        return self.steps >= 8

    @invariant()
    def count(self) -> None:
        self.steps += 1

    @precondition(lambda self: self.has_lived)
    @rule(
        opening=OPENINGS,
        pruner=st.none() | PRUNERS,
        more=st.integers(0, 3),
        added=st.integers(0, 2),
        retries=st.booleans(),
        data=st.data(),
    )
    def another_master(
        self,
        *,
        opening: Mapping[str, Any],
        pruner: PrunerSettings | None,
        more: int,
        added: int,
        retries: bool,
        data: st.DataObject,
    ) -> None:
        retried = self.driver.engine.able_to_retry if retries else ()
        before = {name: (self.driver.nodes[name], has) for name, has in self.driver.workers.items()}
        self.open(opening, pruner or self.pruner, more, added, retried)
        returning = data.draw(st.lists(st.sampled_from([*before]), unique=True)) if before else []
        for name in returning:
            node, capacity = before[name]
            self.driver.join_with(name, capacity, node=node)

    def open(
        self,
        opening: Mapping[str, Any],
        pruner: PrunerSettings,
        more: int,
        added: int = 0,
        retried: tuple[int, ...] = (),
    ) -> None:
        self.pruner, self.opening, self.steps = pruner, opening, 0
        able = self.driver.engine.able_to_go_on
        go_on = able[: min(more, opening["keep_checkpoints"])]
        self.went_on.update(go_on)
        self.driver.open(
            **opening,
            goals=self.goals,
            pruner=pruner,
            confirm_repeats=self.repeats,
            go_on=go_on,
            added=[{"added": each} for each in range(added)],
            retried=retried,
            retries_nodes=bool(retried),
        )

    @precondition(lambda self: self.has_lived)
    @rule(data=st.data(), ending=ENDINGS)
    def another_master_collects(self, data: st.DataObject, ending: Ending) -> None:
        self.driver.feed(StudyClosed(self.driver.at))
        if self.driver.running:
            name = self.some_attempt(data, late=False)
            assert not any(isinstance(c, Start | Ask) for c in self.driver.end(name, ending))
        self.open(self.opening, self.pruner, 0)

    @rule(
        capacity=CAPACITIES,
        lasts=st.sampled_from([None, None, 5.0, 30.0]),
        node=st.sampled_from(["", "", "n1"]),
        gang=st.sampled_from(["", "job 1", "job 2"]),
        is_back=st.booleans(),
    )
    def worker_joins(
        self, *, capacity: Capacity, lasts: float | None, node: str, gang: str, is_back: bool
    ) -> None:
        # One that left may be back before an attempt ends that had a rank there.
        if not (is_back and f"w{self.joined}" not in self.driver.workers):
            self.joined += 1
        ends_at = None if lasts is None else self.driver.at + lasts
        self.ends += [] if ends_at is None else [ends_at]
        self.driver.join_with(f"w{self.joined}", capacity, ends_at=ends_at, node=node, gang=gang)

    @precondition(lambda self: self.driver.running)
    @rule(
        data=st.data(),
        memory=st.integers(1, 12),
        gpu_memory=st.sampled_from([None, 2, 20]),
        busy=st.sampled_from([0.05, 0.3, 1.0]),
        step_seconds=st.sampled_from([None, 1.0, 9.0]),
        free_share=st.sampled_from([None, 0.0, 0.4, 1.0]),
    )
    def attempt_is_measured(
        self,
        *,
        data: st.DataObject,
        memory: int,
        gpu_memory: int | None,
        busy: float,
        step_seconds: float | None,
        free_share: float | None,
    ) -> None:
        self.clock += 10.0
        usage = Usage(
            peak_memory_bytes=memory,
            peak_gpu_memory_bytes=gpu_memory,
            cpu_seconds=busy * self.clock,
            seconds=self.clock,
            seconds_per_step=step_seconds,
        )
        name = self.some_attempt(data, late=False)
        self.driver.measure(name, usage, free_share=free_share)

    @precondition(lambda self: self.driver.workers and self.has_lived)
    @rule(data=st.data())
    def worker_leaves(self, data: st.DataObject) -> None:
        self.driver.leave(data.draw(st.sampled_from([*self.driver.workers])))

    @precondition(lambda self: self.driver.workers and self.has_lived)
    @rule(data=st.data())
    def worker_is_about_to_leave(self, data: st.DataObject) -> None:
        self.driver.about_to_leave(data.draw(st.sampled_from([*self.driver.workers])))

    @precondition(lambda self: self.has_lived)
    @rule()
    def an_unknown_worker_leaves(self) -> None:
        assert without_study_stops(self.driver.leave("never seen")) == []

    @precondition(lambda self: self.driver.ask is not None)
    @rule(own=OWN_RESOURCES)
    def sampler_answers(self, own: list[Resources | None]) -> None:
        self.driver.suggest(resources=lambda number: own[number % len(own)])

    @precondition(lambda self: self.driver.ask is not None)
    @rule(data=st.data())
    def sampler_is_exhausted(self, data: st.DataObject) -> None:
        assert self.driver.ask is not None
        numbers = self.driver.ask.numbers
        found = data.draw(st.integers(0, len(numbers) - 1))
        self.driver.suggest([{"x": number} for number in numbers[:found]])

    @precondition(lambda self: self.driver.running)
    @rule(data=st.data())
    def attempt_starts(self, data: st.DataObject) -> None:
        assert without_study_stops(self.driver.started(self.some_attempt(data, late=False))) == []

    @precondition(lambda self: self.driver.running)
    @rule(data=st.data(), step=st.integers(1, 9), score=SCORES, size=SIZES)
    def attempt_reports(
        self, data: st.DataObject, step: int, score: float, size: float | None
    ) -> None:
        name = self.some_attempt(data, late=False)
        sizes = {} if size is None else {"size": size}
        commands = without_study_stops(self.driver.report(name, step, score=score, **sizes))
        stops = [each for each in commands if isinstance(each, Stop)]
        # What is known at a rung now may promote another trial, for which there has been room.
        promotes = self.pruner.options.get("pruner_mode") == "promote"
        if not promotes:  # a lost trial takes its node again once no other one lasts long enough
            commands = [each for each in commands if not self.is_again(each)]
        answers = [each for each in commands if isinstance(each, Continue)]
        assert answers in ([], [Continue(name, step)])
        assert not (answers and stops)
        others = [each for each in commands if not isinstance(each, Stop | Tell | Continue)]
        assert not others or (promotes and all(isinstance(each, Start) for each in others))
        assert [each.attempt for each in stops] in ([], [name])
        values = {"score": score, **sizes}
        wanted = [values.get(goal.metric, math.nan) for goal in self.goals.objectives]
        if not all(map(math.isfinite, wanted)) or self.pruner.name == "none":
            assert commands == []
        latest = {run.attempt.id: run.latest for run in self.driver.engine.snapshot.running}[name]
        assert latest is not None
        assert latest.step == step

    def is_again(self, command: Command) -> bool:
        """Return whether it starts a trial again that was lost."""
        if not isinstance(command, Start) or not command.attempt.number:
            return False
        before = command.attempt._replace(number=command.attempt.number - 1)
        return self.driver.attempt(before).outcome is Outcome.LOST

    @precondition(lambda self: self.driver.running)
    @rule(data=st.data(), grows=st.booleans())
    def attempt_draws_more(self, data: st.DataObject, grows: bool) -> None:
        name = self.some_attempt(data, late=False)
        values = {**self.driver.trial(name.trial).params, "late": 1}
        declared = [{"class_name": "Int", "config": {"name": "late"}}] if grows else []
        commands = self.driver.used(name, values, declared)
        assert any(isinstance(command, GrowSpace) for command in commands) == grows
        assert self.driver.trial(name.trial).params == values

    @precondition(lambda self: self.driver.running)
    @rule(data=st.data(), ending=ENDINGS)
    def attempt_ends(self, data: st.DataObject, ending: Ending) -> None:
        self.driver.end(self.some_attempt(data, late=False), ending)

    @precondition(lambda self: self.driver.running and len(self.driver.workers) > 1)
    @rule(data=st.data(), cause=st.sampled_from([Cause.KILLED, Cause.WORKER_LOST]))
    def a_node_loses_what_it_runs(self, data: st.DataObject, cause: Cause) -> None:
        node = self.driver.nodes[self.driver.running[self.some_attempt(data, late=False)].worker]
        for _ in range(MAX_NODE_FAILURES):
            for name, held in [*self.driver.running.items()]:
                if {self.driver.nodes[each] for each in held.workers} == {node}:
                    self.driver.end(name, Ending(cause))

    @precondition(lambda self: self.driver.workers)
    @rule(data=st.data())
    def what_has_no_row_changes_no_worker(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from([*self.driver.workers]))
        before = [*self.driver.engine.workers]
        at, node = self.driver.at, self.driver.nodes[name]
        self.driver.feed(WorkerJoined(at, name, "elsewhere", Capacity((99,))))
        self.driver.feed(WorkerRefused(at, name, node, "late"))
        if name in self.driver.leaving:
            self.driver.feed(WorkerLeaving(at, name, "again"))
        assert [*self.driver.engine.workers] == before

    @precondition(lambda self: self.driver.running)
    @rule(data=st.data(), others=st.integers(0, 3))
    def attempt_does_as_it_was_told(self, data: st.DataObject, others: int) -> None:
        name = self.some_attempt(data, late=False)
        halt = self.driver.told_to_stop.get(name)
        if halt is None:
            return
        measured = bool(self.driver.starts[name.trial].resume_from) or halt is not Halt.STOP
        self.driver.end(name, Ending(halt.cause))
        trial = self.driver.trial(name.trial)
        if halt is Halt.PRUNE:
            # A trial that trained on without a better result is as complete as before.
            was_complete = trial.number in self.went_on and trial.state is TrialState.COMPLETE
            assert was_complete or trial.state is TrialState.PRUNED
        if trial.number not in self.stopped and trial.state in (
            TrialState.PRUNED,
            TrialState.PAUSED,
        ):
            assert measured
            assert trial.value is not None

    @precondition(lambda self: self.driver.over)
    @rule(data=st.data(), ending=ENDINGS)
    def late_messages_change_nothing(self, data: st.DataObject, ending: Ending) -> None:
        name = self.some_attempt(data, late=True)
        before, began = self.driver.engine.snapshot, self.driver.at
        answers: list[Command] = [
            *self.driver.started(name),
            *self.driver.report(name, 99, score=9.0),
            *self.driver.used(name, {"x": -1}, [{"class_name": "Int"}]),
            *self.driver.end(name, ending),
        ]
        others = without_study_stops(answers)
        if others and any(end > began for end in self.ends):
            # Trials that were lost waited for another node, which ends too soon for them by now.
            assert all(isinstance(c, Start) and c.attempt.number > 0 for c in others)
            return
        assert others == []
        # The time of the message may be after the end of a worker, or of the budget.
        after = self.driver.engine.snapshot
        expected = replace(before, stall_reason=after.stall_reason)
        if self.opening["budget"] and after.stopping and not before.stopping:
            assert sum(after.sizes.values()) == len(after.running), "others will not begin"
            expected = replace(expected, stopping=after.stopping, sizes=after.sizes)
        assert after == expected

    @precondition(lambda self: self.driver.finish is None and bool([*self.driver.engine.trials]))
    @rule(data=st.data())
    def a_user_stops_a_trial(self, data: st.DataObject) -> None:
        number = data.draw(st.sampled_from([t.number for t in self.driver.engine.trials]))
        before = self.driver.trial(number)
        self.stopped.add(number)
        self.driver.user(UserAction.STOP_TRIAL, trial=number)
        after = self.driver.trial(number)
        if before.state is TrialState.RUNNING or before.state.is_final:
            assert after == before
        elif number not in self.went_on:
            assert after.state is TrialState.PRUNED
        assert after.state.is_final or after.state is TrialState.RUNNING

    @precondition(lambda self: self.has_lived)
    @rule(finish_reason=st.sampled_from([FinishReason.INTERRUPTED, FinishReason.TIME_UP]))
    def stop_is_requested(self, finish_reason: FinishReason) -> None:
        self.driver.stop(finish_reason)
        assert self.driver.engine.snapshot.stopping or self.driver.finish

    def teardown(self) -> None:
        if self.driver.engine.active_seconds or self.driver.story:
            self.finish_the_study()
            self.driver.check_replay()

    def finish_the_study(self) -> None:
        """Answer every question and every start, and check that the study is over."""
        driver = self.driver
        if driver.finish is None:
            large = Capacity(tuple(range(9)), ("A", "B"), memory_bytes=99, gpu_memory_bytes=10)
            for number in range(3):
                driver.join_with(f"large{number}", large)
        for _ in range(600):
            if driver.finish is not None:
                break
            if driver.ask is not None:
                driver.suggest(None if len(driver.ask.numbers) < 20 else [])
            elif driver.running:
                name = next(iter(driver.running))
                step = (driver.starts[name.trial].resume_from or 0) + 1
                if step < 9 and name not in driver.told_to_stop:
                    driver.report(name, step, score=name.trial % 5 / 5)
                halt = driver.told_to_stop.get(name)
                if halt is not None:
                    driver.end(name, Ending(halt.cause))
                else:
                    driver.end(name, returned(0.1, size=1.0))
            if len([*driver.engine.trials]) > 60:
                driver.stop()
        assert isinstance(driver.finish, Finish), "the study does not end"
        if driver.finish.finish_reason in (FinishReason.DONE, FinishReason.EXHAUSTED):
            assert all(trial.state.is_final for trial in driver.engine.trials)
        self.check_the_ledgers_readers()
        states_told: dict[int, TrialState] = {}
        for _, commands in driver.story:
            for command in commands:
                if isinstance(command, Tell):
                    states_told[command.trial.number] = command.trial.state
        for trial in driver.engine.results:  # of one that trains on, that which it had
            lasts = trial.state.is_final or trial.state is TrialState.PAUSED
            expected = trial.state if lasts else TrialState.WAITING
            assert states_told[trial.number] in (expected, TrialState.RUNNING)

    def check_the_ledgers_readers(self) -> None:
        """Check that the ledger's tables give the same best trials."""
        engine = self.driver.engine
        trials = [replace(t, extra_values=(), violation=0.0) for t in engine.trials]
        judged = [self.goals.judged(trial) for trial in trials]
        best = Ranking.of(self.goals, judged, self.driver.attempts).best
        # One that trained on without a better result is as it was ranked, but for its attempts and
        # the full training as the last of them began, for what it drew, and for what it reported at
        # a new pruner's rungs on its way.
        assert [replace(t, attempts=0, epochs=None, rungs={}, params={}) for t in best] == [
            replace(t, attempts=0, epochs=None, rungs={}, params={}) for t in engine.front
        ]


EngineMachine.TestCase.settings = settings(max_examples=25, stateful_step_count=40, deadline=None)
TestEngine = EngineMachine.TestCase


@pytest.mark.slow
class TestEngineLonger(EngineMachine.TestCase):  # type: ignore[misc, valid-type]
    """More examples of the same."""

    settings = settings(EngineMachine.TestCase.settings, max_examples=400)
