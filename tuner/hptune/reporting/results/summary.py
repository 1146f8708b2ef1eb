"""The output of `hptune status` and of the end of a run, as text and as plain data.

The plain data is strict JSON: NaN and the infinities are null, and times are seconds since the
epoch.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict

from ... import text
from ...core.attempt import Attempt
from ...core.budget import hours_of
from ...core.messages import Finish, FinishReason
from ...core.trial import TrialState
from ..table import aligned, fields, indented, table
from .best import best_line, goals_json, model_lines
from .costs import costs_of_study, trials_that_shared
from .evidence import Answer
from .notes import note_lines, notes_json
from .remarks import remarks_on
from .rows import attempt_json, plain, row_of
from .view import FailureGroup, StudyState, StudyView

_FAILURES_IN_STATUS = 5
_FAILURES_IN_THE_END = 3
LEAST_IDLE = 0.01
"""Share of idle core time from which on it is shown."""


def _failure_lines(groups: Sequence[FailureGroup], most: int) -> list[str]:
    """Return the most frequent reasons, and how many others there are."""
    lines = [str(group) for group in groups[:most]]
    more = len(groups) - most
    return [*lines, f"and {text.plural(more, 'other reason')}"] if more > 0 else lines


def status_text(view: StudyView, *, now: float, width: int | None = None) -> str:
    """Return the output of `hptune status`."""
    best, front = view.best, len(view.front)
    more = f"{text.plural(front - 1, 'other trial')} on the Pareto front: hptune best "
    said = [each.words for each in _answers(view, now)]
    about = [
        *facts(view, now=now).items(),
        ("best", text.NOTHING if best is None else best_line(view, best)),
        ("", "" if best is None else " ".join(text.assignments(text.shown_params(best)))),
        ("", f"{more}{_directory(view)}" if front > 1 else ""),
        ("", _infeasible_text(view) if view.infeasible else ""),
        ("", _pruned_text(view) if view.pruned_failures else ""),
        *(("", view.worded(each)) for each in view.remarks),
        *(("", view.worded(each)) for each in remarks_on(view.attempts).values()),
        *zip(("answers", *[""] * len(said)), said, strict=False),
        *note_lines(view),
    ]
    lines = fields([each for each in about if each[1]], width=width)
    if running := _running_rows(view, now, width):
        lines += ["", *running]
    failures = view.failures
    if failures:
        details = f"details: hptune show {_directory(view)} {failures[0].numbers[-1]}"
        lines += ["", "failures"]
        for line in [*_failure_lines(failures, _FAILURES_IN_STATUS), details]:
            lines += indented(line, width=width)
    return "\n".join(lines)


def facts(view: StudyView, *, now: float) -> dict[str, str]:
    """Return what is known of the study as a whole, in words, by label; some are empty."""
    return {
        "study": _directory(view),
        "search": f"{view.search} for {view.goals}",
        "state": state_text(view, now),
        "trials": f"{view.short_progress}: {view.counts_text(of=view.all_trials)}",
        "retried": retried_text(view) if view.retried else "",
        "used": cost_text(view, now),
        "packed": text.clean(_packed_text(view)),
    }


def cost_text(view: StudyView, now: float) -> str:
    """Return the time and the device hours that the study has used, in words; empty for none."""
    cost = costs_of_study(view, now)
    words = [text.duration(seconds)] if (seconds := view.seconds(now)) >= 1.0 else []
    if cost.core_hours:
        idle = cost.idle_share
        idle_text = f" (cores idle for {idle:.0%})" if idle >= LEAST_IDLE else ""
        words.append(f"{text.held(cost.core_hours, 'core')}{idle_text}")
    if cost.gpu_hours:
        words.append(text.held(cost.gpu_hours, "GPU"))
    if cost.energy_text:
        words.append(f"energy {cost.energy_text}")
    if cost.wait_seconds >= 1.0:
        waited = text.duration(cost.wait_seconds)
        words.append(f"trials waited {waited} in total to start")
    return ", ".join(words)


def _answers(view: StudyView, now: float) -> list[Answer]:
    from .answers import answers, importance_of

    return answers(view, importance_of(view), now=now)


def _packed(view: StudyView) -> str:
    """Return the run's last decision how many trials share a core or a GPU; empty if none."""
    latest = max(view.attempts_of_run, key=lambda each: each.placed_at, default=None)
    return "" if latest is None else latest.why


def _packed_text(view: StudyView) -> str:
    """Return that decision, and how many trials it concerned; empty if it concerned none."""
    attempts = view.attempts_of_run
    count, trials = len(trials_that_shared(attempts)), len({each.id.trial for each in attempts})
    return f"{_packed(view)}; {count} of {trials} trials shared one" if count else ""


def status_json(view: StudyView, *, now: float) -> dict[str, object]:
    """Return the output of `hptune status --json`."""
    master, last = view.master, view.last_finish
    running = view.open_attempts if view.is_live else []
    budget = view.device_budget
    return {
        "study": view.directory,
        "search": view.search,
        **goals_json(view),
        "state": str(view.state),
        "finish_reason": None if last is None else str(last.finish_reason),
        "reason": None if last is None else last.reason,
        "created_at": view.created_at or None,
        "budget_trials": view.budget_trials,
        "budget": None if budget is None else str(budget),
        "timeout_seconds": view.timeout_seconds,
        "epochs": view.epochs,
        "ended_trials": view.ended,
        "confirmations": view.confirmations,
        "interrupted_trials": view.interrupted,
        "infeasible_trials": view.infeasible,
        "counts": {str(state): view.counts.get(state, 0) for state in TrialState},
        "lost_attempts": view.retried.total(),
        "retried": dict(view.retried),
        "master": None
        if master is None
        else {"host": master.host, "pid": master.pid, "since": master.since or None},
        "workers": view.workers,
        "paused_by": view.paused_by or None,
        "best": None if view.best is None else row_of(view, view.best).to_json(),
        "model": view.model or None,
        **notes_json(view),
        **asdict(costs_of_study(view, now)),
        "packed": _packed(view) or None,
        "running": [_running_json(view, attempt, now) for attempt in running],
        "answers": [{"text": each.words, "figure": each.figure} for each in _answers(view, now)],
        "failures": [{"reason": group.reason, "trials": group.numbers} for group in view.failures],
    }


def closing_text(view: StudyView, finish: Finish, *, command: Callable[[str], str] = str) -> str:
    """Return the output at the end of a run.

    Args:
        view: The study.
        finish: How the run ended.
        command: Returns what is shown for a command line; empty to leave it out.
    """
    from .answers import advice

    lines = [f"{_finish_text(view, finish)} in {_time_text(view)}"]
    lines.append(f"  {view.counts_text(of=view.all_trials)}")
    if view.retried:
        lines.append(f"  retried: {retried_text(view)}")
    label = "  failed: "
    for line in _failure_lines(view.failures, _FAILURES_IN_THE_END):
        lines.append(f"{label}{line}")
        label = " " * len(label)
    if view.pruned_failures:
        lines.append(f"  {_pruned_text(view)}")
    if view.infeasible:
        lines.append(f"  {_infeasible_text(view)}")
    best = view.best
    if best is not None:
        lines += ["", f"best  {best_line(view, best)}"]
        if len(view.front) > 1:
            lines.append(f"      and {len(view.front) - 1} more on the Pareto front")
        lines += (f"    {each}" for each in aligned(text.params(text.shown_params(best))))
        if model := model_lines(view, best):
            lines += ["", *model]
    if remarks := advice(view):
        lines += ["", *(each.words for each in remarks)]
    steps = [(command(each), why) for each, why in _next_commands(view, finish) if command(each)]
    width = max((len(shown) for shown, _ in steps), default=0)
    if steps:
        lines += ["", "next", *(f"  {shown:<{width}}  {why}" for shown, why in steps)]
    return "\n".join(lines)


def _time_text(view: StudyView) -> str:
    """Return how long the study took, and its last run if there were others, in words."""
    whole = text.duration(sum(view.run_seconds))
    if len(view.run_seconds) < 2:
        return whole
    return f"{whole} ({text.duration(view.run_seconds[-1])} in the last run)"


def why_without_result(view: StudyView, finish: Finish) -> tuple[str, str]:
    """Return why a run has no trial to use and what to do, and the user's traceback."""
    if not view.trials:
        return "no trial is complete: none was started.", ""
    others = f" `{more}` tries others." if (more := _more_trials(view, finish)) else ""
    if view.best is not None:
        constraints = " and ".join(map(str, view.goals.constraints))
        return f"no trial keeps {constraints}; trial {view.best.number} comes nearest.{others}", ""
    message, groups = f"no trial is complete: {view.counts_text()}", view.failures
    if not groups:
        return f"{message}.{others}", ""
    last = groups[0].trials[-1]
    remedy = f"continue with `{_resume(view, finish, retries=True)}`"
    return f"{message} ({text.failure(last)}). Fix the cause and {remedy}.", last.detail


def _more_trials(view: StudyView, finish: Finish) -> str:
    """Return the command for more trials; empty if more of them are no remedy."""
    is_done = finish.finish_reason is FinishReason.DONE
    if not is_done or view.budget_trials is None or _is_exhausted(view):
        return ""
    total = 2 * max(view.budget_trials, view.ended - view.confirmations)  # some may be added
    return f"hptune resume {_directory(view)} --trials {total}"


def _next_commands(view: StudyView, finish: Finish) -> list[tuple[str, str]]:
    """Return commands for what the user may do next, and what they do."""
    directory = _directory(view)
    commands: list[tuple[str, str]] = []
    if view.best is not None:
        several = len(view.goals.objectives) > 1
        shown = "show the trials on the Pareto front" if several else "show the best trial"
        commands.append((f"hptune best {directory}", shown))
        commands.append((f"hptune dashboard {directory}", "show figures and tables in a browser"))
        commands.append((f"hptune report {directory}", "write them as one file"))
    if view.counts.get(TrialState.FAILED):
        commands.append((f"hptune trials {directory} --state failed", "show why trials failed"))
        again = _resume(view, finish, retries=True)
        commands.append((again, "when the cause is fixed, run the failed trials again"))
    if more := _more_trials(view, finish):
        commands.append((more, "continue with more trials"))
    elif finish.finish_reason is not FinishReason.EXHAUSTED and not _is_exhausted(view):
        commands.append((_resume(view, finish), "continue from here"))
    return commands


def _is_exhausted(view: StudyView) -> bool:
    """Return whether every configuration of the search was tried."""
    tried = view.ended - view.confirmations
    return view.possible_trials is not None and tried >= view.possible_trials


_BY_FAILURES = (FinishReason.SAME_FAILURE, FinishReason.TOO_MANY_FAILURES)


def resume_command(view: StudyView) -> str:
    """Return the command that continues a study that does not run."""
    last = view.last_finish
    return _resume(view, last, retries=last is not None and last.finish_reason in _BY_FAILURES)


def _resume(view: StudyView, finish: Finish | None, *, retries: bool = False) -> str:
    """Return the command that continues the study, if asked for with the failed trials.

    Limits apply to all runs together. With the same limit, or less than was used beyond it, the
    next run would stop at once, so it is doubled.
    """
    command = f"hptune resume {_directory(view)}{' --retry-failed' if retries else ''}"
    finish_reason = None if finish is None else finish.finish_reason
    if finish_reason is FinishReason.BUDGET_SPENT and (budget := view.device_budget) is not None:
        used = hours_of(view.attempts, budget.device, now=view.last_event_at)
        hours = budget.hours if used < 1.5 * budget.hours else float(f"{used:.3g}")
        return f"{command} --budget {2 * hours:.12g}{budget.device}-h"
    if finish_reason is FinishReason.TIME_UP and view.timeout_seconds is not None:
        seconds = 2 * max(0.5, view.timeout_seconds, sum(view.run_seconds))
        return f"{command} --timeout {text.duration(seconds)}"
    searched = view.ended - view.confirmations
    if not retries and view.budget_trials is not None and searched >= view.budget_trials:
        return f"{command} --trials {2 * searched}"
    return command


def retried_text(view: StudyView) -> str:
    """Return how many attempts were retried, and why."""
    retried = view.retried
    return f"{text.plural(retried.total(), 'attempt')} ({_counted(retried)})"


def _pruned_text(view: StudyView) -> str:
    """Return how many failed trials count as pruned, and how they failed."""
    pruned = view.pruned_failures
    return f"{text.plural(pruned.total(), 'trial')} pruned by --on-failure ({_counted(pruned)})"


def _infeasible_text(view: StudyView) -> str:
    """Return how many trials are infeasible, and why."""
    broken = view.broken_constraints
    which = _counted(broken) if len(broken) > 1 else "".join(broken)
    return f"{text.plural(view.infeasible, 'trial')} broke a constraint ({which})"


def _counted(by_kind: Counter[str]) -> str:
    return ", ".join(f"{count} {kind}" for kind, count in by_kind.most_common())


def _finish_text(view: StudyView, finish: Finish) -> str:
    done = view.progress
    reason = text.clean(finish.reason)
    shown = f" ({reason})" if reason else ""
    match finish.finish_reason:
        case FinishReason.DONE:
            return f"Done: {done}"
        case FinishReason.EXHAUSTED:
            return f"Done: every configuration of the space was tried, {done}"
        case FinishReason.INTERRUPTED if reason.startswith("stopped by "):
            return f"{reason[0].upper()}{reason[1:]}: {done}"
        case FinishReason.INTERRUPTED:
            return f"Stopped{f', {reason}' if '(' in reason else shown}: {done}"
        case FinishReason.BUDGET_SPENT | FinishReason.TIME_UP if reason:
            # The user set this limit, so the run did not end early.
            return f"{reason[0].upper()}{reason[1:]}: {done}"
        case _:
            return f"Ended{shown}: {done}"


def state_text(view: StudyView, now: float) -> str:
    """Return whether a study runs, where and since when, or what continues it."""
    master = view.master
    if master is None:
        words = state_without_master(view)
        if view.state in (StudyState.DONE, StudyState.QUEUED, StudyState.OPEN):
            return words
        return f"{words}; continue with: {resume_command(view)}"
    words = f"running on {text.clean(master.host)}"
    words += f" in process {master.pid}" if master.pid else ""
    if master.since:
        ago = text.duration(max(0.0, now - master.since))
        words += f" for {ago}, since {text.moment(master.since)}"
    return words + idle_text(view)


def idle_text(view: StudyView) -> str:
    """Return why no trial starts, as the end of a sentence on the state; empty if trials do."""
    if view.is_measuring:
        return "; it measures training steps, to choose the devices of each trial"
    if view.is_beginning:
        return "; it still reads the model, so no trial runs"
    if view.paused_by:
        by = text.clean(view.paused_by)
        return f"; paused by {by}: no trial starts until hptune resume {_directory(view)}"
    return "; it has no worker, so no trial runs" if view.workers == 0 else ""


def state_without_master(view: StudyView) -> str:
    """Return whether a study that does not run is done, or else why not."""
    last = view.last_finish
    why = "" if last is None else text.clean(last.reason)
    match view.state:
        case StudyState.DONE if last is None or last.finish_reason is FinishReason.DONE:
            return "done"
        case StudyState.DONE:
            return f"done: {why}"
        case StudyState.OPEN:
            out = text.plural(len(view.open_attempts), "trial")
            why = f"programs ask for its trials (hptune.open_study, hptune ask), and have {out}"
            return f"open: {why}"
        case StudyState.QUEUED:
            return f"queued: {why}{idle_text(view) or '; nothing to do'}"
        case StudyState.MASTER_GONE:
            why = "the master is gone (killed, or failed)"
    return f"not running{why and ': '}{why}"


def _running_rows(view: StudyView, now: float, width: int | None) -> list[str]:
    attempts = sorted(view.open_attempts, key=lambda attempt: attempt.id)
    if not attempts:
        return []
    if not view.is_live:
        numbers = [attempt.id.trial for attempt in attempts]
        if view.state is StudyState.QUEUED or view.is_beginning:
            what = "the model is read" if view.is_beginning else "that job runs"
            return [f"{text.trials(numbers)} continue{'s' * (len(numbers) == 1)} when {what}"]
        were, them = ("was", "it") if len(numbers) == 1 else ("were", "them")
        return [f"{text.trials(numbers)} {were} interrupted; hptune resume continues {them}"]
    (_, *columns), *rows = running_rows(view, now)
    return table([("running", *columns), *rows], width=width)


def running_rows(view: StudyView, now: float) -> list[Sequence[str]]:
    """Return the running trials as a table, whose first row has the names of its columns."""
    trials = {trial.number: trial for trial in view.trials}
    rows: list[Sequence[str]] = [
        ("trial", text.step_word(view.epochs), view.goal.metric, "time", "where")
    ]
    for attempt in sorted(view.open_attempts, key=lambda attempt: attempt.id):
        report = view.latest.get(attempt.id)
        where = text.attempt_where(attempt)
        trial = trials.get(attempt.id.trial)  # None if it began after the trials were read
        params = {} if trial is None else trial.params
        if trial is not None and trial.confirms is not None:
            where += f", {text.again(trial)}"
        rows.append(
            (
                str(attempt.id.trial),
                text.NOTHING if report is None else text.steps_of(report.step, params, view.epochs),
                text.measured(None if report is None else report.metrics.get(view.goal.metric)),
                text.duration(attempt.seconds(now)),
                f"{where}, {attempt.reason}" if attempt.reason else where,
            )
        )
    return rows


def _running_json(view: StudyView, attempt: Attempt, now: float) -> dict[str, object]:
    report = view.latest.get(attempt.id)
    return {
        **attempt_json(attempt, now=now),
        "step": None if report is None else report.step,
        "value": None if report is None else plain(report.metrics.get(view.goal.metric)),
    }


def _directory(view: StudyView) -> str:
    return text.path(view.directory)
