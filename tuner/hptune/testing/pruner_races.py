"""Races of trials that a pruner stops, pauses and promotes, and what it is told in them."""

from __future__ import annotations

import functools
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from ..core.pruner import Decision, Pruner
from ..core.trial import Direction, TrialState

EPOCHS = 30
TRIALS = 40

_Answer = TypeVar("_Answer")

Values = tuple[float, ...]
"""One value for each objective; more is better."""

Curve = Callable[[int, int], Values]
"""Returns the values of a trial at a step."""


@dataclass(frozen=True, slots=True)
class ReportFact:
    """A reported result."""

    trial: int
    step: int
    values: Values

    def tell(self, pruner: Pruner) -> None:
        """Pass the fact to a pruner."""
        pruner.report(self.trial, self.step, self.values)


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
        curve: The values of a trial at a step; more is better for both directions.
        directions: The pruner's directions; with MIN it is told the negated values.
        seed: Seed of the order of events.
        places: Number of trials that run in parallel.
        most_steps: Maximum number of steps between two decisions on a trial.
        trials: Number of trials.
        times_asked: How often each question is asked.
        facts: All facts, in order.
        answers: All answers, in order: trial and decision, or None and a promotion.
        states: State of each trial.
        steps: Last step of each trial.
        best: Values of each trial's best step so far, by the first objective.
    """

    pruner: Pruner
    curve: Curve
    directions: tuple[Direction, ...]
    seed: int = 0
    places: int = 4
    most_steps: int = 1
    trials: int = TRIALS
    times_asked: int = 1
    facts: list[ReportFact | MoveFact] = field(default_factory=list)
    answers: list[tuple[int | None, object]] = field(default_factory=list)
    states: dict[int, TrialState] = field(default_factory=dict)
    steps: dict[int, int] = field(default_factory=dict)
    best: dict[int, Values] = field(default_factory=dict)

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
    def leaders(self) -> list[int]:
        """The trials that no other one beats; of equal ones, the first."""
        return [trial for trial in self.best if self.leads(trial)]

    def leads(self, trial: int) -> bool:
        """Return whether no other trial beats this one."""
        mine = self.best[trial]
        return not any(
            all(theirs >= value for theirs, value in zip(others, mine, strict=True))
            and (others != mine or other < trial)
            for other, others in self.best.items()
            if other != trial
        )

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
        return running

    def advance(self, trial: int, rng: random.Random) -> None:
        """Train a trial for some steps, and apply the pruner's decision."""
        for _ in range(rng.randint(1, self.most_steps)):
            step = self.steps[trial] = self.steps.get(trial, 0) + 1
            values, before = self.curve(trial, step), self.best.get(trial)
            if before is None or values[0] > before[0]:
                self.best[trial] = values
            self.tell(ReportFact(trial, step, self.signed(self.best[trial])))
            if step == EPOCHS:
                self.move(trial, TrialState.COMPLETE)
                return
        decision = self._asked(lambda: self.pruner.decide(trial))
        self.answers.append((trial, decision))
        match decision:
            case Decision.CONTINUE:
                self.move(trial, TrialState.RUNNING)
            case Decision.PAUSE:
                self.move(trial, TrialState.PAUSED)
            case Decision.STOP:
                assert not self.leads(trial), f"no trial beats {trial}, and it is stopped"
                self.move(trial, TrialState.PRUNED)

    def promotion(self, *, is_last: bool) -> int | None:
        """Return the trial that the pruner promotes."""
        trial = self._asked(lambda: self.pruner.promotion(is_last=is_last))
        self.answers.append((None, trial))
        if trial is not None:
            assert type(trial) is int
            assert self.states.get(trial) is TrialState.PAUSED, (
                f"{trial} is promoted, and not paused"
            )
        return trial

    def _asked(self, question: Callable[[], _Answer]) -> _Answer:
        """Return an answer that is the same however often it is asked for."""
        answers = [question() for _ in range(self.times_asked)]
        assert len(set(answers)) == 1, f"asked {self.times_asked} times: {answers}"
        return answers[0]

    def move(self, trial: int, state: TrialState) -> None:
        """Change a trial's state, and tell the pruner."""
        self.states[trial] = state
        self.tell(MoveFact(trial, state))

    def tell(self, fact: ReportFact | MoveFact) -> None:
        """Record a fact, and tell the pruner."""
        self.facts.append(fact)
        fact.tell(self.pruner)

    def signed(self, values: Values) -> Values:
        """Return values as the pruner is told them."""
        return tuple(
            -direction.sign * value
            for value, direction in zip(values, self.directions, strict=True)
        )

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
        results = sorted(self.best.values())
        for newcomer, values in enumerate(results, start=10 * TRIALS):
            for step in range(1, EPOCHS):
                pruner.report(newcomer, step, self.signed(values))
                decision = pruner.decide(newcomer)
                if decision is not Decision.CONTINUE:
                    found.append((newcomer, step, decision))
                    break
                pruner.moved(newcomer, TrialState.RUNNING)
        return found


@functools.cache
def curves(seed: int, objectives: int = 1) -> Curve:
    """Return learning curves with different limits and speeds, and with noise, which may cross.

    Other objectives than the first do not change with the steps, as the size of a model.
    """

    @functools.cache
    def curve(trial: int, step: int) -> Values:
        own = random.Random(f"{seed} {trial}")
        height, speed = own.random(), 0.05 + own.random()
        noise = random.Random(f"{seed} {trial} {step}").gauss(0.0, 0.02)
        first = height * (1.0 - 1.0 / (1.0 + speed * step)) + noise
        return first, *(own.random() for _ in range(objectives - 1))

    return curve


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
    mixed = []
    while queues:
        queue = rng.choice(queues)
        mixed.append(queue.pop(0))
        queues = [each for each in queues if each]
    return mixed
