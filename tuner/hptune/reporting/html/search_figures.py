"""Figures of the search: values over time, learning curves, importance, early stopping."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from ... import text
from ...core.trial import Direction, Trial
from ..results.importance import MIN_TRIALS
from ..results.rungs import RungAgreement, rung_agreements, stopped_at, stopping_warning
from .panel import (
    BEST,
    COMPLETE,
    LABEL_CHARACTERS,
    MEDIAN,
    MUTED,
    PRUNED,
    Panel,
    Shown,
    Table,
    blank_figure,
    encodable,
    mark,
    style_legend,
)
from .trials import (
    MODES,
    POINTED,
    StudyTrials,
    columns_of,
    described,
    draw_points,
    limit_values,
    value_of,
)

_MOST_BARS = 30
"""Hyperparameters whose importance is drawn; the table has all of them."""


def history(trials: StudyTrials) -> Panel:
    """Return the values of the trials in their order, and the best one so far."""
    plot = blank_figure("trial", trials.metric, counts=True, tooltips=POINTED)
    draw_points(plot, trials, lambda trial: trial.number)
    rows = []
    for shown in MODES:
        steps = _best_so_far(trials.of(shown), trials.direction)
        if not steps:
            continue
        numbers, values = [n for n, _ in steps], [v for _, v in steps]
        last = max(trial.number for trial in trials.of(shown))
        line = plot.step(
            [*numbers, last], [*values, values[-1]], mode="after", color=BEST, line_width=2
        )
        mark(line, shown)
        rows.append(
            Table(
                ("trial", f"best {trials.metric} so far"),
                [(str(number), text.measured(value)) for number, value in steps],
                shown,
            )
        )
    limit_values(plot, trials)
    return Panel(
        f"{trials.metric} of each trial (points), and the best one so far (line)."
        f"{trials.marks_text}",
        [plot],
        rows,
    )


def _best_so_far(trials: Sequence[Trial], direction: Direction) -> list[tuple[int, float]]:
    """Return the trials that improved on all before them; none of those that break a constraint."""
    found: list[tuple[int, float]] = []
    for trial in (each for each in trials if not each.violation):
        if direction.better(value_of(trial), found[-1][1] if found else None):
            found.append((trial.number, value_of(trial)))
    return found


def curves(trials: StudyTrials) -> Panel | None:
    """Return the learning curves; None if no trial reported more than one step."""
    known = {n: each for n, each in trials.curves.items() if len(each[0]) > 1}
    if not known:
        return None
    step = text.step_word(trials.view.epochs)
    plot = blank_figure(step, trials.metric, height=360, counts=True)
    best = trials.view.best
    groups = (
        (trials.pruned, PRUNED, Shown.WITH_PRUNED),
        (trials.complete, COMPLETE, Shown.ALWAYS),
    )
    for group, color, shown in groups:
        drawn = [known[trial.number] for trial in group if trial.number in known]
        if drawn:
            lines = plot.multi_line(
                [encodable(steps) for steps, _ in drawn],
                [encodable(values) for _, values in drawn],
                color=color,
                # A few are as legible as the best one; of many, none hides the others.
                alpha=min(0.8, max(0.3, 20 / len(drawn))),
            )
            mark(lines, shown)
    middle = _median_curve([known[t.number] for t in trials.complete if t.number in known])
    if middle:
        plot.line(
            [s for s, _ in middle],
            [v for _, v in middle],
            color=MEDIAN,
            line_width=3,
            line_dash="dashed",
            legend_label="median of the complete trials",
        )
    of_best = known.get(best.number) if best else None
    if best is not None and of_best is not None:
        plot.line(*of_best, color=BEST, line_width=3, legend_label=f"best (trial {best.number})")
    if plot.legend:
        plot.legend.location = "bottom_right" if trials.direction is Direction.MAX else "top_right"
        style_legend(plot)
    medians = dict(middle)
    bests = dict(zip(*of_best, strict=True)) if of_best else {}
    rows = [
        (str(at), text.measured(bests.get(at)), text.measured(medians.get(at)))
        for at in sorted({*medians, *bests})
    ]
    return Panel(
        f"{trials.metric} after each {step}: complete trials in blue, stopped ones in orange, the "
        "best one in green.",
        [plot],
        [Table((step, "best trial", "median of the complete trials"), rows)],
    )


def _median_curve(drawn: Sequence[tuple[list[int], list[float]]]) -> list[tuple[int, float]]:
    at: dict[int, list[float]] = {}
    for steps, values in drawn:
        for step, value in zip(steps, values, strict=True):
            at.setdefault(step, []).append(value)
    most = max(map(len, at.values()), default=0)
    # A median over few of the trials would jump.
    return [(s, statistics.median(v)) for s, v in sorted(at.items()) if 2 * len(v) >= most > 1]


def importance(trials: StudyTrials) -> Panel:
    """Return the importance of the hyperparameters."""
    from bokeh.models import FactorRange

    found = trials.importances
    widest = max(found.values(), key=len)
    few = f" Stopped trials count, too: fewer than {MIN_TRIALS} are complete."
    if not widest:
        count = len(trials.of(Shown.WITH_PRUNED))
        words = (
            f"No importance yet: at least {MIN_TRIALS} trials with a value are needed, and "
            f"there are {count}."
        )
        if count >= MIN_TRIALS:
            words = "No importance: the trials do not differ in their values."
        return Panel(words)
    names = text.distinct([text.clean(each.name) for each in widest])
    cells_of = dict(zip((each.name for each in widest), names, strict=True))
    labels = text.distinct(
        [text.without_middle(name, LABEL_CHARACTERS) for name in names[:_MOST_BARS]]
    )
    label_of = dict(zip((each.name for each in widest), labels, strict=False))
    plot = blank_figure(
        "share of the importance",
        "",
        height=70 + 34 * len(labels),
        y_range=FactorRange(*labels[::-1]),
    )
    tables = []
    known = {shown: ranked for shown, ranked in found.items() if ranked}
    if len(known) == 1:  # too few are complete: an empty figure would tell nothing
        known = {Shown.ALWAYS: widest}
    for shown, ranked in known.items():
        drawn = [each for each in ranked if each.name in label_of]
        y = [label_of[each.name] for each in drawn]
        shares = [each.share for each in drawn]
        mark(plot.hbar(y, right=shares, height=0.55, color=COMPLETE, alpha=0.8), shown)
        ends = ([each.low for each in drawn], [each.high for each in drawn])
        mark(plot.segment(ends[0], y, ends[1], y, color=MUTED, line_width=2), shown)
        cells = [
            (cells_of[each.name], f"{each.share:.0%}", f"{each.low:.0%} to {each.high:.0%}")
            for each in ranked
        ]
        tables.append(Table(("hyperparameter", "importance", "80 % interval"), cells, shown))
    plot.x_range.start = 0
    return Panel(
        "How differently each hyperparameter is distributed among the best tenth of the trials "
        "(conditional PED-ANOVA), as a share of the sum; lines are 80 % intervals over resampled "
        "trials."
        + (few if Shown.ALWAYS in known else "")
        + (f" The figure has {_MOST_BARS} of {len(names)}." if names[_MOST_BARS:] else ""),
        [plot],
        tables,
    )


def stopping(trials: StudyTrials) -> Panel | None:
    """Return at which rungs trials were stopped; None if none was."""
    stopped = stopped_at(trials.view)
    if not stopped:
        return None
    lasts = [max(steps) for steps, _ in trials.curves.values()]
    at = sorted(stopped)
    reached = [sum(last >= step for last in lasts) for step in at]
    went_on = [max(0, all_of - stopped[step]) for all_of, step in zip(reached, at, strict=True)]
    names = list(map(str, at))
    word = text.step_word(trials.view.epochs)
    plot = blank_figure(word, "trials", x_range=names, height=260)
    plot.vbar_stack(
        ["on", "stopped"],
        x="step",
        width=0.5,
        color=[COMPLETE, PRUNED],
        source={"step": names, "on": went_on, "stopped": [stopped[step] for step in at]},
        legend_label=["went on", "stopped there"],
    )
    style_legend(plot)
    plot.y_range.start = 0
    rows = [
        (name, str(on + stopped[step]), str(on), str(stopped[step]))
        for name, step, on in zip(names, at, went_on, strict=True)
    ]
    tables = [Table((word, "reached", "went on", "stopped"), rows)]
    agreements = rung_agreements(trials.view)
    if agreements:
        columns = (f"compared at {word}", "complete trials", "rank correlation with the end")
        cells = [
            (str(each.rung), str(each.trials), text.measured(each.correlation))
            for each in agreements
        ]
        tables.append(Table(columns, cells))
    warning = stopping_warning(trials.view)
    return Panel(
        f"How many trials reached each {word} at which trials are compared, and how many of them "
        f"were stopped there, or before the next one.{_agreement_text(agreements)}"
        + (text.sentence(f" {warning[0].upper()}{warning[1:]}") if warning else ""),
        [plot],
        tables,
    )


def _agreement_text(agreements: Sequence[RungAgreement]) -> str:
    """Return how the rungs rank complete trials, as a sentence after others."""
    known = [each for each in agreements if each.correlation is not None]
    if not known:
        return ""
    each_one = ", ".join(f"{each.correlation:.2f} at {each.rung}" for each in known)
    return f" Rank correlation of the values there with those at the end: {each_one}."


def front(trials: StudyTrials) -> Panel | None:
    """Return the first two objectives against each other; None with one objective."""
    goals = trials.view.goals.objectives
    if len(goals) < 2 or not trials.complete:
        return None
    best = {trial.number for trial in trials.view.front}
    plot = blank_figure(
        *(text.clean(str(goal)) for goal in goals[:2]), height=360, tooltips=POINTED
    )
    others = [t for t in trials.complete if t.number not in best]
    for group, color, marker, size in (
        ([t for t in others if not t.violation], COMPLETE, "circle", 6),
        ([t for t in others if t.violation], MUTED, "x", 6),
        ([t for t in trials.complete if t.number in best], BEST, "circle", 10),
    ):
        source = {
            **columns_of(group),
            "x": [t.values[0] for t in group],
            "y": [t.values[1] for t in group],
        }
        plot.scatter(
            "x", "y", source=source, marker=marker, color=color, size=size, alpha=0.7, line_width=2
        )
    metrics = [text.clean(goal.metric) for goal in goals]
    rows = [
        (str(trial.number), *map(text.measured, trial.values), described(trial))
        for trial in trials.view.front
    ]
    return Panel(
        f"{metrics[0]} and {metrics[1]} of all complete trials. No trial "
        f"{'that keeps the constraints ' if trials.view.goals.constraints else ''}beats those in "
        f"green in all objectives.{trials.crosses_text}",
        [plot],
        [Table(("trial", *metrics, "configuration"), rows)],
        is_folded=False,
    )
