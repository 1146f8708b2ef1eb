"""What the live display shows at one instant, in lines; loads rich."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from rich.cells import cell_len
from rich.text import Text

from ...core.snapshot import RunningAttempt, StudySnapshot
from ...core.trial import Trial, TrialState
from .. import text
from .progress import GUTTER, EndedTrial, TrialRate, latest_value, step_of, waits

_BAR_CELLS = 36
_RUNNING_ROWS = 12
_METRIC_CELLS = 16
_CONFIGURATION_LINES = 2

_LABEL = "dim"
_GOOD = "bold green"
_BAD = "red"
_WARN = "yellow"
_BAR = "cyan"


def frame(
    snapshot: StudySnapshot,
    recent: Sequence[EndedTrial],
    pace: TrialRate,
    *,
    epochs: int | None,
    width: int,
    height: int,
) -> list[Text]:
    """The lines of one redraw, none wider than `width` and no more than `height` of them."""
    head = [*_progress_lines(snapshot, pace, width, over=False)]
    best = _best_lines(snapshot, epochs, width)
    foot = _foot_lines(snapshot)
    airy = height >= 20
    fixed = len(head) + len(best) + len(foot) + 1 + (4 if airy else 0)
    room = max(1, height - 1 - fixed)
    ended_rows = min(len(recent), max(0, room - 2)) if snapshot.running else len(recent)
    running_rows = max(1, min(_RUNNING_ROWS, room - ended_rows))
    table = _trial_lines(
        snapshot, recent[len(recent) - ended_rows :], pace, epochs, rows=running_rows, airy=airy
    )
    lines: list[Text] = []
    for block in (head, best, table, foot):
        if lines and block and airy:
            lines.append(Text())
        lines += block
    return [_fit(line, width) for line in lines[: max(1, height - 1)]]


def summary(snapshot: StudySnapshot, pace: TrialRate, *, width: int) -> list[Text]:
    """What stays on the screen after the end; what was found is told by whoever ran the study."""
    return [_fit(line, width) for line in _progress_lines(snapshot, pace, width, over=True)[:1]]


def _progress_lines(
    snapshot: StudySnapshot, pace: TrialRate, width: int, *, over: bool
) -> list[Text]:
    told = text.progress(snapshot.ended, snapshot.budget_trials)
    times = f"{'took ' if over else ''}{text.duration(pace.elapsed_seconds)}"
    if not over:
        left = pace.seconds_left(snapshot)
        times += "" if left is None else f"   ETA {text.duration(left)}"
    line = _gutter("trials")
    if snapshot.budget_trials:
        cells = max(6, min(_BAR_CELLS, width - GUTTER - len(told) - len(times) - 7))
        filled = min(cells, cells * snapshot.ended // snapshot.budget_trials)
        line.append("━" * filled, _BAR).append("─" * (cells - filled), _LABEL).append("  ")
    line.append(told, "bold").append(f"   {times}")
    counts = _gutter("")
    shown = text.counts(snapshot.counts, of=snapshot.budget_trials)
    for i, part in enumerate(shown.split(", ") if any(snapshot.counts.values()) else ()):
        counts.append(", " if i else "", _LABEL)
        counts.append(part, _BAD if part.endswith("failed") else "")
    return [line, counts] if counts.cell_len > GUTTER else [line]


def _best_lines(snapshot: StudySnapshot, epochs: int | None, width: int) -> list[Text]:
    if snapshot.best is None:
        return [_gutter("best").append(f"{text.NOTHING}  {snapshot.aims}")]
    best = snapshot.best
    values = ", ".join(text.measured(value) for value in best.values)
    line = _gutter("best").append(values, _WARN if best.violation else _GOOD)
    at = text.at_step(best.step, epochs)
    others = f" and {len(snapshot.front) - 1} more" if len(snapshot.front) > 1 else ""
    words = [f"  {snapshot.aims}", f"trial {best.number}{others}", at or ""]
    words.append("infeasible" if best.violation else "")
    line.append(", ".join(word for word in words if word))
    return [line, *_configuration_lines(best, width)]


def _configuration_lines(trial: Trial, width: int) -> list[Text]:
    """The hyperparameters, as many as fit on a few lines, and how many more there are."""
    lines: list[Text] = []
    parts = text.assignments(trial.params)
    for i, part in enumerate(parts):
        more = f"  … {len(parts) - i} more"
        name, _, value = part.partition("=")
        told = Text().append(f"{name}=", _LABEL).append(value)
        told.truncate(max(1, width - GUTTER - len(more)), overflow="ellipsis")
        last = len(lines) == _CONFIGURATION_LINES
        reserve = len(more) if last and i + 1 < len(parts) else 0
        if lines and lines[-1].cell_len + 2 + told.cell_len + reserve <= width:
            lines[-1].append("  ").append_text(told)
        elif last:
            lines[-1].append(more, _LABEL)
            break
        else:
            lines.append(_gutter("").append_text(told))
    return lines


def _trial_lines(
    snapshot: StudySnapshot,
    recent: Sequence[EndedTrial],
    pace: TrialRate,
    epochs: int | None,
    *,
    rows: int,
    airy: bool,
) -> list[Text]:
    metric = text.shorten(snapshot.goal.metric, _METRIC_CELLS)
    head = ("trial", text.step_word(epochs), metric, "time")
    running = sorted(snapshot.running, key=lambda run: run.trial.number)
    shown = running if len(running) <= rows else running[: max(0, rows - 1)]
    running_cells = [_running_cells(run, snapshot, pace, epochs) for run in shown]
    ended_cells = [_ended_cells(ended) for ended in recent]
    columns = _Columns([head, *running_cells, *ended_cells])
    lines = [columns.row("", head, _LABEL)] if running_cells or ended_cells else []
    for i, (run, cells) in enumerate(zip(shown, running_cells, strict=True)):
        lines.append(_running_line(run, columns.row("" if i else "running", cells)))
    if len(shown) < len(running):
        label = "" if shown else "running"
        lines.append(_gutter(label).append(f"… {len(running) - len(shown)} more", _LABEL))
    if airy and running and ended_cells:
        lines.append(Text())
    best = {trial.number for trial in snapshot.front}
    for i, (ended, cells) in enumerate(zip(recent, ended_cells, strict=True)):
        is_best = ended.trial.number in best
        lines.append(_ended_line(ended, cells, columns, "" if i else "ended", is_best=is_best))
    return lines


_Cells = tuple[str, str, str, str]
_LEAST_CELLS = (5, 5, 7, 6)
"""Room for usual values from the start, so that columns stay where they are."""


class _Columns:
    """Columns that are each as wide as the widest of their cells."""

    def __init__(self, rows: Sequence[_Cells]) -> None:
        widest = (max(map(cell_len, column)) for column in zip(*rows, strict=True))
        self._widths = [max(*each) for each in zip(_LEAST_CELLS, widest, strict=True)]

    def row(self, label: str, cells: Sequence[str], style: str = "") -> Text:
        """One row, or the beginning of one."""
        columns = zip(self._widths, cells, strict=False)
        padded = (" " * (width - cell_len(cell)) + cell for width, cell in columns)
        return _gutter(label).append("  ".join(padded), style)


def _running_cells(
    run: RunningAttempt, snapshot: StudySnapshot, pace: TrialRate, epochs: int | None
) -> _Cells:
    return (
        str(run.trial.number),
        step_of(run, epochs),
        text.measured(latest_value(run, snapshot.goal)),
        text.duration(pace.seconds_run(run.trial.number)),
    )


def _ended_cells(ended: EndedTrial) -> _Cells:
    return (
        str(ended.trial.number),
        text.NOTHING if ended.trial.step is None else str(ended.trial.step),
        text.measured(ended.trial.value),
        text.duration(ended.seconds),
    )


def _running_line(run: RunningAttempt, row: Text) -> Text:
    row.append(f"  {text.where(run.attempt.node, run.attempt.placement)}", _LABEL)
    if waits(run):
        row.append(f"  {text.clean(run.attempt.reason)}", _WARN)
    return row


def _ended_line(
    ended: EndedTrial, cells: _Cells, columns: _Columns, label: str, *, is_best: bool
) -> Text:
    if ended.trial.state is TrialState.FAILED:
        # The reason takes the columns that a failed trial leaves empty: it is what matters.
        after = "" if ended.seconds is None else f" after {cells[3]}"
        line = columns.row(label, cells[:1])
        return line.append(f"  failed{after}: {text.failure(ended.trial)}", _BAD)
    line = columns.row(label, cells)
    line.append(f"  {ended.trial.state.lower()}", _LABEL)
    if ended.trial.violation:
        line.append(", infeasible", _WARN)
    if is_best:
        line.append(", best", _GOOD)
    return line


def _foot_lines(snapshot: StudySnapshot) -> list[Text]:
    line = _gutter("workers").append(str(snapshot.workers))
    if snapshot.workers:
        line.append(f"  {snapshot.cpus_held:.3g}/{snapshot.cpus} cores")
        if snapshot.gpus:
            line.append(f", {snapshot.gpus_held:.3g}/{snapshot.gpus} GPUs")
        line.append(" held")
    lines = [line]
    if snapshot.stopping:
        lines.append(_gutter("stopping").append(text.clean(snapshot.stopping), _WARN))
    elif snapshot.stall_reason:
        lines.append(_gutter("waiting").append(text.clean(snapshot.stall_reason), _WARN))
    return lines


def _gutter(label: str) -> Text:
    return Text().append(label.ljust(GUTTER), _LABEL)


def paragraph(words: str, *, label: str = "", width: int) -> list[Text]:
    """Words beside a label, if there is one, in lines that break between words.

    A word that is longer than a line stays whole: paths and addresses are copied.
    """
    indent = GUTTER if label else 0
    lines = textwrap.wrap(
        words, max(1, width - indent), break_long_words=False, break_on_hyphens=False
    )
    first, *others = lines or [""]
    return [
        _gutter(label).append(first) if label else Text(first),
        *(Text(" " * indent + line) for line in others),
    ]


def _fit(line: Text, width: int) -> Text:
    fitted = line.copy()
    fitted.no_wrap = True
    fitted.rstrip()
    fitted.truncate(width, overflow="ellipsis")
    return fitted
