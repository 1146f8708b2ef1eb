"""Objectives and constraints as users write them: read, checked and completed."""

from __future__ import annotations

import contextlib
import functools
import math
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..core.goals import (
    ENERGY,
    MEASURED,
    RETURNED_NUMBER,
    Comparison,
    Constraint,
    Goals,
    metric_meant,
)
from ..core.kinds import named_once
from ..core.spelling import did_you_mean
from ..core.trial import Direction, Goal
from ..errors import UnknownMetricError, UsageError
from ..user_code.fit_results import RETURNED
from ..user_code.source import Found

if TYPE_CHECKING:
    import cattrs

_MAX_WORDS = frozenset((
    "acc", "accuracy", "auc", "auprc", "auroc", "bleu", "dice", "f1", "f1score", "fbeta", "iou",
    "map", "precision", "psnr", "r2", "r2score", "recall", "reward", "rouge", "similarity", "ssim",
))  # fmt: skip
_MIN_WORDS = frozenset((
    "bytes", "cost", "crossentropy", "divergence", "energy", "entropy", "err", "error", "errors",
    "fid", "hinge", "kld", "latency", "logcosh", "loss", "mae", "mape", "mse", "msle", "nll",
    "params", "perplexity", "ppl", "regret", "rmse", "seconds", "wer",
))  # fmt: skip

_NEGATED = frozenset(("minus", "neg", "negative"))
"""Words that may turn the direction round, as in scikit-learn's neg_mean_squared_error."""

_CONSTRAINT = re.compile(
    r"\s*(?P<metric>[^<>=]*[^<>=\s])\s*(?P<sign><=|>=|<|>)\s*(?P<bound>\S+)\s*"
)


def read_objective(text: str) -> tuple[str, Direction | None]:
    """Return the metric of an objective, and its direction; None if it has none.

    >>> read_objective("val_accuracy"), read_objective("params:min")
    (('val_accuracy', None), ('params', <Direction.MIN: 'min'>))

    Raises:
        UsageError: The text is not an objective.
    """
    metric, colon, word = (part.strip() for part in text.partition(":"))
    if not metric or "," in metric:
        words = "names no metric" if not metric else "has a comma; give each objective by itself"
        raise UsageError(f"the objective {text!r} {words}, such as val_accuracy")
    if not colon:
        return metric, None
    try:
        return metric, Direction(word)
    except ValueError:
        meant = {"min": ":min", "max": ":max"}.get(word.lower()[:3], "")
        raise UsageError(
            f"the objective {text!r} has the direction {word!r}; allowed are {metric}:min and "
            f"{metric}:max{meant and f'. Did you mean {metric}{meant}?'}"
        ) from None


def read_constraint(text: str) -> Constraint:
    """Return the constraint of a text such as `params<2e6`.

    >>> str(read_constraint("params <= 2e6"))
    'params <= 2000000'

    Raises:
        UsageError: The text is not a constraint.
    """
    found = _CONSTRAINT.fullmatch(text)
    with contextlib.suppress(ValueError):
        if found is not None and math.isfinite(bound := float(found["bound"])):
            return Constraint(found["metric"], Comparison(found["sign"]), bound)
    raise UsageError(
        f"the constraint is {text!r}; allowed are a metric, one of <, <=, > and >=, and a number, "
        "such as 'params<2e6'"
    )


def check_objectives(objectives: Sequence[str], constraints: Sequence[str]) -> None:
    """Check objectives and constraints, without knowing the model.

    Raises:
        UsageError: One is not valid, is named twice, or cannot be the first.
    """
    metrics = [*named_once(map(read_objective, objectives), "the objective")]
    if ENERGY in metrics[:1]:
        raise UsageError(
            f"{ENERGY} is known when a trial ends, and the first objective judges its epochs; name "
            "another one before it, such as --objective val_loss, or make it a --constraint"
        )
    for constraint in constraints:
        read_constraint(constraint)


def resolve_goals(
    found: Found, objectives: Sequence[str] = (), constraints: Sequence[str] = ()
) -> tuple[Goals, list[str]]:
    """Return the objectives and constraints: as asked for, as in the file, or a default.

    Args:
        found: Result of the probe. Its constants are used for what the user did not give.
        objectives: Objectives that the user gave.
        constraints: Constraints that the user gave.

    Returns:
        The goals, and a line for the user about each default.

    Raises:
        UsageError: Something is not valid, or a direction is not known.
    """
    named, conditions = asked_goals(found, objectives, constraints)
    check_objectives(named, conditions)
    bounds = tuple(map(read_constraint, conditions))
    asked = [read_objective(each) for each in named]
    unknown = unknown_metrics([*asked, *((bound.metric, None) for bound in bounds)], found)
    notes = list(unknown.values())
    of_the_file = [read_objective(each)[0] for each in _texts(found.constants.get("OBJECTIVE"))]
    chosen = [_goal(*each, unknown, of_the_file) for each in asked]
    goals = Goals(tuple(chosen or [_default_goal(found, notes)]), bounds)
    if found.vector_metrics:
        names = ", ".join(found.vector_metrics)
        notes.append(f"left out, as they have several numbers for each epoch: {names}")
    return goals, [*notes, *_training_notes(goals.goal.metric, found)]


def asked_goals(
    found: Found, objectives: Sequence[str], constraints: Sequence[str]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return objectives and constraints: as the user gave them, else as in the file."""
    constants = found.constants
    named = tuple(objectives) or _texts(constants.get("OBJECTIVE"))
    return named, tuple(constraints) or _texts(constants.get("CONSTRAINTS"))


def unknown_metrics(asked: Sequence[tuple[str, Direction | None]], found: Found) -> dict[str, str]:
    """Return a note on each metric that trials may not report.

    Raises:
        UnknownMetricError: Trials cannot report it.
    """
    for metric, _ in asked:
        _check_reported(metric, found)
    what = "no metric of the model is" if found.is_keras else "objective() returns no metric"
    notes, known = dict[str, str](), found.metrics
    for metric, direction in asked if known else ():
        if metric in known or metric == ENERGY:
            continue
        trained = metric.removeprefix("val_")
        near = metric_meant(metric, known) or metric_meant(trained, known)
        typed = f":{direction}" if direction else ""
        why = f"did you mean {near}{typed}? It" if near else "it"
        if found.is_keras and trained in known:
            why = "there is no validation data, so it"
        line = f"{what} called {metric!r}: {why} reports {', '.join(known)}"
        if not found.reports_others:
            raise UnknownMetricError(f"{line}. Name one of these.")
        if found.is_keras and not near and trained not in known:
            line = f"{metric!r} is not among the model's own metrics ({', '.join(known)})"
        notes[metric] = f"{line}; a callback or `fit` of the file has to report it"
    return notes


def _check_reported(metric: str, found: Found) -> None:
    """Check that each trial reports one number for a metric.

    Raises:
        UnknownMetricError: It does not.
    """
    if metric in found.vector_metrics:
        raise UnknownMetricError(
            f"{metric!r} has several numbers for each epoch, such as one for each class, and an "
            'objective is one number. Make it one in the model file, such as by average="macro" '
            "of keras.metrics.F1Score."
        )
    if (why := found.partial_metrics.get(metric)) and not found.reports_others:
        raise UnknownMetricError(
            f"not every configuration measures {metric!r}: {why}. Compile the model with it in all."
        )


def _training_notes(metric: str, found: Found) -> list[str]:
    """Return a warning if the objective is measured on the training data for lack of others."""
    reported = {found.metric, *found.metrics}
    is_trained = found.is_keras and metric in reported - {*MEASURED, RETURNED}
    if not is_trained or any(each.startswith("val_") for each in reported):
        return []
    line = f"there is no validation data, so {metric} is measured on the training data, where a "
    return [f"{line}model that overfits looks best"]


def _texts(given: Any) -> tuple[str, ...]:
    if given is None:
        return ()
    return (given,) if isinstance(given, str) else tuple(map(str, given))


def _goal(
    metric: str,
    direction: Direction | None,
    unknown: Mapping[str, str],
    of_the_file: Sequence[str],
) -> Goal:
    if known := direction or direction_of(metric):
        return Goal(metric, known)
    names = f"name the objective {metric}:max or {metric}:min"
    if metric in unknown:
        raise UsageError(f"{unknown[metric]}. If a callback reports it, {names}")
    meant = "" if metric in of_the_file else did_you_mean(metric, of_the_file)
    raise UsageError(
        f"the direction of {metric!r} is not known from its name; {names}{meant and '.'}{meant}"
    )


def _default_goal(found: Found, notes: list[str]) -> Goal:
    if found.is_keras:
        metric = found.metric
        chosen = "what fit() returns, minimised" if metric == RETURNED else metric
        notes.append(
            f"the objective is {chosen} (to change it: --objective, or OBJECTIVE in the file)"
        )
        return Goal(metric, direction_of(metric) or Direction.MIN)
    if found.metrics and not found.reports_others and RETURNED_NUMBER not in found.metrics:
        raise UnknownMetricError(
            f"objective() returns {', '.join(found.metrics)}, and none is named to optimise. Name "
            f"one, such as --objective {_example(found.metrics)}, or OBJECTIVE in the model file."
        )
    notes.append(
        f"minimising what objective() returns (--objective {RETURNED_NUMBER}:max maximises it)"
    )
    return Goal(RETURNED_NUMBER, Direction.MIN)


def _example(metrics: Sequence[str]) -> str:
    """Return one of the metrics as an objective, if possible one that says which way is better.

    >>> _example(["length", "auc"]), _example(["length"])
    ('auc:max', 'length:min')
    """
    metric = next(filter(direction_of, metrics), metrics[0])
    return f"{metric}:{direction_of(metric) or Direction.MIN}"


def direction_of(metric: str) -> Direction | None:
    """Return the direction of a metric by its name; None if unknown.

    >>> direction_of("val_top_5_accuracy"), direction_of("val_loss"), direction_of("glossiness")
    (<Direction.MAX: 'max'>, <Direction.MIN: 'min'>, None)
    >>> direction_of("neg_mean_squared_error")
    """
    # Keras numbers metrics of the same name: accuracy_1.
    words = set(re.split(r"[^a-z0-9]+", metric.lower()))
    words |= {re.sub(r"(?<=[a-z])\d+$", "", word) for word in words}
    if words & _NEGATED:
        return None
    if words & _MIN_WORDS:
        return Direction.MIN
    if words & _MAX_WORDS or "io_u" in metric.lower():
        return Direction.MAX
    return None


# --- in the ledger ------------------------------------------------------------------------------


@functools.cache
def _converter() -> cattrs.Converter:
    import cattrs  # late: a command's help does not need it

    return cattrs.Converter(detailed_validation=False)


def goals_to_json(goals: Goals) -> dict[str, Any]:
    """Return plain values, for the ledger's facts."""
    found: dict[str, Any] = _converter().unstructure(goals)
    return found


def goals_of(facts: Mapping[str, Any]) -> Goals:
    """Return what `goals_to_json` wrote, from a ledger's facts."""
    return _converter().structure(facts["goals"], Goals)
