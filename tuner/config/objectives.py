"""Objectives and constraints as users write them: read, checked, and completed by what is known."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from ..core.goals import Comparison, Constraint, Goals, metric_meant
from ..core.trial import Direction, Goal
from ..errors import UsageError
from .model_file import Found

_MAX_WORDS = frozenset((
    "acc", "accuracy", "auc", "auprc", "auroc", "bleu", "dice", "f1", "f1score", "fbeta", "iou",
    "map", "precision", "psnr", "r2", "r2score", "recall", "reward", "rouge", "similarity", "ssim",
))  # fmt: skip
_MIN_WORDS = frozenset((
    "bytes", "cost", "crossentropy", "divergence", "entropy", "err", "error", "errors", "fid",
    "hinge", "kld", "latency", "logcosh", "loss", "mae", "mape", "mse", "msle", "nll", "params",
    "perplexity", "ppl", "regret", "rmse", "seconds", "wer",
))  # fmt: skip

_CONSTRAINT = re.compile(
    r"\s*(?P<metric>[^<>=]*[^<>=\s])\s*(?P<sign><=|>=|<|>)\s*(?P<bound>\S+)\s*"
)


def read_objective(text: str) -> tuple[str, Direction | None]:
    """A metric and, where it was said, a direction.

    >>> read_objective("val_accuracy"), read_objective("params:min")
    (('val_accuracy', None), ('params', <Direction.MIN: 'min'>))

    Raises:
        UsageError: It cannot be read.
    """
    metric, colon, word = (part.strip() for part in text.partition(":"))
    if not metric:
        raise UsageError(f"the objective {text!r} names no metric; say for example val_accuracy")
    if not colon:
        return metric, None
    try:
        return metric, Direction(word)
    except ValueError:
        raise UsageError(
            f"the objective {text!r} has the direction {word!r}; allowed are {metric}:min and "
            f"{metric}:max"
        ) from None


def read_constraint(text: str) -> Constraint:
    """A constraint such as `params<2e6`.

    >>> str(read_constraint("params <= 2e6"))
    'params <= 2e+06'

    Raises:
        UsageError: It cannot be read.
    """
    found = _CONSTRAINT.fullmatch(text)
    if found is not None:
        try:
            bound = float(found["bound"])
        except ValueError:
            bound = math.nan
        if math.isfinite(bound):
            return Constraint(found["metric"], Comparison(found["sign"]), bound)
    raise UsageError(
        f"the constraint {text!r} cannot be read; say a metric, one of <, <=, >, >=, and a number, "
        "for example 'params<2e6'"
    )


def check(
    objectives: Sequence[str], constraints: Sequence[str], direction: Direction | None
) -> None:
    """See that they make sense together, as far as can be known without the model.

    Raises:
        UsageError: They do not.
    """
    read = [read_objective(each) for each in objectives]
    metrics = [metric for metric, _ in read]
    if len(set(metrics)) < len(metrics):
        raise UsageError(f"an objective is named twice: {', '.join(metrics)}; name each once")
    if direction is not None and len(read) > 1:
        raise UsageError(
            "--direction is for one objective; with several, give each its own, such as "
            f"{metrics[0]}:{direction}"
        )
    if direction is not None and read and read[0][1] not in (None, direction):
        raise UsageError(
            f"--objective is {objectives[0]!r}, but --direction is {direction}; leave out one"
        )
    for each in constraints:
        read_constraint(each)


def resolve_goals(
    found: Found,
    objectives: Sequence[str] = (),
    constraints: Sequence[str] = (),
    direction: Direction | None = None,
) -> tuple[Goals, list[str]]:
    """What to optimise and to keep to: as asked for, as the file says, or as the model suggests.

    Args:
        found: What was found in the user's code; its constants count where the user is silent.
        objectives: What the user asked for; empty where they said nothing.
        constraints: The same.
        direction: Which values of the only objective are better.

    Returns:
        The goals, and a line for the user on each thing that was not said but chosen.

    Raises:
        UsageError: Something cannot be read, or the direction can't be known from the name.
    """
    constants = found.constants
    said = tuple(objectives) or _texts(constants.get("OBJECTIVE"))
    kept = tuple(constraints) or _texts(constants.get("CONSTRAINTS"))
    of_the_file = not objectives or _is_of_the_file(objectives, constants)
    if direction is None and of_the_file:
        direction = _read_direction(constants.get("DIRECTION"))
    check(said, kept, direction)
    notes: list[str] = []
    if not said:
        chosen = [_suggested(found, direction, notes)]
    else:
        other_way = _other_way(constants, of_the_file=of_the_file) if len(said) == 1 else ""
        chosen = [_goal(each, direction, other_way) for each in said]
    goals = Goals(tuple(chosen), tuple(read_constraint(each) for each in kept))
    return goals, [*notes, *_doubts(goals, found.metrics)]


def _doubts(goals: Goals, known: Sequence[str]) -> list[str]:
    """A line on each metric that the model names nowhere; a callback may report it all the same."""
    doubts = []
    for metric in goals.metrics:
        if known and metric not in known:
            near = metric_meant(metric, known)
            meant = f"did you mean {near}? It" if near else "it"
            doubts.append(
                f"no metric of the model is called {metric!r}: {meant} reports {', '.join(known)}"
            )
    return doubts


def _is_of_the_file(objectives: Sequence[str], constants: Mapping[str, object]) -> bool:
    """Whether the file's DIRECTION speaks of the objective that was asked for."""
    own = _texts(constants.get("OBJECTIVE"))
    metrics = [read_objective(each)[0] for each in own]
    return len(objectives) == 1 and (not metrics or metrics == [read_objective(objectives[0])[0]])


def _texts(said: Any) -> tuple[str, ...]:
    if said is None:
        return ()
    return (said,) if isinstance(said, str) else tuple(map(str, said))


def _other_way(constants: Mapping[str, object], *, of_the_file: bool) -> str:
    """How else to say the direction of the only objective than with its name."""
    way = ", or say --direction max or --direction min"
    if of_the_file:
        return f"{way} (or DIRECTION in the model file)"
    if "DIRECTION" not in constants:
        return way
    own = ", ".join(_texts(constants["OBJECTIVE"]))
    return f"{way} (DIRECTION in the model file is that of its own OBJECTIVE, {own})"


def _goal(text: str, direction: Direction | None, other_way: str) -> Goal:
    metric, own = read_objective(text)
    known = own or direction or direction_of(metric)
    if known is None:
        raise UsageError(
            f"whether more or less of {metric!r} is better cannot be told from its name; "
            f"name the objective {metric}:max or {metric}:min{other_way}"
        )
    return Goal(metric, known)


def _suggested(found: Found, direction: Direction | None, notes: list[str]) -> Goal:
    if found.is_keras:
        metric = found.metric
        notes.append(f"no objective was named: taking {metric} (say OBJECTIVE or --objective)")
        return Goal(metric, direction or direction_of(metric) or Direction.MIN)
    if direction is None:
        notes.append("minimising what objective() returns (say DIRECTION = 'max' for the other)")
    return Goal("value", direction or Direction.MIN)


def _read_direction(said: object) -> Direction | None:
    if said is None:
        return None
    try:
        return Direction(str(said).lower()[:3])
    except ValueError:
        raise UsageError(f"DIRECTION is {said!r}; allowed are 'max' and 'min'") from None


def direction_of(metric: str) -> Direction | None:
    """Which way a metric is better, as far as its name tells.

    >>> direction_of("val_top_5_accuracy"), direction_of("val_loss"), direction_of("glossiness")
    (<Direction.MAX: 'max'>, <Direction.MIN: 'min'>, None)
    """
    # Keras counts a name up where a metric is made twice: accuracy_1.
    words = set(re.split(r"[^a-z0-9]+", metric.lower()))
    words |= {re.sub(r"(?<=[a-z])\d+$", "", word) for word in words}
    if words & _MIN_WORDS:
        return Direction.MIN
    if words & _MAX_WORDS or "io_u" in metric.lower():
        return Direction.MAX
    return None


# --- in the ledger ------------------------------------------------------------------------------


def goals_to_json(goals: Goals) -> dict[str, Any]:
    """As plain values, for the ledger's facts."""
    return {
        "objectives": [
            {"metric": g.metric, "direction": str(g.direction)} for g in goals.objectives
        ],
        "constraints": [
            {"metric": each.metric, "comparison": str(each.comparison), "bound": each.bound}
            for each in goals.constraints
        ],
    }


def goals_of(facts: Mapping[str, Any]) -> Goals:
    """What `goals_to_json` gave, from a ledger's facts."""
    plain = facts["goals"]
    return Goals(
        tuple(Goal(each["metric"], Direction(each["direction"])) for each in plain["objectives"]),
        tuple(
            Constraint(each["metric"], Comparison(each["comparison"]), each["bound"])
            for each in plain["constraints"]
        ),
    )
