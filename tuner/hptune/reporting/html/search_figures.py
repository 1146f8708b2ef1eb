"""Sections on the search: the Pareto front, values, importance, early stopping."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ... import text
from ...core.kinds import enumerated
from ..results.evidence import Answer
from ..results.importance import MIN_TRIALS, Importance, leaders, results_of
from ..results.rungs import RungAgreement, rung_agreements, stopped_at
from .panel import LABEL_CHARACTERS, Figure, Panel, Table
from .trials import Shown, StudyTrials, described, is_drawable

_MOST_BARS = 30
"""Hyperparameters whose importance is drawn; the table has all of them."""

_NAMED = 3
"""Hyperparameters that are named beside the first one where their order is not certain."""

_LEAST_CONTOUR_TRIALS = 10
"""Complete trials below which no contour is drawn."""


def history(trials: StudyTrials) -> Panel | None:
    """Return the values of the trials in their order; None if none has a value."""
    if not trials.of(Shown.ALL):
        return None
    words = "Each trial's value, and the best one so far."
    if len(trials.view.goals.objectives) > 1:
        words = "Each trial's value of one metric, and the best one so far in this metric alone."
    return Panel(words, [Figure("history")])


def curves(trials: StudyTrials) -> Panel | None:
    """Return the learning curves; None if no trial reported more than one step."""
    if not any(len(s) > 1 for metrics in trials.curves.values() for s, _ in metrics.values()):
        return None
    return Panel(
        f"The metric after each {text.step_word(trials.view.epochs)} of each trial.",
        [Figure("curves")],
    )


def slices(trials: StudyTrials) -> Panel | None:
    """Return the values over the leading hyperparameters; None without any."""
    if not trials.of(Shown.ALL) or not trials.parameters:
        return None
    return Panel(
        f"The value over each hyperparameter, {_order_text(trials)}. Axes show the whole range; "
        "values of a choice are spread within their column.",
        [Figure("slices")],
    )


def contour(trials: StudyTrials) -> Panel | None:
    """Return the values over two numbers; None without two, or with few complete trials."""
    numbers = [
        parameter for parameter in trials.parameters.values() if hasattr(parameter[0], "low")
    ]
    if len(trials.of(Shown.COMPLETE)) < _LEAST_CONTOUR_TRIALS or len(numbers) < 2:
        return None
    return Panel(
        "The value of the complete trials, smoothed over two hyperparameters; it fades out where "
        "nothing was tried. Marks are trials.",
        [Figure("contour")],
    )


def parallel(trials: StudyTrials) -> Panel | None:
    """Return all configurations as lines; None with fewer than two hyperparameters."""
    if not trials.of(Shown.ALL) or len(trials.parameters) < 2:
        return None
    return Panel(
        "Each line is a trial. Drag along an axis to choose trials, which all figures and the "
        "table then show, or write a filter; drag a name to move its axis. A line that ends below "
        "an axis has no value there.",
        [Figure("parallel")],
    )


def _order_text(trials: StudyTrials) -> str:
    if trials.has_order:
        return "the most important first"
    needs = f"{MIN_TRIALS} trials with different values"
    return f"in the order of their declaration, because importance needs {needs}"


def importance(trials: StudyTrials) -> Panel | None:
    """Return the importance of the hyperparameters; None if nothing is searched."""
    found = trials.importances
    if not trials.parameters:
        return None
    if not found:
        count = len(results_of(trials.of(Shown.ALL)))
        words = (
            f"No importance yet: at least {MIN_TRIALS} trials with a value are needed, and "
            f"there are {count}."
        )
        if count >= MIN_TRIALS:
            words = "No importance: the trials do not differ in their values."
        return Panel(words)
    has_stopped = len(trials.of(Shown.ALL)) > len(trials.of(Shown.COMPLETE))
    sets = found if has_stopped else {Shown.ALL: found[Shown.ALL]}
    most = max(map(len, sets.values()))
    few = f" Fewer than {MIN_TRIALS} trials are complete, so stopped ones count, too."
    first = next(iter(sets.values()))
    answer = Answer(leaders(first), "importance").sentence
    return Panel(
        f"{answer}{undecided(first)} It is how differently each is distributed among the best "
        "tenth of the trials (conditional PED-ANOVA), as a share of the sum. Lines are 80 % "
        "intervals over resampled trials."
        + (few if has_stopped and Shown.COMPLETE not in sets else "")
        + (f" The figure has {_MOST_BARS} of {most}." if most > _MOST_BARS else ""),
        [_whiskers(sets, trials.metric)],
        [_importance_table(sets)],
    )


def undecided(ranked: Sequence[Importance]) -> str:
    """Return a sentence where the first hyperparameters cannot be told apart; else nothing."""
    if not ranked:
        return ""
    names = [each.name for each in ranked[1:] if each.high > ranked[0].low]
    together = enumerated(*map(text.clean, (ranked[0].name, *names[:_NAMED])))
    return f" Their order is not certain: the intervals of {together} overlap." if names else ""


def _whiskers(sets: Mapping[Shown, list[Importance]], metric: str) -> Figure:
    rows = {}
    for shown, ranked in sets.items():
        names = text.distinct(
            [text.without_middle(each.name, LABEL_CHARACTERS) for each in ranked[:_MOST_BARS]]
        )
        rows[str(shown)] = [
            (name, each.share, each.low, each.high)
            for name, each in zip(names, ranked, strict=False)
        ]
    label = f"Importance of the hyperparameters for {metric}"
    return Figure("whiskers", {"sets": rows, "label": label, "xLabel": "share of the importance"})


def _importance_table(sets: Mapping[Shown, list[Importance]]) -> Table:
    first, *others = sets.values()
    names = text.distinct([text.clean(each.name) for each in first])
    by_name = [{each.name: each for each in ranked} for ranked in others]
    rows = []
    for name, each in zip(names, first, strict=True):
        cells = _cells(each)
        for ranked in by_name:
            cells += _cells(ranked.get(each.name))
        rows.append((name, *cells))
    of = [" of all", " of complete trials"] if others else [""]
    columns = [title for which in of for title in (f"importance{which}", "80 % interval")]
    return Table(("hyperparameter", *columns), rows)


def _cells(each: Importance | None) -> tuple[str, ...]:
    if each is None:
        return (text.NOTHING, text.NOTHING)
    return (f"{each.share:.0%}", f"{each.low:.0%} to {each.high:.0%}")


def stopping(trials: StudyTrials) -> Panel | None:
    """Return at which rungs trials were stopped; None if none has reached one."""
    stopped = stopped_at(trials.view)
    lasts = [max(s[-1] for s, _ in metrics.values()) for metrics in trials.curves.values()]
    at = sorted({*stopped, *(rung for rung in trials.view.rungs if rung <= max(lasts, default=0))})
    if not at:
        return None
    reached = [sum(last >= step for last in lasts) for step in at]
    continued = [max(0, all_of - stopped[step]) for all_of, step in zip(reached, at, strict=True)]
    names = list(map(str, at))
    word = text.step_word(trials.view.epochs)
    parts = [
        {"name": "continued", "color": "complete", "values": continued},
        {"name": "stopped there", "color": "pruned", "values": [stopped[step] for step in at]},
    ]
    label = f"How many trials continued at each {word}"
    bars = {"labels": names, "parts": parts, "xLabel": word, "yLabel": "trials", "label": label}
    rows = [
        (name, str(on + stopped[step]), str(on), str(stopped[step]))
        for name, step, on in zip(names, at, continued, strict=True)
    ]
    tables = [Table((word, "reached", "continued", "stopped"), rows)]
    agreements = rung_agreements(trials.view)
    if agreements:
        heads = "exempt trials", "rank correlation with the end", "95 % interval"
        cells = [
            (str(each.rung), str(each.trials), text.measured(each.correlation), _interval(each))
            for each in agreements
        ]
        tables.append(Table((f"compared at {word}", *heads), cells))
    return Panel(
        f"How many trials reached each {word} at which trials are compared, and how many of them "
        "were stopped there, or before the next one.",
        [Figure("bars", bars), *_agreement(trials, agreements)],
        tables,
    )


def _agreement(trials: StudyTrials, agreements: Sequence[RungAgreement]) -> list[Figure]:
    """Return the values at the first rung against those at the end, of the exempt trials."""
    known = next((each for each in agreements if each.correlation is not None), None)
    if known is None:
        return []
    where = f"{text.step_word(trials.view.epochs)} {known.rung}"
    label = f"{trials.metric} at the end against {where}, of the trials that are never stopped"
    labels = {"xLabel": f"{trials.metric} at {where}", "yLabel": f"{trials.metric} at the end"}
    pairs = [pair for pair in known.pairs if all(map(is_drawable, pair[1:]))]
    return [Figure("agreement", {**labels, "label": label, "pairs": pairs})] if pairs else []


def _interval(agreement: RungAgreement) -> str:
    if agreement.correlation is None:
        return text.NOTHING
    return "{:.2f} to {:.2f}".format(*agreement.interval)


def front(trials: StudyTrials) -> Panel | None:
    """Return the first two objectives over each other; None with one objective."""
    goals = trials.view.goals.objectives
    if len(goals) < 2 or not trials.of(Shown.COMPLETE):
        return None
    metrics = [text.clean(goal.metric) for goal in goals]
    rows = [
        (str(trial.number), *map(text.measured, trial.values), described(trial))
        for trial in trials.view.front
    ]
    return Panel(
        f"{metrics[0]} and {metrics[1]} of all complete trials. No trial "
        f"{'that keeps the constraints ' if trials.view.goals.constraints else ''}beats those on "
        f"the front in all objectives.{_not_drawn(metrics[2:])}",
        [Figure("front")],
        [Table(("trial", *metrics, "configuration"), rows)],
    )


def _not_drawn(metrics: Sequence[str]) -> str:
    """Return what the lack of these objectives does to the figure, as a sentence; else nothing."""
    if not metrics:
        return ""
    verb = "is" if len(metrics) == 1 else "are"
    return (
        f" {enumerated(*metrics)} {verb} not drawn, so trials on the front may look worse than "
        "others; the table has all objectives."
    )
