"""The cells of a trial, each made once: every table, page, export and `--json` chooses from them.

A new column is one entry of `COLUMNS`.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache, cached_property

from ... import text
from ...core.attempt import Attempt, AttemptId, Report, known_sum
from ...core.resources import size
from ...core.trial import Trial
from . import costs
from .view import TO_CONTINUE, StudyView


@dataclass(frozen=True)
class Row:
    """A trial, of which columns have cells.

    Attributes:
        view: Its study.
        trial: The trial.
        attempts: Its attempts, in their order.
        now: The time until which attempts that run count; None leaves them out.
    """

    view: StudyView
    trial: Trial
    attempts: Sequence[Attempt] = ()
    now: float | None = None

    @property
    def report(self) -> Report | None:
        """The last report of a trial that runs or is interrupted, and has no result to train on."""
        if self.trial.state not in TO_CONTINUE or self.trial.value is not None:
            return None
        latest, number = self.view.latest, self.trial.number
        attempts = (AttemptId(number, each) for each in reversed(range(self.trial.attempts)))
        return next((latest[attempt] for attempt in attempts if attempt in latest), None)

    @cached_property
    def metrics(self) -> Mapping[str, float]:
        """All metrics at the step of the value; so far if the trial goes on."""
        if (report := self.report) is not None:
            return report.metrics
        pairs = zip(self.view.goals.objectives, self.trial.values, strict=False)
        return {**self.trial.metrics, **{goal.metric: value for goal, value in pairs}}

    @property
    def value(self) -> float | None:
        """The first objective."""
        if (report := self.report) is None:
            return self.trial.value
        return report.metrics.get(self.view.goal.metric)

    @property
    def step(self) -> int | None:
        """The step of the value."""
        return self.trial.step if (report := self.report) is None else report.step

    @property
    def violation(self) -> float | None:
        """How much it breaks the constraints; None without constraints, and without a value."""
        is_known = self.trial.violation or self.view.goals.constraints
        return self.trial.violation if is_known and self.trial.values else None

    @property
    def is_on_front(self) -> bool:
        """Whether it is one of the best trials."""
        return any(self.trial.number == each.number for each in self.view.front)

    @cached_property
    def costs(self) -> Mapping[str, float | None]:
        """The costs of the attempts, by name."""
        return asdict(costs.costs_of(self.attempts, now=self.now))

    @cached_property
    def last(self) -> Mapping[str, object]:
        """The last attempt without its costs; empty if there is none."""
        return _attempt_facts(self.attempts[-1]) if self.attempts else {}

    def text(self, column: Column) -> str:
        """Return the value of a column for people."""
        if column is STATE:  # tells trials that wait from those that were interrupted
            return self.view.state_of(self.trial)
        return shown(column.name, column.value(self))

    def to_json(self) -> dict[str, object]:
        """Return the trial as it is in every `--json`."""
        return {each.name: plain((each.tree or each.value)(self)) for each in columns(JSON)}


class Place(enum.Flag):
    """What shows a column."""

    TRIALS = enum.auto()
    """`hptune trials`, the Markdown report, and the page's table as it opens."""
    PAGE = enum.auto()
    """The page's table, whose reader chooses columns."""
    COMPACT = enum.auto()
    """The short data frame."""
    TABLE = enum.auto()
    """CSV, Parquet and the data frame."""
    JSON = enum.auto()
    """A trial in every `--json`."""


TRIALS, PAGE, COMPACT, TABLE, JSON = Place
FILES, ALL = TABLE | JSON, TRIALS | PAGE | COMPACT | TABLE | JSON


@dataclass(frozen=True, slots=True)
class Column:
    """A column.

    Attributes:
        name: Its name in exports and in `--json`. The unit in it says how people read its values,
            see `shown`.
        meaning: What it is, for the documentation.
        value: Returns a trial's value; None if it has none.
        places: What shows it.
        tree: Returns what JSON has in place of the value.
        title: Its heading for people; empty for the name.
        is_rare: Whether tables leave it out where no trial has it.
    """

    name: str
    meaning: str
    value: Callable[[Row], object]
    places: Place = FILES
    tree: Callable[[Row], object] | None = None
    title: str = ""
    is_rare: bool = False

    def is_shown(self, rows: Sequence[Row]) -> bool:
        """Return whether a table of these trials has it."""
        return not self.is_rare or any(self.value(row) is not None for row in rows)

    def heading(self, view: StudyView, metrics: Collection[str]) -> str:
        """Return its heading for people; its name if one of the metrics beside it is called so."""
        words = self.title or self.name.replace("_", " ")
        words = words.format(step=text.step_word(view.epochs))
        return self.name if words in metrics else words


def _cost(name: str, meaning: str, places: Place = FILES) -> Column:
    title, kwh, _ = name.partition("_kwh")
    return Column(name, meaning, lambda row: row.costs[name], places,
                  title=title if kwh else "", is_rare=bool(kwh))  # fmt: skip


def _of_last(name: str, meaning: str) -> Column:
    return Column(name, meaning, lambda row: row.last.get(name), TABLE)


def _confirmed(row: Row) -> dict[str, object] | None:
    """Return what training the trial's configuration again gave; None if that was not done."""
    if (confirmation := row.view.confirmation(row.trial)) is None:
        return None
    return {
        "trial": confirmation.trials[0].number,
        "repeats": [each.number for each in confirmation.trials[1:]],
        "failed": confirmation.failed,
        "means": list(confirmation.mean.values),
        "standard_deviations": list(confirmation.deviations),
    }


# fmt: off
STATE = Column("state", "its state", lambda row: str(row.view.trial_state(row.trial)), ALL)
VALUE = Column("value", "the first objective: the best one of a complete trial, the last of others",
               lambda row: row.value, ALL)
SECONDS = Column("seconds", "how long its attempts ran",
                 lambda row: seconds_run(row.attempts, now=row.now), ALL, title="time")
COLUMNS = (
    Column("trial", "its number", lambda row: row.trial.number, ALL),
    STATE,
    VALUE,
    Column("step", "the step of that value", lambda row: row.step, ALL, title="from {step}"),
    SECONDS,
    Column("origin", "what proposed it: a search method, a start point, or a repeat of a trial",
           lambda row: row.trial.origin, ALL & ~COMPACT),
    Column("params", "each hyperparameter of any trial, in tables as `param.<name>`",
           lambda row: row.trial.params, ALL & ~TRIALS),
    Column("metrics", "each metric at that step, in tables as `metric.<name>`",
           lambda row: row.metrics, COMPACT | FILES),
    Column("attempts", "how often it was started; in JSON, each of its attempts",
           lambda row: row.trial.attempts, PAGE | FILES,
           tree=lambda row: [attempt_json(each, now=row.now) for each in row.attempts]),
    _cost("core_hours", "for how long it held cores"),
    _cost("gpu_hours", "for how long it held GPUs"),
    _cost("wait_seconds", "how long its attempts waited for their devices"),
    _cost("idle_core_hours", "for how long the cores that it held did not compute"),
    _cost("energy_kwh", "the energy of its attempts, of what could be measured", ALL),
    _cost("gpu_energy_kwh", "the part of GPUs"),
    _cost("processor_energy_kwh", "the part of processors and memory"),
    _of_last("peak_memory_bytes", "the most memory that its last attempt used"),
    _of_last("peak_gpu_memory_bytes", "the most GPU memory that its last attempt used"),
    _of_last("cpu_share", "the share of each of its cores that its last attempt held"),
    _of_last("gpu_share", "the same of its GPUs"),
    _of_last("memory_bytes", "the memory that its last attempt held"),
    _of_last("why", "why it held that much, if the amount was measured"),
    _of_last("worker", "where its last attempt ran; of several processes, the first one"),
    _of_last("node", "on which machine that is"),
    _of_last("processes", "how many processes its last attempt had"),
    _of_last("nodes", "on how many machines"),
    _of_last("cause", "how its last attempt ended"),
    Column("where", "what its last attempt held",
           lambda row: text.attempt_where(row.attempts[-1]) if row.attempts else None, PAGE),
    Column("front", "whether it is on the Pareto front; with several objectives only",
           lambda row: row.is_on_front if row.view.goals.objectives[1:] else None,
           COMPACT | TABLE, is_rare=True),
    Column("violation", "how much it breaks the constraints",
           lambda row: row.violation, ALL & ~TRIALS, is_rare=True),
    Column("confirms", "the trial whose configuration it trains again",
           lambda row: row.trial.confirms, ALL & ~TRIALS, is_rare=True),
    Column("confirmed", "what training it again gave", _confirmed, JSON),
    Column("tags", "its tags", lambda row: " ".join(row.view.tags_of(row.trial.number)) or None,
           ALL & ~TRIALS, lambda row: list(row.view.tags_of(row.trial.number)), is_rare=True),
    Column("notes", "what users wrote on it",
           lambda row: "; ".join(row.view.texts_on(row.trial.number)) or None, ALL & ~TRIALS,
           lambda row: list(map(asdict, row.view.notes_on(row.trial.number))), is_rare=True),
    Column("reason", "why it failed or was stopped", lambda row: row.trial.reason, PAGE | FILES),
    Column("detail", "the traceback of its failure", lambda row: row.trial.detail, JSON),
    Column("model", "the path of its model, if it is one of the best",
           lambda row: row.view.models.get(row.trial.number), JSON),
)
# fmt: on


@cache
def columns(place: Place) -> Sequence[Column]:
    """Return the columns that a place shows."""
    return [each for each in COLUMNS if place in each.places]


def rows(
    view: StudyView, trials: Iterable[Trial] | None = None, *, now: float | None = None
) -> list[Row]:
    """Return the rows of trials; of all, by number, if none are given.

    Args:
        view: The study.
        trials: The trials, in the order of the rows.
        now: The time, in seconds since the epoch; None leaves out attempts without an end.
    """
    attempts = by_trial(view.attempts)
    chosen = sorted(view.trials, key=lambda each: each.number) if trials is None else trials
    # Without a master, it is unknown whether an attempt without an end still runs.
    until = now if view.is_live else None
    return [Row(view, each, attempts.get(each.number, ()), until) for each in chosen]


def row_of(view: StudyView, trial: Trial, *, now: float | None = None) -> Row:
    """Return the row of one trial."""
    return rows(view, [trial], now=now)[0]


def shown(name: str, value: object) -> str:
    """Return a value for people, by the unit in its column's name.

    >>> shown("seconds", 90.0), shown("peak_memory_bytes", 5.2e9), shown("core_hours", 0.25)
    ('1m30s', '5.2 GB', '0.25')
    >>> shown("energy_kwh", 1.25)
    '1.25 kWh'
    """
    if isinstance(value, int | float) and not isinstance(value, bool):
        units = {"seconds": text.duration, "bytes": size, "hours": text.amount, "kwh": text.energy}
        by_unit = units.get(name.rpartition("_")[2])
        if by_unit is not None or isinstance(value, float):
            return (by_unit or text.measured)(value)
    return text.NOTHING if value in (None, "") else text.clean(str(value))


# --- attempts -------------------------------------------------------------------------------------


def by_trial(attempts: Sequence[Attempt]) -> dict[int, list[Attempt]]:
    """Return the attempts of each trial, in their order."""
    grouped: dict[int, list[Attempt]] = {}
    for attempt in sorted(attempts, key=lambda attempt: attempt.id):
        grouped.setdefault(attempt.id.trial, []).append(attempt)
    return grouped


def seconds_run(attempts: Iterable[Attempt], *, now: float | None = None) -> float | None:
    """Return how long attempts ran in sum; None if none of them is known to have run.

    Without `now`, an attempt without a known end, such as a running one, does not count.
    """
    counted = [each for each in attempts if each.ended_at is not None or now is not None]
    return known_sum(each.seconds(now or 0.0) for each in counted)


_USED = ("peak_memory_bytes", "peak_gpu_memory_bytes", "cpu_seconds", "seconds_per_step")


def attempt_json(attempt: Attempt, *, now: float | None = None) -> dict[str, object]:
    """Return an attempt as it is in every `--json`; one that runs counts until `now`.

    `ranks` has what each process of several holds.
    """
    return {
        **_attempt_facts(attempt),
        "seconds": seconds_run([attempt], now=now),
        **asdict(costs.costs_of([attempt], now=now)),
    }


def _attempt_facts(attempt: Attempt) -> dict[str, object]:
    ranks = attempt.placement.ranks
    return {
        "trial": attempt.id.trial,
        "attempt": attempt.id.number,
        "outcome": None if attempt.outcome is None else str(attempt.outcome),
        "reason": attempt.reason,
        "node": attempt.node,
        "worker": attempt.placement.worker,
        "cpus": [cpu for rank in ranks for cpu in rank.cpus],
        "gpus": [gpu for rank in ranks for gpu in rank.gpus],
        "cpu_share": attempt.placement.cpu_share,
        "gpu_share": attempt.placement.gpu_share if attempt.placement.gpus else None,
        "memory_bytes": sum(rank.memory_bytes for rank in ranks),
        "processes": len(ranks),
        "nodes": len(attempt.nodes),
        "ranks": [
            {
                "rank": number,
                "node": node,
                "worker": rank.worker,
                "cpus": list(rank.cpus),
                "gpus": list(rank.gpus),
                "memory_bytes": rank.memory_bytes,
            }
            for number, (node, rank) in enumerate(attempt.ranks if attempt.placement.peers else ())
        ],
        "why": attempt.why,
        "placed_at": attempt.placed_at,
        "started_at": attempt.started_at,
        "ended_at": attempt.ended_at,
        "cause": None if attempt.cause is None else str(attempt.cause),
        **{name: getattr(attempt.usage, name, None) for name in _USED},
    }


# --- plain values ---------------------------------------------------------------------------------


def plain(value: object) -> object:
    """Return a value for strict JSON: NaN and the infinities become None.

    >>> plain({"lr": 0.1, "loss": float("nan")})
    {'lr': 0.1, 'loss': None}
    """
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {name: plain(each) for name, each in value.items()}
    return value
