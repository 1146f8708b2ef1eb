"""Sections on the run: where trials ran, what they cost, and what failed."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from ... import text
from ...core.attempt import Attempt
from ...core.budget import Device
from ...core.trial import Trial, TrialState
from ..results.costs import costs_of, costs_of_study, use_shares, uses_of_study
from ..results.rows import rows
from ..results.summary import running_rows
from ..results.trials import trials_table
from ..results.view import StudyView
from .panel import Figure, Panel, Table
from .trials import StudyTrials, described

_FAILURES_SHOWN = 20
_WAITING_SHOWN = 50
WHICH = "which trials"
"""Column with the numbers of trials, which lead to their pages."""
OUTPUT = "error output"
"""Column with what a program wrote, in lines."""


def running(trials: StudyTrials, *, now: float) -> Panel | None:
    """Return the trials that run, and those that wait or are paused; None if there are none."""
    view = trials.view
    states = (TrialState.WAITING, TrialState.PAUSED)
    waiting = sorted((t for t in view.trials if t.state in states), key=lambda t: t.number)
    if not view.is_live or not (view.open_attempts or waiting):
        return None
    words, tables = [], []
    if view.open_attempts:
        columns, *found = running_rows(view, now)
        workers = len({attempt.placement.worker for attempt in view.open_attempts})
        words.append(f"{text.plural(len(found), 'trial')} on {text.plural(workers, 'worker')}")
        tables.append(Table(columns, [[text.clean(each) for each in row] for row in found]))
    if waiting:
        shown = waiting[-_WAITING_SHOWN:]
        few = f" (the last {len(shown)} are shown)" if len(shown) < len(waiting) else ""
        words.append(", ".join(_waiting_text(view, waiting)) + few)
        tables.append(configurations(view, shown, now=now))
    return Panel(f"{'; '.join(words)}.", tables=tables, is_folded=False)


def configurations(view: StudyView, shown: Sequence[Trial], *, now: float) -> Table:
    """Return the columns of `hptune trials`, and each trial's configuration."""
    columns, *cells = trials_table(view, rows(view, shown, now=now))
    named = [(*row, described(each)) for row, each in zip(cells, shown, strict=True)]
    return Table((*columns, "configuration"), named)


def _waiting_text(view: StudyView, waiting: Sequence[Trial]) -> list[str]:
    counts = Counter(view.state_of(trial) for trial in waiting)
    return [f"{count} {state}" for state, count in counts.items()]


def timeline(trials: StudyTrials, *, now: float) -> Panel | None:
    """Return when each attempt ran, on which worker; None if none ran."""
    started = (attempt for attempt in trials.view.attempts if attempt.started_at is not None)
    ran = [part for each in started for part in _parts(each)]
    if not ran:
        return None
    if not trials.view.is_live:
        now = last_seen(trials)
    return Panel(
        "Which worker trained which trial, and when. Gaps are waiting or idle time.",
        [Figure("timeline")],
        [_by_worker(ran, now=now)],
    )


def last_seen(trials: StudyTrials) -> float:
    """Return the last time at which anything is known of the study."""
    times = [
        attempt.ended_at or attempt.started_at or attempt.placed_at
        for attempt in trials.view.attempts
    ]
    return max([0.0, *times, *(row.time for row in trials.reports)])


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


def _of_workers(ran: Sequence[Attempt]) -> dict[str, list[Attempt]]:
    found: dict[str, list[Attempt]] = {}
    for each in ran:
        found.setdefault(each.placement.worker, []).append(each)
    return found


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
                ", ".join(map(str, sorted({each.id.trial for each in mine}))),
            )
        )
    columns = (
        *("node", "worker", "attempts", "present", "trials at once", "core h", "GPU h"),
        WHICH,
    )
    return Table(columns, rows)


def costs(trials: StudyTrials, *, now: float) -> Panel:
    """Return what the study cost."""
    view = trials.view
    uses = uses_of_study(view, now)
    device, hours = use_shares(uses)
    parts = [{"name": use, "hours": each} for use, each in hours.items()]
    unit = f"{'GPU' if device is Device.GPU else 'core'} hours"
    ran = len({attempt.id.trial for attempt in view.attempts})
    whole = costs_of_study(view, now)
    rows = [
        (use, str(count or text.NOTHING), *map(text.duration, seconds))
        for use, (count, cost) in {**uses, "in all": (ran, whole)}.items()
        for seconds in [(cost.core_hours * 3600, cost.gpu_hours * 3600, cost.wait_seconds)]
    ]
    words = (
        f"The study took {text.duration(view.seconds(now))}. Devices are held by trials from the "
        "start of their processes to their ends, and waited for before."
    )
    words += f" Measured energy: {whole.energy_text}." if whole.energy_text else ""
    columns = ("use", "trials", "core time", "GPU time", "waiting")
    figures = [Figure("uses", {"parts": parts, "unit": unit})] if parts else []
    return Panel(words, figures, [Table(columns, rows)], is_folded=False)


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
    columns = ("trials", "first reason", WHICH, "first configuration", OUTPUT)
    numbers = [group.numbers for group in groups[:_FAILURES_SHOWN]]
    return Panel(words, tables=[Table(columns, rows, trials=numbers)], is_folded=False)
