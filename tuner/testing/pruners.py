# ruff: noqa: D102  (a test's name says what it asks for)
"""The contract of a pruner as tests.

A plug-in's author writes::

    class TestMyPruner(PrunerSuite):
        def make(self, direction: Direction) -> Pruner:
            return MyPruner(direction=direction)

and inherits the tests. In each, a race runs trials in a few slots as the engine does, and records
all facts and decisions.
"""

from __future__ import annotations

import abc
import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import pytest

from ..core.pruner import Decision, Pruner
from ..core.trial import Direction, TrialState

EPOCHS = 30
TRIALS = 40
SEEDS = range(6)

each_seed = pytest.mark.parametrize("seed", SEEDS)
each_direction = pytest.mark.parametrize("direction", Direction)

Value = Callable[[int, int], float]
"""Returns the value of a trial at a step; more is better."""


@dataclass(frozen=True, slots=True)
class ReportFact:
    """A reported value."""

    trial: int
    step: int
    value: float

    def tell(self, pruner: Pruner) -> None:
        """Pass the fact to a pruner."""
        pruner.report(self.trial, self.step, self.value)


@dataclass(frozen=True, slots=True)
class MoveFact:
    """A change of a trial's state."""

    trial: int
    state: TrialState

    def tell(self, pruner: Pruner) -> None:
        """Pass the fact to a pruner."""
        pruner.moved(self.trial, self.state)


@dataclass(slots=True)
class Race:
    """Trials that run in a few slots and are stopped, paused and promoted by a pruner.

    Attributes:
        pruner: The pruner.
        value: The value of a trial at a step; more is better for both directions.
        direction: The pruner's direction; with MIN it is told the negated values.
        seed: Seed of the order of events.
        places: Number of trials that run in parallel.
        most_steps: Maximum number of steps between two decisions on a trial.
        trials: Number of trials.
        facts: All facts, in order.
        answers: All answers, in order: trial and decision, or None and a promotion.
        states: State of each trial.
        steps: Last step of each trial.
        best: Best value of each trial.
    """

    pruner: Pruner
    value: Value
    direction: Direction = Direction.MAX
    seed: int = 0
    places: int = 4
    most_steps: int = 1
    trials: int = TRIALS
    facts: list[ReportFact | MoveFact] = field(default_factory=list)
    answers: list[tuple[int | None, object]] = field(default_factory=list)
    states: dict[int, TrialState] = field(default_factory=dict)
    steps: dict[int, int] = field(default_factory=dict)
    best: dict[int, float] = field(default_factory=dict)

    def run(self, turns: int | None = None) -> Race:
        """Run to the end, or for this number of turns."""
        rng = random.Random(self.seed)
        while turns is None or turns > 0:
            running = self.fill()
            if not running:
                break
            self.advance(rng.choice(running), rng)
            turns = None if turns is None else turns - 1
            assert len(self.facts) < 100 * TRIALS * EPOCHS, "the race does not end"
        return self

    @property
    def leader(self) -> int:
        """The trial with the best value; the first of equal ones."""
        return max(self.best, key=lambda trial: (self.best[trial], -trial))

    def standing(self, state: TrialState) -> list[int]:
        """Return the trials in this state."""
        return [trial for trial, at in self.states.items() if at is state]

    def fill(self) -> list[int]:
        """Give free slots to promoted and then to new trials; return the running ones."""
        while len(running := self.standing(TrialState.RUNNING)) < self.places:
            is_last = not running and len(self.states) == self.trials
            trial = self.promotion(is_last=is_last)
            if trial is not None:
                self.move(trial, TrialState.WAITING)
            elif len(self.states) < self.trials:
                trial = len(self.states)
            else:
                break
            self.states[trial] = TrialState.RUNNING
        return self.standing(TrialState.RUNNING)

    def advance(self, trial: int, rng: random.Random) -> None:
        """Train a trial for some steps, and apply the pruner's decision."""
        for _ in range(rng.randint(1, self.most_steps)):
            step = self.steps[trial] = self.steps.get(trial, 0) + 1
            best = max(self.value(trial, step), self.best.get(trial, -float("inf")))
            self.best[trial] = best
            self.tell(ReportFact(trial, step, best if self.direction is Direction.MAX else -best))
            if step == EPOCHS:
                self.move(trial, TrialState.COMPLETE)
                return
        decision = self.pruner.decide(trial)
        self.answers.append((trial, decision))
        match decision:
            case Decision.CONTINUE:
                self.move(trial, TrialState.RUNNING)
            case Decision.PAUSE:
                self.move(trial, TrialState.PAUSED)
            case Decision.STOP:
                assert trial != self.leader, f"{trial} is the best of all, and is stopped"
                self.move(trial, TrialState.PRUNED)

    def promotion(self, *, is_last: bool) -> int | None:
        """Return the trial that the pruner promotes."""
        trial = self.pruner.promotion(is_last=is_last)
        self.answers.append((None, trial))
        if trial is not None:
            assert type(trial) is int
            assert self.states.get(trial) is TrialState.PAUSED, (
                f"{trial} is promoted, and not paused"
            )
        return trial

    def move(self, trial: int, state: TrialState) -> None:
        """Change a trial's state, and tell the pruner."""
        self.states[trial] = state
        self.tell(MoveFact(trial, state))

    def tell(self, fact: ReportFact | MoveFact) -> None:
        """Record a fact, and tell the pruner."""
        self.facts.append(fact)
        fact.tell(self.pruner)

    def knowledge(self, pruner: Pruner) -> list[object]:
        """Return all answers that a pruner gives after this race's facts.

        These are its decisions on running trials, its promotions, and its decisions on new
        trials of all qualities. The questions add facts, so the pruner cannot be used again.
        """
        found: list[object] = [pruner.decide(n) for n in self.standing(TrialState.RUNNING)]
        for is_last in (False, True):
            while (trial := pruner.promotion(is_last=is_last)) is not None:
                found.append(trial)
                pruner.moved(trial, TrialState.RUNNING)
        values = sorted(self.best.values())
        for newcomer, value in enumerate(values, start=10 * TRIALS):
            for step in range(1, EPOCHS):
                told = value if self.direction is Direction.MAX else -value
                pruner.report(newcomer, step, told)
                decision = pruner.decide(newcomer)
                if decision is not Decision.CONTINUE:
                    found.append((newcomer, step, decision))
                    break
                pruner.moved(newcomer, TrialState.RUNNING)
        return found


def curves(seed: int) -> Value:
    """Return learning curves with different limits and speeds, and with noise, which may cross."""

    def value(trial: int, step: int) -> float:
        own = random.Random(f"{seed} {trial}")
        height, speed = own.random(), 0.05 + own.random()
        noise = random.Random(f"{seed} {trial} {step}").gauss(0.0, 0.02)
        return height * (1.0 - 1.0 / (1.0 + speed * step)) + noise

    return value


class PrunerSuite(abc.ABC):
    """The contract of a pruner. Subclass it as Test…, and supply `make`.

    Attributes:
        prunes: Whether poor trials are stopped or paused.
        judges_at_rungs_only: Whether trials are stopped or paused only at rungs.
    """

    prunes = True
    judges_at_rungs_only = True

    @abc.abstractmethod
    def make(self, direction: Direction) -> Pruner:
        """Return a new pruner for trainings of `EPOCHS` epochs."""

    def race(self, seed: int, direction: Direction = Direction.MAX, most_steps: int = 1) -> Race:
        """Return a race that has not started."""
        pruner = self.make(direction)
        return Race(pruner, curves(seed), direction, seed, most_steps=most_steps)

    # --- what it is for -----------------------------------------------------------------------

    @each_direction
    @each_seed
    def test_every_race_ends_and_the_best_trial_is_trained_in_full(
        self, seed: int, direction: Direction
    ) -> None:
        for trials in (TRIALS, 5):
            race = self.race(seed, direction)
            race.trials = trials
            race.run()
            assert len(race.states) == trials
            assert race.states[race.leader] is TrialState.COMPLETE

    @each_seed
    def test_poor_trials_are_spared_their_epochs(self, seed: int) -> None:
        race = self.race(seed).run()
        assert (sum(race.steps.values()) < TRIALS * EPOCHS) == self.prunes

    @each_direction
    @each_seed
    def test_the_best_trial_seen_so_far_is_never_stopped(
        self, seed: int, direction: Direction
    ) -> None:
        # `Race` checks it at each decision; here the lead changes with almost every trial.
        race = Race(self.make(direction), lambda trial, step: trial + step / 100, direction, seed)
        race.run()
        assert race.states[race.leader] is TrialState.COMPLETE
        # The leader of a race in which late steps turn everything over.
        turning = Race(self.make(direction), _late_bloomers, direction, seed, most_steps=3)
        turning.run()
        assert turning.states[turning.leader] is TrialState.COMPLETE

    def test_equal_trials_leave_one_that_is_trained_in_full(self) -> None:
        race = Race(self.make(Direction.MAX), _all_equal).run()
        assert race.standing(TrialState.COMPLETE)

    @each_direction
    def test_while_no_trial_has_a_value_none_is_stopped(self, direction: Direction) -> None:
        race = Race(self.make(direction), _no_value, direction).run()
        assert race.standing(TrialState.COMPLETE) == [*range(TRIALS)]

    def test_trials_without_a_value_are_spared_most(self) -> None:
        half, without, with_one = TRIALS // 2, 0, 0
        for seed in SEEDS:
            for odd in (0, 1):  # a trial's number may say how early it is judged
                race, curve = self.race(seed), curves(seed)
                race.value = _every_other_one_has_none(curve, after=half, odd=odd)
                race.run()
                without += sum(race.steps[number] for number in range(half + odd, TRIALS, 2))
                with_one += sum(race.steps[number] for number in range(half + 1 - odd, TRIALS, 2))
        assert (without < with_one) == self.prunes

    # --- facts and questions ------------------------------------------------------------------

    @each_seed
    def test_asking_changes_nothing(self, seed: int) -> None:
        asked_often = self.race(seed)
        asked_often.pruner = _AskedThrice(asked_often.pruner)
        asked_often.run(turns=300)
        asked_once = self.race(seed).run(turns=300)
        assert asked_often.answers == asked_once.answers
        told_only = self.make(Direction.MAX)
        for fact in asked_once.facts:
            fact.tell(told_only)
        assert asked_once.knowledge(told_only) == asked_once.knowledge(asked_once.pruner)

    @each_seed
    def test_facts_that_are_reported_twice_count_once(self, seed: int) -> None:
        race = self.race(seed).run(turns=200)
        again = self.make(Direction.MAX)
        for fact in race.facts:
            fact.tell(again)
            fact.tell(again)
        assert race.knowledge(again) == race.knowledge(race.pruner)

    @each_seed
    def test_reports_may_come_late_and_in_another_order(self, seed: int) -> None:
        race = self.race(seed, most_steps=5).run(turns=120)
        expected = race.knowledge(race.pruner)
        for shuffle in range(4):
            other = self.make(Direction.MAX)
            for fact in shuffled(race.facts, seed=shuffle):
                fact.tell(other)
            assert race.knowledge(other) == expected

    @each_seed
    def test_what_comes_after_a_trial_is_over_is_ignored(self, seed: int) -> None:
        race = self.race(seed).run(turns=200)
        again = self.make(Direction.MAX)
        for fact in race.facts:
            fact.tell(again)
        for trial, state in race.states.items():
            if state.is_final:
                for step in range(1, EPOCHS):
                    again.report(trial, step, 2.0)
                again.moved(trial, state)
        assert race.knowledge(again) == race.knowledge(race.pruner)

    @each_seed
    def test_the_direction_makes_no_difference(self, seed: int) -> None:
        more, less = (self.race(seed, direction).run() for direction in Direction)
        assert more.answers == less.answers
        assert more.states == less.states

    def test_trials_that_reported_nothing_go_on(self) -> None:
        pruner = self.make(Direction.MIN)
        pruner.moved(7, TrialState.RUNNING)
        assert pruner.decide(7) is Decision.CONTINUE
        assert pruner.decide(8) is Decision.CONTINUE
        pruner.moved(7, TrialState.FAILED)
        assert pruner.promotion(is_last=True) is None

    # --- rungs --------------------------------------------------------------------------------

    def test_rungs_are_whole_numbers_that_ascend(self) -> None:
        rungs = self.make(Direction.MAX).rungs
        assert all(type(rung) is int for rung in rungs)
        assert list(rungs) == sorted(set(rungs))
        assert not rungs or rungs[0] >= 1
        assert not rungs or rungs[-1] < EPOCHS
        assert bool(rungs) == self.prunes

    @each_seed
    def test_trials_are_judged_at_rungs_and_nowhere_else(self, seed: int) -> None:
        if not self.judges_at_rungs_only:
            return
        race = self.race(seed)
        rungs = race.pruner.rungs
        places = {step for fact in race.run().facts if (step := _stopped_at(fact, race))}
        assert places <= set(rungs)

    @each_seed
    def test_steps_may_be_left_out(self, seed: int) -> None:
        pruner = self.make(Direction.MAX)
        thinned = Race(pruner, curves(seed), seed=seed, most_steps=7)
        thinned.run()
        assert thinned.states[thinned.leader] is TrialState.COMPLETE


class _AskedThrice(Pruner):
    """Asks another pruner everything three times, and checks that the answers are equal."""

    def __init__(self, pruner: Pruner) -> None:
        self._pruner = pruner

    @property
    def rungs(self) -> tuple[int, ...]:
        return self._pruner.rungs

    def report(self, trial: int, step: int, value: float) -> None:
        self._pruner.report(trial, step, value)

    def moved(self, trial: int, state: TrialState) -> None:
        self._pruner.moved(trial, state)

    def decide(self, trial: int) -> Decision:
        answers = [self._pruner.decide(trial) for _ in range(3)]
        assert len(set(answers)) == 1, f"asked thrice about {trial}: {answers}"
        return answers[0]

    def promotion(self, *, is_last: bool) -> int | None:
        answers = [self._pruner.promotion(is_last=is_last) for _ in range(3)]
        assert len(set(answers)) == 1, f"asked thrice whom to promote: {answers}"
        return answers[0]


def shuffled(facts: Sequence[ReportFact | MoveFact], seed: int) -> list[ReportFact | MoveFact]:
    """Return the facts in another order.

    Trials are interleaved at random, and so are the reports of a trial between two of its state
    changes. A state change stays after the reports before it, because it refers to them.
    """
    rng = random.Random(seed)
    parts: dict[int, list[list[ReportFact | MoveFact]]] = {}
    for fact in facts:
        own = parts.setdefault(fact.trial, [[]])
        if isinstance(fact, MoveFact):
            rng.shuffle(own[-1])
            own[-1].append(fact)
            own.append([])
        else:
            own[-1].append(fact)
    queues = [[fact for part in own for fact in part] for own in parts.values()]
    told = []
    while queues:
        queue = rng.choice(queues)
        told.append(queue.pop(0))
        queues = [each for each in queues if each]
    return told


def _no_value(trial: int, step: int) -> float:  # noqa: ARG001 - it is the same for all
    return -math.inf


def _every_other_one_has_none(curve: Value, *, after: int, odd: int) -> Value:
    return lambda trial, step: (
        -math.inf if trial >= after and trial % 2 == odd else curve(trial, step)
    )


def _all_equal(trial: int, step: int) -> float:  # noqa: ARG001 - a curve's
    return 0.5


def _late_bloomers(trial: int, step: int) -> float:
    return 1.0 / (trial + 1) if step < EPOCHS // 2 else float(trial)


def _stopped_at(fact: ReportFact | MoveFact, race: Race) -> int | None:
    if isinstance(fact, MoveFact) and fact.state is TrialState.PRUNED:
        return race.steps[fact.trial]
    return None
