"""The output of `hptune status` and of the end of a run, as text and as plain data.

The plain data is strict JSON: NaN and the infinities are null, and times are seconds since the
epoch.
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ...core.messages import Finish, FinishReason
from ...core.trial import Attempt, Trial, TrialState
from .. import text
from .best import best_words, finite, goals_json, model_lines, trial_json
from .costs import Costs, costs_of
from .view import StudyView

_FAILURES_IN_STATUS = 5
_FAILURES_IN_THE_END = 3
_TRIALS_NAMED = 6
_LEAST_IDLE = 0.01
"""Share of idle core time from which on it is shown."""


@dataclass(frozen=True, slots=True)
class FailureGroup:
    """Trials that failed for the same reason, apart from numbers (see `text.without_numbers`).

    Attributes:
        reason: The reason of the first trial, in one line.
        trials: The trials' numbers.
        is_example: Whether the reasons of other trials have other numbers.
    """

    reason: str
    trials: tuple[int, ...]
    is_example: bool = False

    def __str__(self) -> str:
        such_as = "such as " if self.is_example else ""
        return f"{len(self.trials)} x {such_as}{self.reason} ({_named(self.trials)})"


def failure_groups(trials: Sequence[Trial]) -> list[FailureGroup]:
    """Return the failed trials by reason, the most frequent reason first."""
    groups: dict[str, list[Trial]] = {}
    for trial in sorted(trials, key=lambda trial: trial.number):
        if trial.state is TrialState.FAILED:
            reason = text.shorten(text.without_numbers(trial.reason), text.FAILURE_CHARACTERS)
            groups.setdefault(reason, []).append(trial)
    found = [_group(failed) for failed in groups.values()]
    return sorted(found, key=lambda group: -len(group.trials))


def _group(failed: Sequence[Trial]) -> FailureGroup:
    reasons = [text.failure(trial) for trial in failed]
    numbers = tuple(trial.number for trial in failed)
    return FailureGroup(reasons[0], numbers, is_example=len(set(reasons)) > 1)


def _failure_lines(groups: Sequence[FailureGroup], most: int) -> list[str]:
    """Return the most frequent reasons, and how many others there are."""
    lines = [str(group) for group in groups[:most]]
    more = len(groups) - most
    return [*lines, f"and {text.plural(more, 'other reason')}"] if more > 0 else lines


def status_text(view: StudyView, *, now: float) -> str:
    """Return the output of `hptune status`.

    Args:
        view: The study.
        now: The time in seconds since the epoch.
    """
    lines = [
        _field("study", text.clean(view.directory)),
        _field("search", f"{view.search} for {view.goals}"),
        _field("state", _state_words(view, now)),
        _field("trials", f"{view.progress}: {view.counts_text(of=view.all_trials)}"),
    ]
    if view.retried:
        lines.append(_field("retried", _retried_words(view)))
    if costs := _cost_words(view, now):
        lines.append(_field("used", costs))
    if packed := _packed(view):
        lines.append(_field("packed", text.clean(packed)))
    best = view.best
    lines.append(_field("best", text.NOTHING if best is None else best_words(view, best)))
    if best is not None and best.params:
        lines.append(_field("", " ".join(text.assignments(best.params))))
    if len(view.front) > 1:
        more = text.plural(len(view.front) - 1, "other trial")
        lines.append(_field("", f"{more} on the Pareto front: hptune best {_directory(view)}"))
    if view.infeasible:
        lines.append(_field("", _infeasible_words(view)))
    if view.pruned_failures:
        lines.append(_field("", _pruned_words(view)))
    running = _running_rows(view, now)
    if running:
        lines += ["", *running]
    failures = failure_groups(view.trials)
    if failures:
        lines += ["", "failures"]
        lines += [f"  {line}" for line in _failure_lines(failures, _FAILURES_IN_STATUS)]
        log = f"{view.directory}/trials/{failures[0].trials[-1]}/log.txt"
        lines.append(f"  see {shlex.quote(log)}")
    return "\n".join(lines)


def _cost_words(view: StudyView, now: float) -> str:
    """Return the device hours that the study has used, in words; empty if there are none."""
    cost = _cost(view, now)
    words = []
    if cost.core_hours:
        idle = cost.idle_core_hours / cost.core_hours
        idle_words = f" ({idle:.0%} idle)" if idle >= _LEAST_IDLE else ""
        words.append(f"{cost.core_hours:.3g} core hours{idle_words}")
    if cost.gpu_hours:
        words.append(f"{cost.gpu_hours:.3g} GPU hours")
    if words and cost.wait_seconds >= 1.0:
        waited = text.duration(cost.wait_seconds)
        words.append(f"{waited} of waiting at workers (sum over the trials)")
    return ", ".join(words)


def _packed(view: StudyView) -> str:
    """Return the last decision how many trials share a core or a GPU; empty if there is none."""
    latest = max(view.attempts, key=lambda each: each.placed_at, default=None)
    return "" if latest is None else latest.why


def _cost(view: StudyView, now: float) -> Costs:
    # Without a master the ends of the last attempts are unknown.
    return costs_of(view.attempts, now=None if view.master is None else now)


def status_json(view: StudyView, *, now: float) -> dict[str, object]:
    """Return the output of `hptune status --json`.

    Args:
        view: The study.
        now: The time in seconds since the epoch.
    """
    master = view.master
    running = [] if master is None else view.open_attempts
    return {
        "study": view.directory,
        "search": view.search,
        "metric": view.goal.metric,
        "direction": str(view.goal.direction),
        **goals_json(view.goals),
        "budget_trials": view.budget_trials,
        "ended_trials": view.ended,
        "counts": {str(state): view.counts.get(state, 0) for state in TrialState},
        "lost_attempts": view.retried.total(),
        "retried": dict(view.retried),
        "master": None
        if master is None
        else {"host": master.host, "pid": master.pid, "since": master.since or None},
        "best": None if view.best is None else trial_json(view, view.best),
        **({"front": [t.number for t in view.front]} if len(view.goals.objectives) > 1 else {}),
        **_cost(view, now).to_json(),
        **({"packed": packed} if (packed := _packed(view)) else {}),
        "running": [_attempt_json(view, attempt, now) for attempt in running],
        "failures": [
            {"reason": group.reason, "trials": list(group.trials)}
            for group in failure_groups(view.trials)
        ],
    }


def closing_text(
    view: StudyView, finish: Finish, *, seconds: float, command: Callable[[str], str] = str
) -> str:
    """Return the output at the end of a run.

    Args:
        view: The study.
        finish: How the run ended.
        seconds: How long it took.
        command: Returns what is shown for a command line; empty to leave it out.
    """
    lines = [f"{_finish_words(view, finish)} in {text.duration(seconds)}"]
    lines.append(f"  {view.counts_text(of=view.all_trials)}")
    if view.retried:
        lines.append(f"  retried: {_retried_words(view)}")
    label = "  failed: "
    for line in _failure_lines(failure_groups(view.trials), _FAILURES_IN_THE_END):
        lines.append(f"{label}{line}")
        label = " " * len(label)
    if view.pruned_failures:
        lines.append(f"  {_pruned_words(view)}")
    if view.infeasible:
        lines.append(f"  {_infeasible_words(view)}")
    best = view.best
    if best is not None:
        lines += ["", f"best  {best_words(view, best)}"]
        if len(view.front) > 1:
            lines.append(f"      and {len(view.front) - 1} more on the Pareto front")
        names = [text.clean(name) for name in best.params]
        width = max(map(len, names), default=0)
        for name, value in zip(names, best.params.values(), strict=True):
            lines.append(f"      {name:<{width}}  {text.param(value)}")
        if view.model:
            lines += ["", *model_lines(view)]
    steps = [(command(each), why) for each, why in _next_commands(view, finish) if command(each)]
    width = max((len(shown) for shown, _ in steps), default=0)
    if steps:
        lines += ["", "next", *(f"  {shown:<{width}}  {why}" for shown, why in steps)]
    return "\n".join(lines)


def _next_commands(view: StudyView, finish: Finish) -> list[tuple[str, str]]:
    """Return commands for what the user may do next, and what they do."""
    directory = _directory(view)
    commands: list[tuple[str, str]] = []
    if view.best is not None:
        commands.append((f"hptune best {directory}", "show the best trial"))
        commands.append((f"hptune export {directory} --format csv", "write all trials as a table"))
    if view.counts.get(TrialState.FAILED):
        commands.append((f"hptune status {directory}", "show why trials failed"))
    if finish.finish_reason is FinishReason.DONE and view.budget_trials is not None:
        more = 2 * view.budget_trials
        commands.append((f"hptune resume {directory} --trials {more}", "continue with more trials"))
    elif finish.finish_reason is not FinishReason.EXHAUSTED:
        commands.append((_resume(view, finish), "continue from here"))
    return commands


def _resume(view: StudyView, finish: Finish | None) -> str:
    """Return the command that continues the study.

    Limits apply to all runs together. With the same limit the next run would stop at once, so
    it is doubled.
    """
    command = f"hptune resume {_directory(view)}"
    finish_reason = None if finish is None else finish.finish_reason
    if finish_reason is FinishReason.BUDGET_SPENT and (budget := view.device_budget) is not None:
        return f"{command} --budget {2 * budget.hours:g}{budget.device}-h"
    if finish_reason is FinishReason.TIME_UP and view.timeout_seconds is not None:
        return f"{command} --timeout {text.duration(2 * view.timeout_seconds)}"
    return command


def _retried_words(view: StudyView) -> str:
    """Return how many attempts were retried, and why."""
    retried = view.retried
    return f"{text.plural(retried.total(), 'attempt')} ({_counted(retried)})"


def _pruned_words(view: StudyView) -> str:
    """Return how many failed trials count as pruned, and how they failed."""
    pruned = view.pruned_failures
    return f"{text.plural(pruned.total(), 'trial')} pruned by --on-failure ({_counted(pruned)})"


def _infeasible_words(view: StudyView) -> str:
    """Return how many trials are infeasible, and why."""
    broken = view.broken_constraints
    which = _counted(broken) if len(broken) > 1 else "".join(broken)
    return f"{text.plural(view.infeasible, 'trial')} broke a constraint ({which})"


def _counted(by_kind: Counter[str]) -> str:
    return ", ".join(f"{count} {kind}" for kind, count in by_kind.most_common())


def _finish_words(view: StudyView, finish: Finish) -> str:
    done = view.progress
    reason = text.clean(finish.reason)
    shown = f" ({reason})" if reason else ""
    match finish.finish_reason:
        case FinishReason.DONE:
            return f"Done: {done}"
        case FinishReason.EXHAUSTED:
            return f"Done: every configuration of the space was tried, {done}"
        case FinishReason.INTERRUPTED:
            return f"Stopped{shown}: {done}"
        case FinishReason.BUDGET_SPENT | FinishReason.TIME_UP if reason:
            # The user set this limit, so the run did not end early.
            return f"{reason[0].upper()}{reason[1:]}: {done}"
        case _:
            return f"Stopped early{shown}: {done}"


def _state_words(view: StudyView, now: float) -> str:
    master = view.master
    if master is None:
        limits = [n for n in (view.budget_trials, view.possible_trials) if n is not None]
        if limits and view.ended - view.confirmations >= min(limits):
            return "done"
        last = view.last_finish
        why = f": {text.clean(last.reason)}" if last is not None and last.reason else ""
        return f"not running{why}; continue with: {_resume(view, last)}"
    words = f"running on {text.clean(master.host)}"
    words += f" in process {master.pid}" if master.pid else ""
    if not master.since:
        return words
    ago = text.duration(max(0.0, now - master.since))
    return f"{words} for {ago}, since {text.moment(master.since)}"


def _running_rows(view: StudyView, now: float) -> list[str]:
    attempts = sorted(view.open_attempts, key=lambda attempt: attempt.id)
    if not attempts:
        return []
    if view.master is None:
        numbers = tuple(attempt.id.trial for attempt in attempts)
        were, them = ("was", "it") if len(numbers) == 1 else ("were", "them")
        return [f"{_named(numbers)} {were} interrupted; hptune resume continues {them}"]
    table = [("running", text.step_word(view.epochs), view.goal.metric, "time", "where")]
    for attempt in attempts:
        report = view.latest.get(attempt.id)
        of = "" if view.epochs is None else f"/{view.epochs}"
        table.append(
            (
                str(attempt.id.trial),
                text.NOTHING if report is None else f"{report.step}{of}",
                text.measured(None if report is None else report.metrics.get(view.goal.metric)),
                text.duration(attempt.seconds(now)),
                "  ".join(
                    filter(None, (text.where(attempt.node, attempt.placement), attempt.reason))
                ),
            )
        )
    widths = [max(len(row[i]) for row in table) for i in range(4)]
    return [
        "  ".join([*(c.rjust(w) for w, c in zip(widths, row, strict=False)), row[4]])
        for row in table
    ]


def _attempt_json(view: StudyView, attempt: Attempt, now: float) -> dict[str, object]:
    report = view.latest.get(attempt.id)
    return {
        "trial": attempt.id.trial,
        "attempt": attempt.id.number,
        "node": attempt.node,
        "worker": attempt.placement.worker,
        "cpus": len(attempt.placement.cpus),
        "cpu_share": attempt.placement.cpu_share,
        "gpus": list(attempt.placement.gpus),
        "gpu_share": attempt.placement.gpu_share if attempt.placement.gpus else None,
        "seconds": attempt.seconds(now),
        "step": None if report is None else report.step,
        "value": None if report is None else finite(report.metrics.get(view.goal.metric)),
    }


def _field(label: str, value: str) -> str:
    return f"{label:<8} {value}"


def _directory(view: StudyView) -> str:
    return shlex.quote(view.directory)


def _named(trials: Sequence[int]) -> str:
    named = ", ".join(map(str, trials[:_TRIALS_NAMED]))
    more = ", …" if len(trials) > _TRIALS_NAMED else ""
    return f"{'trial' if len(trials) == 1 else 'trials'} {named}{more}"
