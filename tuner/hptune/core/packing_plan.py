"""The packing plan: how many trials share a device, and what each is expected to use.

The plan is decided from measurements (`core.packing.decision`) outside the engine, and comes back
to it as an event. A replay reads the recorded plans; it never fits anything again.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from .resources import Amount
from .trial import Params, ParamValue

MAX_TRIALS_PER_CORE = 8
"""Trials that share a core at most, however idle they are."""

MIN_OBSERVED = 2
"""Trials that are measured before memory is estimated, and at each number of trials on a device
before another number is tried."""

CO_LOCATED = "(trials on one device)"
"""The number of trials on a device, where estimates treat it as one more hyperparameter."""

_FULL_CORE = 1.2
"""Sum of the busy shares of the trials on a full core.

They do not all wait at the same time: with a sum of 1, a quarter of the core stays unused.
"""

_NOTABLE = math.log(1.2)
"""Difference of logarithms that is worth a word to the user; less may be noise."""

_MIN_MARGIN = 1.05
_MAX_BEYOND = 4.0
"""Estimates are never above the largest value seen, or below the smallest, by more than this
factor: a feature may be a thousand times larger than any that was seen."""


class TermKind(enum.StrEnum):
    """Ways to make a number of a hyperparameter."""

    LINEAR = "linear"
    LOG = "log"
    CHOICE = "choice"
    PRESENCE = "presence"


@dataclass(frozen=True, slots=True)
class Term:
    """One feature of the hyperparameters, and its weight in an estimate.

    Attributes:
        name: The hyperparameter.
        kind: How it becomes a number.
        usual: The mean size of a number; a configuration without it counts as that.
        choice: The value that makes a CHOICE 1; any other makes it 0.
        weight: The change of the predicted logarithm per unit of the feature.
    """

    name: str
    kind: TermKind
    usual: float = 1.0
    choice: ParamValue = None
    weight: float = 0.0

    def feature(self, params: Params) -> float:
        """Return the feature of a configuration."""
        match self.kind:
            case TermKind.PRESENCE:
                return float(self.name in params)
            case TermKind.CHOICE:
                return float(self.name in params and params[self.name] == self.choice)
        number = as_number(params.get(self.name))
        if self.kind is TermKind.LINEAR:
            return (self.usual if number is None else number) / (self.usual or 1.0)
        if number is None or number <= 0.0:
            return 0.0
        return math.log(number) - math.log(self.usual)  # their ratio may be too small for a float


_LARGEST = 1e150
"""Larger numbers count as this one, whose square is still a float."""


def as_number(value: object) -> float | None:
    """Return a numeric value as a float; None for anything else, booleans included."""
    if not isinstance(value, int | float) or type(value) is bool:
        return None
    return float(max(-_LARGEST, min(value, _LARGEST)))


def traits(params: Params) -> set[str]:
    """Return the names of numeric hyperparameters, and the values of the others.

    >>> sorted(traits({"units": 64, "kind": "lstm"}))
    ["kind='lstm'", 'units']
    """
    return {
        f"{name}={value!r}" if as_number(value) is None else name for name, value in params.items()
    }


@dataclass(frozen=True, slots=True)
class Estimate:
    """A positive quantity, predicted from the hyperparameters.

    The predicted logarithm is the intercept plus the sum of the weighted features.

    Attributes:
        intercept: The predicted logarithm where all features are 0.
        margin: The logarithm to add for a bound that about one trial in forty exceeds.
        smallest: The smallest of the values seen.
        median: The median of the values seen.
        largest: The largest of the values seen.
        terms: The features that matter, the most telling one first.
        seen: The traits (see `traits`) of the trials seen.
    """

    intercept: float
    margin: float
    smallest: float
    median: float
    largest: float
    terms: tuple[Term, ...] = ()
    seen: tuple[str, ...] = ()

    def logarithm(self, params: Params) -> float:
        """Return the predicted logarithm for a configuration."""
        return self.intercept + sum(term.weight * term.feature(params) for term in self.terms)

    def typical(self, params: Params) -> float:
        """Return the most likely value for a configuration."""
        return self._limited(self.logarithm(params))

    def upper(self, params: Params) -> float:
        """Return the value that a trial of a configuration will hardly exceed."""
        margin = max(self.margin, math.log(_MIN_MARGIN))
        bound = self._limited(self.logarithm(params) + margin)
        return bound if traits(params).issubset(self.seen) else max(bound, self.largest)

    @property
    def usual_upper(self) -> float:
        """The bound for a trial in the middle of those that were seen."""
        return self.median * max(_MIN_MARGIN, math.exp(self.margin))

    @property
    def depends_on(self) -> tuple[str, ...]:
        """The hyperparameters that matter, the most telling one first."""
        return tuple(dict.fromkeys(term.name for term in self.terms))

    def varies_with(self, configurations: Sequence[Params]) -> tuple[str, ...]:
        """Return those of them by which the quantity differs by a fifth among configurations."""
        found: dict[str, float] = dict.fromkeys(self.depends_on, 0.0)
        for term in self.terms:
            parts = [term.weight * term.feature(params) for params in configurations]
            found[term.name] += max(parts) - min(parts)
        return tuple(name for name, spread in found.items() if spread > _NOTABLE)

    def _limited(self, logarithm: float) -> float:
        least, most = math.log(self.smallest / _MAX_BEYOND), math.log(_MAX_BEYOND * self.largest)
        return math.exp(min(max(logarithm, least), most))


@dataclass(frozen=True, slots=True)
class SharingPlan:
    """How trials share the devices (the cores, or the GPUs) of one kind.

    Attributes:
        most: The number of trials that may share a device.
        tried: The largest number tried so far.
        was_too_many: Whether fewer trials once did as much work in total.
        is_held_back: Whether more trials would share a device, but for the search's limit.
        busy: The share of the time that a trial keeps a core busy; None if unknown.
        busy_range: The smallest, the median and the largest such share of the latest trials, each
            alone on its device.
    """

    most: int = 1
    tried: int = 1
    was_too_many: bool = False
    is_held_back: bool = False
    busy: Estimate | None = None
    busy_range: tuple[float, ...] = ()

    def trials_per_core(self, params: Params | None = None) -> int | None:
        """Return how many trials of a configuration fill a core; None if unknown.

        Without a configuration, of a usual one.
        """
        if self.busy is None:
            return None
        if params is None:
            return trials_that_fill_a_core(self.busy_range[1])
        return trials_that_fill_a_core(self.busy.typical({**params, CO_LOCATED: 1.0}))


def trials_that_fill_a_core(busy: float) -> int:
    """Return how many trials fill a core if each keeps it busy for a share of the time.

    >>> trials_that_fill_a_core(0.95), trials_that_fill_a_core(0.5), trials_that_fill_a_core(0.01)
    (1, 2, 8)
    """
    return max(1, min(MAX_TRIALS_PER_CORE, int(_FULL_CORE / busy))) if busy else 1


@dataclass(frozen=True, slots=True)
class PackingPlan:
    """What is decided by measurement.

    Attributes:
        memory: The host memory of a trial, in bytes; None if too few were measured.
        gpu_memory: The memory of a trial on a GPU, in bytes; None if too few were measured.
        cores: How trials without a GPU share cores.
        gpus: How trials share GPUs.
        reason: The latest change and its reason, for the user; empty if nothing changed yet.
        advice: How more trials could run at once than the search's limit allows, for the user;
            empty if that limit was never reached.
    """

    memory: Estimate | None = None
    gpu_memory: Estimate | None = None
    cores: SharingPlan = field(default_factory=SharingPlan)
    gpus: SharingPlan = field(default_factory=SharingPlan)
    reason: str = ""
    advice: str = ""


@dataclass(frozen=True, slots=True)
class Training:
    """How a trial trained.

    Attributes:
        device: The kind of device that counts: GPUS if it held one, else CPUS.
        co_located: How many trials shared its device on average, itself included.
        busy: The share of the time that it kept a core busy.
        seconds_per_step: The time of a step; None if unknown.
    """

    device: Amount
    co_located: float
    busy: float
    seconds_per_step: float | None


@dataclass(frozen=True, slots=True)
class Observation:
    """What a trial was measured to use.

    Attributes:
        params: Its hyperparameters.
        memory_bytes: The peak of its host memory.
        gpu_memory_bytes: The peak of its memory on a GPU; 0 if unknown.
        training: How it trained; None if it has not trained long enough.
    """

    params: Params
    memory_bytes: int
    gpu_memory_bytes: int = 0
    training: Training | None = None


@dataclass(frozen=True, slots=True)
class PackingEvidence:
    """What a plan is decided from.

    Attributes:
        plan: The plan in force.
        measured: The amounts that measurement decides, sorted.
        observations: The latest observations, one for each trial, in order.
        settled: For each kind of device, how many trials were placed under the plan in force and
            were seen to train.
        limit: The number of trials that may share a device, whatever they use.
        most_memory_bytes: The memory of the largest worker; 0 if unknown.
    """

    plan: PackingPlan
    measured: tuple[Amount, ...]
    observations: tuple[Observation, ...]
    settled: Mapping[Amount, int]
    limit: int
    most_memory_bytes: int = 0
