"""The lines of the live display at one instant; loads rich."""

from __future__ import annotations

import math
import textwrap
from collections import deque
from collections.abc import Sequence

from rich.cells import cell_len
from rich.text import Text

from ... import text
from ...core.snapshot import RunningAttempt, StudySnapshot
from ...core.trial import Trial, TrialState
from .progress import (
    LABEL_CELLS,
    EndedTrial,
    RunHeader,
    TrialRate,
    is_waiting,
    latest_value,
    step_of,
)

_BAR_CELLS = 36
_RUNNING_ROWS = 12
_ENDED_ROWS = 4
_METRIC_CELLS = 40
_CONFIGURATION_LINES = 2
_LEAST_CELLS = (5, 5, 7, 6)
"""Least widths of the table's columns: most values fit, so that columns stay where they are."""
_ROOMY_LINES = 20
"""Height of a terminal from which on blank lines separate the parts."""

_WIDE_CELLS = 160
"""Width of a terminal from which on the configurations of running trials are shown."""

_LABEL = "dim"
_GOOD = "bold green"
_BAD = "red"
_WARN = "yellow"
_BAR = "cyan"

_Row = tuple[Sequence[str], Text]
"""The cells of a row of the table, and what follows them."""


class Frames:
    """What a live display draws, and when.

    Args:
        refresh_seconds: Shortest time between two redraws.
    """

    def __init__(self, refresh_seconds: float) -> None:
        self._refresh_seconds = refresh_seconds
        self._rate = TrialRate()
        self._epochs: int | None = None
        self._stops_early = False
        self._earlier_seconds = 0.0
        self._recent: deque[EndedTrial] = deque(maxlen=_ENDED_ROWS)
        self._snapshot: StudySnapshot | None = None
        self._drawn_at = -math.inf

    def start(self, header: RunHeader) -> None:
        """Begin with a run."""
        self._epochs, self._stops_early = header.epochs, header.stops_early
        self._earlier_seconds = header.earlier_seconds
        self._rate.begin(header.began_at)

    def update(self, snapshot: StudySnapshot, ended: Sequence[Trial], now: float) -> bool:
        """Observe the study, as `Progress.update`, and return whether to draw it."""
        self._recent.extend(self._rate.update(snapshot, ended, now))
        self._snapshot = snapshot
        return not 0 <= now - self._drawn_at < self._refresh_seconds

    def draw(self, now: float, *, width: int, height: int) -> list[Text]:
        """Return the lines of one redraw: none wider than the terminal, fewer than its height."""
        assert self._snapshot is not None
        self._drawn_at = now
        snapshot, recent, rate = self._snapshot, tuple(self._recent), self._rate
        head = _progress_lines(snapshot, self._times(snapshot), width)
        best = _best_lines(snapshot, self._epochs, width)
        foot = _foot_lines(snapshot, width)
        is_roomy = height >= _ROOMY_LINES
        fixed = len(head) + len(best) + len(foot) + 1 + (4 if is_roomy else 0)
        room = max(1, height - 1 - fixed)
        ended_rows = min(len(recent), max(0, room - 2)) if snapshot.running else len(recent)
        running_rows = max(1, min(_RUNNING_ROWS, room - ended_rows))
        metric = text.shorten(snapshot.goal.metric, max(8, min(_METRIC_CELLS, width // 5)))
        names = ("trial", text.step_word(self._epochs), metric, "time")
        running = _running_table(
            snapshot, rate, self._epochs, most=running_rows, is_wide=width >= _WIDE_CELLS
        )
        ended = _ended_table(snapshot, recent[len(recent) - ended_rows :])
        table = _table(names, running, ended, is_roomy=is_roomy)
        lines: list[Text] = []
        for block in (head, best, table, foot):
            if lines and block and is_roomy:
                lines.append(Text())
            lines += block
        return [_fit(line, width) for line in lines[: max(1, height - 1)]]

    def _times(self, snapshot: StudySnapshot) -> str:
        """Return the study's time so far, and an estimate of the time left."""
        rate = self._rate
        times = text.duration(self._earlier_seconds + rate.elapsed_seconds)
        if (left := rate.seconds_left(snapshot, self._epochs)) is not None:
            return f"{times}, about {text.duration(left)} left"
        if (expected := rate.expected(snapshot, self._epochs)) is None:
            return times
        each, rest = map(text.duration, expected)
        if self._stops_early:
            return f"{times}, trials of up to {each}: at most {rest} left"
        return f"{times}, trials of about {each}: some {rest} left"

    def last(self, width: int) -> list[Text]:
        """Return the line that stays after the end, as the command prints the results."""
        if self._snapshot is None:
            return []
        return [_fit(_bar_line(self._snapshot, "", width), width)]


def paragraph(words: str, *, label: str = "", width: int) -> list[Text]:
    """Return words next to a label, if there is one, in lines that break between words.

    A word that is longer than a line stays whole, so that paths and addresses can be copied.
    """
    indent = LABEL_CELLS if label else 0
    first, *others = textwrap.wrap(
        words, max(1, width - indent), break_long_words=False, break_on_hyphens=False
    ) or [""]
    return [
        _labelled(label).append(first) if label else Text(first),
        *(Text(" " * indent + line) for line in others),
    ]


def _progress_lines(snapshot: StudySnapshot, times: str, width: int) -> list[Text]:
    lines = [_bar_line(snapshot, times, width)]
    if any(snapshot.counts.values()):
        words = text.counts(
            snapshot.counts, of=snapshot.budget_trials, interrupted_trials=snapshot.interrupted
        )
        counts = _labelled("").append(words)
        counts.highlight_regex(r"\d+ failed", _BAD)
        lines.append(counts)
    return lines


def _bar_line(snapshot: StudySnapshot, times: str, width: int) -> Text:
    done = text.progress(snapshot.ended, snapshot.budget_trials)
    line = _labelled("trials")
    if snapshot.budget_trials:
        room = width - LABEL_CELLS - len(done) - len(times) - 7
        cells = max(6, min(_BAR_CELLS, room))
        filled = min(cells, cells * snapshot.ended // snapshot.budget_trials)
        line.append("━" * filled, _BAR).append("─" * (cells - filled), _LABEL).append("  ")
    return line.append(done, "bold").append(f"   {times}")


def _best_lines(snapshot: StudySnapshot, epochs: int | None, width: int) -> list[Text]:
    if snapshot.best is None:
        return [_labelled("best").append(f"{text.NOTHING}  {snapshot.goals}")]
    best = snapshot.best
    values = ", ".join(text.measured(value) for value in best.values)
    line = _labelled("best").append(values, _WARN if best.violation else _GOOD)
    others = f" and {len(snapshot.front) - 1} more" if len(snapshot.front) > 1 else ""
    words = [f"  {snapshot.goals}", f"trial {best.number}{others}", text.value_step(best, epochs)]
    words.append("infeasible" if best.violation else "")
    line.append(", ".join(word for word in words if word))
    return [line, *_configuration_lines(best, width)]


def _configuration_lines(trial: Trial, width: int) -> list[Text]:
    """Return the hyperparameters that fit on a few lines, and how many more there are."""
    lines: list[Text] = []
    parts = text.assignments(text.shown_params(trial))
    for i, part in enumerate(parts):
        more = f"  … {len(parts) - i} more"
        name, _, value = part.partition("=")
        shown = Text().append(f"{name}=", _LABEL).append(value)
        shown.truncate(max(1, width - LABEL_CELLS - len(more)), overflow="ellipsis")
        last = len(lines) == _CONFIGURATION_LINES
        reserve = len(more) if last and i + 1 < len(parts) else 0
        if lines and lines[-1].cell_len + 2 + shown.cell_len + reserve <= width:
            lines[-1].append("  ").append_text(shown)
        elif last:
            lines[-1].append(more, _LABEL)
            break
        else:
            lines.append(_labelled("").append_text(shown))
    return lines


def _running_table(
    snapshot: StudySnapshot, rate: TrialRate, epochs: int | None, *, most: int, is_wide: bool
) -> list[_Row]:
    running = sorted(snapshot.running, key=lambda run: run.trial.number)
    shown = running if len(running) <= most else running[: most - 1]
    rows: list[_Row] = []
    for run in shown:
        cells = (
            str(run.trial.number),
            step_of(run, epochs),
            text.measured(latest_value(run, snapshot.goal)),
            text.duration(rate.seconds_run(run.trial.number)),
        )
        place = Text("better than the best  " if _is_ahead(run, snapshot) else "", _GOOD)
        place.append(text.attempt_where(run.attempt), _LABEL)
        place.append(_confirms(run.trial), _LABEL)
        place.append(f"  {text.clean(run.attempt.reason)}" if is_waiting(run) else "", _WARN)
        if is_wide:
            place.append(f"  {' '.join(text.assignments(run.trial.params))}", _LABEL)
        rows.append((cells, place))
    if len(shown) < len(running):
        rows.append(((), Text(f"… {len(running) - len(shown)} more", _LABEL)))
    return rows


def _is_ahead(run: RunningAttempt, snapshot: StudySnapshot) -> bool:
    """Return whether a running trial's latest value is better than the best result."""
    value, best = latest_value(run, snapshot.goal), snapshot.best
    if value is None or best is None or best.violation or len(best.values) > 1:
        return False
    is_other = best.number not in (run.trial.number, run.trial.confirms)
    return is_other and snapshot.goal.direction.better(value, best.value)


def _ended_table(snapshot: StudySnapshot, recent: Sequence[EndedTrial]) -> list[_Row]:
    best = {trial.number for trial in snapshot.front}
    top = "best" if len(snapshot.goals.objectives) == 1 else "on the front"
    rows: list[_Row] = []
    for ended in recent:
        trial, seconds = ended.trial, text.duration(ended.seconds)
        number = str(trial.number)
        if trial.state is TrialState.FAILED:
            # The reason takes the columns that a failed trial leaves empty: it is what matters.
            after = "" if ended.seconds is None else f" after {seconds}"
            rows.append(((number,), Text(f"failed{after}: {text.failure(trial)}", _BAD)))
            continue
        step = text.NOTHING if trial.step is None else f"from {trial.step}"
        is_best = trial.number in best
        words = Text(top if is_best else trial.state.lower(), _GOOD if is_best else _LABEL)
        words.append(", infeasible" if trial.violation else "", _WARN)
        words.append(_confirms(trial), _LABEL)
        rows.append(((number, step, text.measured(trial.value), seconds), words))
    return rows


def _confirms(trial: Trial) -> str:
    return f", {text.again(trial)}" if text.again(trial) else ""


def _table(
    names: Sequence[str], running: Sequence[_Row], ended: Sequence[_Row], *, is_roomy: bool
) -> list[Text]:
    """Return the lines of a table whose columns are as wide as the widest of their cells."""
    rows = [*running, *ended]
    if not rows:
        return []
    widths = [
        max(
            least,
            *(cell_len(cells[i]) for cells in (names, *(row[0] for row in rows)) if cells[i:]),
        )
        for i, least in enumerate(_LEAST_CELLS)
    ]
    lines: list[Text] = []
    for label, group in (("", [(names, Text())]), ("running", running), ("ended", ended)):
        if label == "ended" and running and ended and is_roomy:
            lines.append(Text())
        for i, (cells, after) in enumerate(group):
            line = _labelled("" if i else label)
            for cell, width in zip(cells, widths, strict=False):
                line.append(" " * (width - cell_len(cell)) + cell + "  ", "" if label else _LABEL)
            lines.append(line.append_text(after))
    return lines


def _foot_lines(snapshot: StudySnapshot, width: int) -> list[Text]:
    line = _labelled("workers").append(str(snapshot.workers))
    if snapshot.cpus:
        line.append(f"  {text.number(snapshot.cpus_held)}/{snapshot.cpus} cores")
        if snapshot.gpus:
            line.append(f", {text.number(snapshot.gpus_held)}/{snapshot.gpus} GPUs")
        line.append(" in use")
    label, reason = "stalled", snapshot.stall_reason
    if snapshot.paused_by:
        label, reason = "paused", f"by {snapshot.paused_by}; `hptune resume` starts trials again"
    if snapshot.stopping:
        label, reason = "stopping", snapshot.stopping
        if reason.startswith("interrupted"):
            reason += "; Ctrl-C again ends all trials at once"
    most = 2 * max(20, width - 20)
    lines = [line]
    if snapshot.jobs:
        lines += paragraph(text.shorten(snapshot.jobs, most), label="jobs", width=width)
    if reason:
        words = paragraph(text.shorten(reason, most), label=label, width=width)
        lines += [Text(word.plain, _WARN) for word in words]
    return lines


def _labelled(label: str) -> Text:
    return Text().append(label.ljust(LABEL_CELLS), _LABEL)


def _fit(line: Text, width: int) -> Text:
    fitted = line.copy()
    fitted.no_wrap = True
    fitted.rstrip()
    fitted.truncate(width, overflow="ellipsis")
    return fitted
