"""Figures of the search space: what each hyperparameter does to the values."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ... import text
from ...core.space.space import (
    BooleanParameter,
    ChoiceParameter,
    FloatParameter,
    IntParameter,
    Parameter,
    Scale,
)
from ...core.trial import Direction, Trial, TrialState
from .panel import LABEL_CHARACTERS, MUTED, Panel, Shown, Table, blank_figure, mark
from .trials import (
    POINTED,
    StudyTrials,
    columns_of,
    draw_points,
    limit_values,
    value_in,
    value_of,
)

_SLICES = 6
_NOT_ACTIVE = -0.1
"""Where parallel coordinates show a hyperparameter that the trial does not have."""

_MOST_AXES = 20
"""Hyperparameters that parallel coordinates show."""

_LABELLED = 6
"""Values of a hyperparameter, at most, that parallel coordinates label one by one, and between
which no contour is drawn."""

_WORD_CHARACTERS = 14
"""Longest value on an axis."""

_SIDE_BY_SIDE = 30
"""Characters of an axis's labels that fit next to each other on a phone; more are slanted."""

_MARGIN = 0.04
"""Room beside the ends of a range, as a share of it."""

_AXIS_PIXELS = 70
"""Least distance between two axes of parallel coordinates; a narrow page scrolls the figure."""

_CONTOUR_CELLS = 40
_CONTOUR_TRIALS = 10
"""Complete trials below which no contour is drawn."""

_CONTOUR_WIDTH = 0.12
"""Bandwidth of the smoothed values, as a share of each hyperparameter's range."""

_Number = FloatParameter | IntParameter


def slices(trials: StudyTrials) -> Panel | None:
    """Return the values over the leading hyperparameters, one figure for each."""
    chosen = trials.leading_parameters[:_SLICES]
    if not chosen or not trials.of(Shown.WITH_PRUNED):
        return None
    figures, rows = [], []
    for parameter in chosen:
        figures.append(_slice(trials, parameter))
        best = trials.view.best
        value = best.params.get(parameter.name) if best else None
        rows.append(
            (
                text.clean(parameter.name),
                parameter.bounds,
                text.param(value) if best and parameter.name in best.params else text.NOTHING,
            )
        )
    over = "the hyperparameter"
    if len(chosen) > 1:
        over = f"each of {len(chosen)} hyperparameters, {trials.order_text}"
    return Panel(
        f"{trials.metric} over {over}. Axes show the whole range.{trials.marks_text}",
        figures,
        [Table(("hyperparameter", "range", "best trial"), rows)],
    )


def _slice(trials: StudyTrials, parameter: Parameter) -> Any:
    from bokeh.models import FactorRange
    from bokeh.transform import jitter

    name = text.clean(parameter.name)
    options: dict[str, Any] = {"tooltips": POINTED, "height": 260}
    if _has_text(parameter):
        values = [
            text.without_middle(text.param(each), _WORD_CHARACTERS)
            for each in parameter.values or ()
        ]
        words = text.distinct(values)
        across = FactorRange(*words)
        plot = blank_figure(name, trials.metric, x_range=across, **options)
        _slant(plot, words)
        draw_points(
            plot,
            trials,
            lambda trial: _word(parameter, trial, words),
            x=jitter("x", width=0.4, range=across),
            size=6,
        )
    else:
        kind = _axis_type(parameter)
        across = _whole_range(parameter, trials)
        plot = blank_figure(name, trials.metric, x_axis_type=kind, x_range=across, **options)
        plot.xaxis.ticker = _ticks(parameter) or plot.xaxis.ticker
        draw_points(plot, trials, lambda trial: _number(parameter, trial), size=6)
    limit_values(plot, trials)
    return plot


def _whole_range(parameter: Parameter, trials: StudyTrials) -> tuple[float, float]:
    """Return the ends of an axis: the range of a parameter, and trials beyond it, with a margin."""
    found = [_number(parameter, trial) for trial in trials.of(Shown.WITH_PRUNED)]
    known = [value for value in found if value is not None]
    if isinstance(parameter, _Number):
        known += [parameter.low, parameter.high]
    else:
        known += [each for each in parameter.values or () if isinstance(each, int | float)]
    low, high = min(known), max(known)
    if _axis_type(parameter) == "log" and low > 0:
        factor = (high / low) ** _MARGIN
        return low / factor, high * factor
    margin = _MARGIN * (high - low)
    return low - margin, high + margin


def _slant(plot: Any, labels: Sequence[str]) -> None:
    """Slant the labels of the x axis if they have no room next to each other."""
    if sum(map(len, labels)) > _SIDE_BY_SIDE:
        plot.xaxis.major_label_orientation = 0.5


def _word(parameter: Parameter, trial: Trial, words: Sequence[str]) -> str | None:
    value = value_in(parameter, trial)
    alike = (each == value and type(each) is type(value) for each in parameter.values or ())
    return next((word for word, is_it in zip(words, alike, strict=True) if is_it), None)


def _number(parameter: Parameter, trial: Trial) -> float | None:
    """Return the trial's number; None if another declaration of the name gave it a word."""
    value = trial.params.get(parameter.name)
    return value if isinstance(value, int | float) else None


def _axis_type(parameter: Parameter) -> str:
    is_log = isinstance(parameter, _Number) and parameter.scale is Scale.LOG
    return "log" if is_log else "linear"


def _ticks(parameter: Parameter) -> list[float]:
    """Return where an axis has ticks; empty for Bokeh's own choice."""
    if parameter.values is not None and len(parameter.values) <= 8:
        return [float(each) for each in parameter.values if isinstance(each, int | float)]
    if not isinstance(parameter, _Number) or parameter.scale is not Scale.LOG:
        return []
    low, high = math.log10(parameter.low), math.log10(parameter.high)
    factors = (1.0,) if high - low >= 2.0 else (1.0, 2.0, 5.0)
    powers = range(math.floor(low), math.ceil(high) + 1)
    ticks = [factor * 10.0**power for power in powers for factor in factors]
    return [each for each in ticks if parameter.low <= each <= parameter.high]


def _has_text(parameter: Parameter) -> bool:
    """Return whether the values are words: an axis shows each of them."""
    if isinstance(parameter, ChoiceParameter):
        return not parameter.ordered or isinstance(parameter.values[0], bool)
    return isinstance(parameter, BooleanParameter)


def parallel(trials: StudyTrials) -> Panel | None:
    """Return all configurations as lines across one axis for each hyperparameter."""
    from bokeh.models import ColumnDataSource, FixedTicker, Range1d

    parameters, which = list(trials.parameters.values()), ""
    if len(parameters) > _MOST_AXES:
        which = (
            f" Of {len(parameters)} hyperparameters, {_MOST_AXES} are shown, {trials.order_text}."
        )
        parameters = trials.leading_parameters[:_MOST_AXES]
    ranked = sorted(trials.of(Shown.WITH_PRUNED), key=value_of)
    if len(parameters) < 2 or not ranked:
        return None
    if trials.direction is Direction.MIN:
        ranked.reverse()  # the best lines are drawn last, on top
    plot = blank_figure(
        "",
        "",
        height=360,
        min_width=_AXIS_PIXELS * len(parameters),
        tooltips=POINTED,
        x_range=Range1d(-0.3, len(parameters) - 0.7),
        y_range=Range1d(-0.25, 1.15),
    )
    mapper = _colours(trials)
    for state, shown in ((True, Shown.ALWAYS), (False, Shown.WITH_PRUNED)):
        group = [t for t in ranked if (t.state is TrialState.COMPLETE) is state]
        if not group:
            continue
        source = ColumnDataSource(
            {
                **columns_of(group),
                "xs": [list(range(len(parameters)))] * len(group),
                "ys": [[round(_place(p, t), 4) for p in parameters] for t in group],
            }
        )
        lines = plot.multi_line(
            "xs",
            "ys",
            source=source,
            color={"field": "value", "transform": mapper},
            alpha=0.5,
        )
        mark(lines, shown)
    names = [text.without_middle(parameter.name, LABEL_CHARACTERS) for parameter in parameters]
    plot.xaxis.ticker = FixedTicker(ticks=list(range(len(parameters))))
    plot.xaxis.major_label_overrides = dict(enumerate(names))
    _slant(plot, names)
    plot.yaxis.visible = False
    plot.ygrid.visible = False
    for at, parameter in enumerate(parameters):
        ends = _ends(parameter)
        is_listed = parameter.values is not None and len(parameter.values) <= _LABELLED
        plot.text(
            [at] * len(ends),
            [place for place, _ in ends],
            [label for _, label in ends],
            text_color=MUTED,
            text_font_size="11px",
            text_align="left" if is_listed else "center",
            text_baseline="bottom" if is_listed else "middle",
            x_offset=5 if is_listed else 0,
        )
    _colour_bar(plot, mapper)
    return Panel(
        "Each line is a trial; its colour is its value (yellow is best). A line below an axis "
        "means that the trial does not have that hyperparameter. The table of all trials is at "
        f"the end of this page.{which}",
        [plot],
    )


def _colours(trials: StudyTrials) -> Any:
    """Return the colours of values: yellow is best, and stopped trials do not widen the range."""
    from bokeh.models import LinearColorMapper
    from bokeh.palettes import Viridis256

    values = [value_of(t) for t in trials.complete or trials.of(Shown.WITH_PRUNED)]
    low, high = trials.usual_range(values) or (min(values), max(values))
    if low == high:  # all have one colour, that of the middle
        low, high = low - max(1.0, abs(low)), high + max(1.0, abs(high))
    palette = Viridis256 if trials.direction is Direction.MAX else Viridis256[::-1]
    return LinearColorMapper(palette=palette, low=low, high=high, nan_color="rgba(0, 0, 0, 0)")


def _colour_bar(plot: Any, mapper: Any) -> None:
    from bokeh.models import ColorBar

    bar = ColorBar(
        color_mapper=mapper, width=10, background_fill_alpha=0, major_label_text_color=MUTED
    )
    plot.add_layout(bar, "right")


def _place(parameter: Parameter, trial: Trial) -> float:
    value = value_in(parameter, trial)
    return _NOT_ACTIVE if value is None else parameter.to_unit(value)


def _ends(parameter: Parameter) -> list[tuple[float, str]]:
    values = parameter.values
    if values is not None and len(values) <= _LABELLED:
        return [(parameter.to_unit(each), text.shorten(text.param(each), 12)) for each in values]
    ends = ((parameter.from_unit(unit), place) for unit, place in ((0.0, -0.04), (1.0, 1.06)))
    return [(place, text.shorten(text.param(value), 12)) for value, place in ends]


def contour(trials: StudyTrials) -> Panel | None:
    """Return the smoothed values over the two leading numbers of many values; None without two."""
    numbers = [
        each
        for each in trials.leading_parameters
        if isinstance(each, _Number)
        and each.scale is not Scale.REVERSE_LOG
        and (each.values is None or len(each.values) > _LABELLED)
    ]
    if len(numbers) < 2:
        return None
    across, up = numbers[:2]
    group = _having_both(trials.complete, across, up)
    if len(group) < _CONTOUR_TRIALS:
        return None
    plot = blank_figure(
        text.clean(across.name),
        text.clean(up.name),
        height=360,
        tooltips=POINTED,
        x_axis_type=_axis_type(across),
        y_axis_type=_axis_type(up),
        x_range=_whole_range(across, trials),
        y_range=_whole_range(up, trials),
    )
    plot.xaxis.ticker = _ticks(across) or plot.xaxis.ticker
    plot.yaxis.ticker = _ticks(up) or plot.yaxis.ticker
    mapper = _colours(trials)
    # A stopped trial's value is that of fewer steps: it has a point, and no part in the colours.
    plot.image(
        [_smoothed(group, across, up)],
        x=across.low,
        y=up.low,
        dw=across.high - across.low,
        dh=up.high - up.low,
        color_mapper=mapper,
    )
    for points, shown in (
        (group, Shown.ALWAYS),
        (_having_both(trials.pruned, across, up), Shown.WITH_PRUNED),
    ):
        source = {
            **columns_of(points),
            "x": [t.params[across.name] for t in points],
            "y": [t.params[up.name] for t in points],
        }
        marks = plot.scatter(
            "x", "y", source=source, size=5, fill_color="white", line_color="black"
        )
        mark(marks, shown)
    _colour_bar(plot, mapper)
    return Panel(
        f"{trials.metric}, smoothed over {text.clean(across.name)} and {text.clean(up.name)}, the "
        f"first two numbers of many values, {trials.order_text}. Points are trials; empty "
        "regions were not tried.",
        [plot],
    )


def _having_both(trials: Sequence[Trial], one: _Number, other: _Number) -> list[Trial]:
    return [t for t in trials if None not in (value_in(one, t), value_in(other, t))]


def _smoothed(group: Sequence[Trial], across: _Number, up: _Number) -> NDArray[np.float64]:
    """Return the kernel-weighted mean of the values on a grid; NaN far from all trials."""
    points = np.array([[p.to_unit(t.params[p.name]) for p in (across, up)] for t in group])
    values = np.array([value_of(trial) for trial in group])
    centres = (np.arange(_CONTOUR_CELLS) + 0.5) / _CONTOUR_CELLS
    far_x = (centres[:, None] - points[:, 0]) ** 2
    far_y = (centres[:, None] - points[:, 1]) ** 2
    squares = (far_y[:, None, :] + far_x[None, :, :]) / _CONTOUR_WIDTH**2
    weights = np.exp(-0.5 * squares)
    total = weights.sum(axis=2)
    means: NDArray[np.float64] = (weights @ values) / np.maximum(total, 1e-12)
    return np.where(squares.min(axis=2) < 4.0, means, np.nan)
