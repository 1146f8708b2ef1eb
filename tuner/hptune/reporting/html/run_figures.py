"""Figures and tables of the run: where trials ran, what they cost, and what failed."""

from __future__ import annotations

import heapq
import itertools
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ... import text
from ...core.attempt import Attempt, Outcome
from ...core.trial import Trial, TrialState
from ..results.costs import costs_of
from ..results.export import by_trial, seconds_run
from ..results.notes import note_words
from ..results.summary import running_rows
from ..results.trials import trial_cells, trial_columns
from ..results.view import INTERRUPTED, StudyView
from .panel import (
    COMPLETE,
    FAILED,
    MUTED,
    PRUNED,
    Panel,
    Table,
    blank_figure,
    legend_above,
)
from .trials import StudyTrials, described

_BARS = {
    Outcome.FINISHED: (COMPLETE, "finished", 0.85),
    Outcome.PRUNED: (PRUNED, "stopped early", 0.85),
    Outcome.RELEASED: (MUTED, "interrupted, paused or moved", 0.85),
    Outcome.ERRORED: (FAILED, "failed", 0.85),
    Outcome.LOST: (FAILED, "lost its worker", 0.4),
    None: (COMPLETE, "", 0.35),
}
_UNITS = ((86400.0, "days"), (3600.0, "hours"), (60.0, "minutes"), (1.0, "seconds"))
_FAILURES_SHOWN = 20
_WAITING_SHOWN = 50
OUTPUT = "error output"
"""Column with what a program wrote, in lines."""


def running(trials: StudyTrials, *, now: float) -> Panel | None:
    """Return the trials that run, and those that wait or are paused; None if there are none."""
    view = trials.view
    states = (TrialState.WAITING, TrialState.PAUSED)
    waiting = sorted((t for t in view.trials if t.state in states), key=lambda t: t.number)
    if view.master is None or not (view.open_attempts or waiting):
        return None
    words, tables = [], []
    if view.open_attempts:
        columns, *rows = running_rows(view, now)
        workers = len({each.placement.worker for each in view.open_attempts})
        words.append(f"{text.plural(len(rows), 'trial')} on {text.plural(workers, 'worker')}")
        tables.append(Table(columns, [[text.clean(each) for each in row] for row in rows]))
    if waiting:
        shown = waiting[-_WAITING_SHOWN:]
        few = f" (the last {len(shown)} are shown)" if len(shown) < len(waiting) else ""
        words.append(", ".join(_waiting_text(view, waiting)) + few)
        cells = [(*trial_cells(view, each), described(each)) for each in shown]
        tables.append(Table((*trial_columns(view), "configuration"), cells))
    return Panel(f"{'; '.join(words)}.", tables=tables, is_folded=False)


def _waiting_text(view: StudyView, waiting: Sequence[Trial]) -> list[str]:
    counts = Counter(view.state_of(trial) for trial in waiting)
    return [f"{count} {state}" for state, count in counts.items()]


def timeline(trials: StudyTrials, *, now: float) -> Panel | None:
    """Return when each attempt ran, on which worker; None if none ran."""
    started = (each for each in trials.view.attempts if each.started_at is not None)
    ran = [part for each in started for part in _parts(each)]
    if not ran:
        return None
    is_running = trials.view.master is not None
    if not is_running:
        now = _last_seen(trials)
    open_word = "running" if is_running else INTERRUPTED
    start = min(each.started_at or each.placed_at for each in ran)
    last = max(_end(each, now) for each in ran)
    unit, name = next((u for u in _UNITS if last - start >= 2.0 * u[0]), _UNITS[-1])
    lanes, workers = _lanes(ran, now)
    plot = blank_figure(
        f"{name} since the first trial started",
        "",
        height=min(640, 130 + 16 * len(workers)),
        tooltips=[("trial", "@trial"), ("end", "@outcome"), ("where", "@where")],
    )
    for outcome, (color, label, alpha) in _BARS.items():
        group = [each for each in ran if each.outcome is outcome]
        if group:
            plot.hbar(
                y="lane",
                left="left",
                right="right",
                height=0.8,
                color=color,
                alpha=alpha,
                legend_label=label or open_word,
                source=_bars(group, lanes, start=start, unit=unit, now=now, open_word=open_word),
            )
    legend_above(plot)
    plot.yaxis.ticker = list(range(len(workers)))
    plot.yaxis.major_label_overrides = dict(enumerate(workers))
    plot.ygrid.visible = False
    return Panel(
        "Which worker trained which trial, and when. Gaps are waiting or idle time.",
        [plot],
        [_by_worker(ran, now=now)],
    )


def _last_seen(trials: StudyTrials) -> float:
    """Return the last time at which anything is known of the study."""
    times = [each.ended_at or each.started_at or each.placed_at for each in trials.view.attempts]
    return max([*times, *(row.time for row in trials.reports)])


def _end(attempt: Attempt, now: float) -> float:
    return now if attempt.ended_at is None else attempt.ended_at


def _parts(attempt: Attempt) -> list[Attempt]:
    """Return an attempt as one for each of its workers, each with the ranks there."""
    if not attempt.placement.peers:
        return [attempt]
    parts = []
    for _, here in itertools.groupby(attempt.ranks, key=lambda each: each[1].worker):
        (node, first), *others = here
        placement = replace(first, peers=tuple(rank for _, rank in others))
        nodes = tuple(other for other, _ in others)
        parts.append(replace(attempt, node=node, placement=placement, peer_nodes=nodes))
    return parts


def _lanes(ran: Sequence[Attempt], now: float) -> tuple[dict[object, int], list[str]]:
    """Return the lane of each attempt, and the lanes' labels; lanes of a worker are neighbours."""
    slots: dict[str, list[list[Attempt]]] = {}
    nodes: dict[str, str] = {}
    for worker, mine in _of_workers(ran).items():
        free: list[tuple[float, int]] = []
        own: list[list[Attempt]] = []
        for attempt in sorted(mine, key=lambda each: each.started_at or 0.0):
            if free and free[0][0] <= (attempt.started_at or 0.0):
                _, slot = heapq.heappop(free)
                own[slot].append(attempt)
            else:
                slot = len(own)
                own.append([attempt])
            heapq.heappush(free, (_end(attempt, now), slot))
        slots[worker] = own
        nodes[worker] = text.clean(mine[0].node.partition(".")[0])
    lanes: dict[object, int] = {}
    labels: list[str] = []
    for worker in sorted(slots, key=lambda each: nodes[each]):
        for number, attempts in enumerate(slots[worker]):
            for attempt in attempts:
                lanes[attempt.id, worker] = len(labels)
            labels.append(nodes[worker] if number == 0 else " ")
    return lanes, labels


def _of_workers(ran: Sequence[Attempt]) -> dict[str, list[Attempt]]:
    found: dict[str, list[Attempt]] = {}
    for each in ran:
        found.setdefault(each.placement.worker, []).append(each)
    return found


def _bars(
    group: Sequence[Attempt],
    lanes: dict[object, int],
    *,
    start: float,
    unit: float,
    now: float,
    open_word: str,
) -> dict[str, list[Any]]:
    return {
        "lane": [lanes[each.id, each.placement.worker] for each in group],
        "left": [((each.started_at or 0.0) - start) / unit for each in group],
        "right": [(_end(each, now) - start) / unit for each in group],
        "trial": [str(each.id) for each in group],
        "outcome": [open_word if e.cause is None else str(e.cause) for e in group],
        "where": [text.attempt_where(each) for each in group],
    }


def _by_worker(ran: Sequence[Attempt], *, now: float) -> Table:
    rows = []
    for worker, mine in _of_workers(ran).items():
        costs = costs_of(mine, now=now)
        seconds = sum(_end(each, now) - (each.started_at or 0.0) for each in mine)
        present = max(_end(e, now) for e in mine) - min(e.placed_at for e in mine)
        rows.append(
            (
                text.clean(mine[0].node),
                text.clean(worker),
                str(len(mine)),
                text.duration(present),
                f"{seconds / present:.1f}" if present > 0 else text.NOTHING,
                text.amount(costs.core_hours),
                text.amount(costs.gpu_hours),
            )
        )
    columns = ("node", "worker", "attempts", "present", "trials at once", "core h", "GPU h")
    return Table(columns, rows)


def costs(trials: StudyTrials, *, now: float) -> Panel:
    """Return what the study cost."""
    view = trials.view
    found = costs_of(view.attempts, now=now if view.master is not None else None)
    share = found.idle_core_hours / found.core_hours if found.core_hours else 0.0
    rows = [
        ("core hours", text.amount(found.core_hours)),
        ("of these idle", f"{text.amount(found.idle_core_hours)} ({share:.0%})"),
        ("GPU hours", text.amount(found.gpu_hours)),
        ("waiting for devices", text.duration(found.wait_seconds)),
        ("attempts", str(len(view.attempts))),
        ("repeated after a loss", str(sum(view.retried.values()))),
    ]
    words = "Devices held by trials, from the start of their processes to their ends."
    return Panel(words, tables=[Table(("", ""), rows)], is_folded=False)


def failures(trials: StudyTrials) -> Panel | None:
    """Return the failed trials by the kind of failure; None if none failed."""
    groups = trials.view.failures
    if not groups:
        return None
    rows = [
        (
            str(len(group.trials)),
            group.reason,
            text.trials(group.numbers),
            described(group.trials[0]),
            group.trials[0].detail.strip(),
        )
        for group in groups[:_FAILURES_SHOWN]
    ]
    failed = sum(len(group.trials) for group in groups)
    words = f"{text.plural(failed, 'trial')} failed, in {text.plural(len(groups), 'way')}."
    columns = ("trials", "first reason", "which", "first configuration", OUTPUT)
    return Panel(words, tables=[Table(columns, rows)], is_folded=False)


def all_trials(trials: StudyTrials) -> Panel:
    """Return the table of all trials."""
    view = trials.view
    names = list(dict.fromkeys(name for trial in view.trials for name in trial.params))
    noted = ("tags and notes",) if any(each.trial is not None for each in view.notes) else ()
    attempts_of = by_trial(view.attempts)
    rows = [
        (
            *trial_cells(view, trial),
            text.duration(seconds_run(attempts_of.get(trial.number, []))),
            *(
                text.param(trial.params[name]) if name in trial.params else text.NOTHING
                for name in names
            ),
            *(note_words(view, trial.number) for _ in noted),
        )
        for trial in sorted(view.trials, key=lambda trial: trial.number)
    ]
    first = (*trial_columns(view), "time")
    params = [f"{each} (hyperparameter)" if each in first else each for each in
              map(text.clean, names)]  # fmt: skip
    columns = (*first, *text.distinct(params), *noted)
    words = view.counts_text(of=view.all_trials).capitalize()
    return Panel(f"{words}.", tables=[Table(columns, rows)])
