"""The plan of a resumed study, from its ledger and what the user asks for now."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from .. import text
from ..config.asked import Asked, asked
from ..config.objectives import goals_of
from ..config.places import AUTO
from ..config.resolved import Resolved, checked_code
from ..config.settings import BY_NAME, SETTINGS, StudySettings
from ..core.engine.engine import Engine
from ..core.messages import Finish, FinishReason, all_over
from ..core.space.completion import completed_points, known_configurations
from ..core.space.earlier_study import EarlierStudy
from ..core.space.space import SearchSpace
from ..core.table import Section
from ..core.trial import ADDED, Params, Suggestion, Trial, TrialState
from ..errors import SpaceChangedError, SpaceError
from ..registry import shown_name
from ..storage.artifacts import StudyFiles
from ..user_code.code_copy import changed_constants
from ..user_code.source import Found
from .mirror import check_mirror
from .past import Past
from .plan import Places, RunPlan
from .resume_checks import changeable, check_changes, check_constants, check_room

_MAKE_WORK = (Section.GOAL, Section.PRUNING, Section.CHECKPOINTS)
"""Sections whose settings, if they are changed, may give a study that has ended work to do."""

TOTALS = {FinishReason.TIME_UP: "--timeout", FinishReason.BUDGET_SPENT: "--budget"}
"""The options whose totals can be used up before all trials are over, by how a run ended then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """What the user asks of a study that is resumed.

    Attributes:
        settings: The settings that are given, by field of `StudySettings`. One that a resumed study
            cannot change (`Setting.resumable`) must be as it is, and start points are tried next.
        accept_space: Whether the study may continue in another search space than before.
        retry_failed: Whether failed trials begin again, also on nodes that failed.
    """

    settings: Mapping[str, Any] = field(default_factory=dict)
    accept_space: bool = False
    retry_failed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ResumeRequest:
    """The changes, together with the study's past.

    Attributes:
        asked: The settings from now on.
        epochs: The full training of a trial from now on; None if unknown.
        tries: Configurations, given in part, to try next unless they were tried before.
        changes: What the user has asked for.
    """

    asked: Asked
    epochs: int | None
    tries: Sequence[Mapping[str, object]]
    changes: Changes

    def new_points(
        self, space: SearchSpace, trials: Sequence[Trial], added: Sequence[Params] = ()
    ) -> tuple[tuple[Suggestion, ...], list[str]]:
        """Return the configurations that are new to the study, and a line on each that is not.

        Args:
            space: The search space.
            trials: The study's trials.
            added: Configurations that users added and that are no trials yet.

        Raises:
            UsageError: One lies outside the space.
        """
        hint = "" if self.changes.retry_failed else "--retry-failed runs failed trials again"
        known = known_configurations(space, trials, added, retry_hint=hint)
        found: dict[Hashable, Suggestion] = {}
        notes = []
        for number, params in enumerate(completed_points(self.tries, space), start=1):
            key = space.key(params)
            if key in known:
                notes.append(f"start point {number} {known[key]}")
            else:
                found.setdefault(key, Suggestion(params, ADDED))
        return tuple(found.values()), notes


def allowed_changes(changes: Changes, past: Past) -> Changes:
    """Return the changes with read values, without what is of the whole study and is as it was.

    Reading the events of a large study takes a while, and this needs none.

    Raises:
        UsageError: A setting cannot be read, or would change what is of the whole study.
    """
    given = {
        name: BY_NAME[name].read(value) if name in BY_NAME else value
        for name, value in changes.settings.items()
        if value is not None  # as it is where Python is not given a setting
    }
    return replace(changes, settings=changeable(given, past))


def resume_request(changes: Changes, past: Past) -> ResumeRequest:
    """Return what the user asks for, checked before the model is read, but for a new space.

    Args:
        changes: As `allowed_changes` returns them.
        past: The study's past; all events are read.

    Raises:
        UsageError: The study cannot be resumed like this.
    """
    given = dict(changes.settings)
    # The start points of the study itself are in the ledger already.
    own = past.settings.start_points
    tries = [point for point in given.pop("start_points", ()) if point not in own]
    facts, settings = past.facts, past.settings.changed(given)
    check_changes(settings, past)
    check_mirror(settings)
    epochs = settings.epochs or facts["epochs"]
    request = ResumeRequest(
        asked=asked(settings, goals=goals_of(facts), epochs=epochs),
        epochs=epochs,
        tries=tries,
        changes=changes,
    )
    if not changes.accept_space:
        space = _grown(SearchSpace.from_json(facts["space"]), past.found_later)
        added, _ = request.new_points(space, past.trials)
        check_room(settings, len(added), past)
    return request


def plan_resume(request: ResumeRequest, past: Past, found: Found, workers: Places) -> RunPlan:
    """Plan how a study is resumed.

    Raises:
        SpaceChangedError: The user's code declares another search space than before.
        UsageError: The study cannot be resumed like this.
    """
    facts, engine, epochs = past.facts, past.engine, request.epochs
    resolved, declared = resolve_again(request, past, found)
    added, known = request.new_points(resolved.space, past.trials, engine.added)
    check_room(request.asked.settings, len(added), past)
    layout, carrier = workers.placed(resolved)
    go_on = _that_train_on(engine, StudyFiles(past.directory, resolved.goals), epochs)
    retried = engine.able_to_retry if request.changes.retry_failed else ()
    return RunPlan(
        asked=resolved.asked,
        resolved=resolved,
        go_on=go_on,
        retried=retried,
        retries_nodes=request.changes.retry_failed,
        was_handed_over=left_on_purpose(past),
        seed=facts["seed"],
        declared=declared,
        studies=tuple(map(EarlierStudy.from_json, facts["warm_start"])),
        added=tuple(workers.sized(resolved.space, added)),
        layout=layout,
        carrier=carrier,
        notes=(
            *found.warnings,
            *_place_notes(request, past),
            *_resume_notes(engine, retried),
            *resolved.notes,
            *known,
            *_epoch_notes(engine, go_on, epochs, writes_own=not facts["is_keras"]),
            *carrier.notes,
        ),
    )


def _place_notes(request: ResumeRequest, past: Past) -> list[str]:
    before, now = past.settings.cluster, request.asked.settings.cluster
    if before in (now, AUTO):  # the options that choose it are in the command
        return []
    name = f"--cluster {shown_name(before)}"
    return [f"{name} is not used any more, since other workers are asked for; give it to return"]


def left_on_purpose(past: Past) -> bool:
    """Return whether the last master left its attempts on purpose.

    That is for the next run of its job, which `hptune stop` may have cancelled since. A run that
    was stopped has left none.
    """
    reason = (past.facts["ended"] or {}).get("finish_reason")
    has_left = len(past.engine.snapshot.running) > len(past.engine.leased)  # programs keep theirs
    return reason == FinishReason.HANDED_OVER or (reason == FinishReason.INTERRUPTED and has_left)


def nothing_left(request: ResumeRequest, past: Past) -> tuple[Finish, list[str]] | None:
    """Return how the study has ended, with lines for the user; None if a run would find work.

    Raises:
        UsageError: A configuration to try lies outside the space.
    """
    ended, settings, before = past.facts["ended"], request.asked.settings, past.settings
    trials = past.trials
    if ended and _is_used_up(settings, past):  # whatever else is asked, nothing of it can be done
        finish = Finish(FinishReason(ended["finish_reason"]), ended["reason"])
        more = f"a larger {TOTALS[finish.finish_reason]} asks for more"
        return finish, [f"nothing is done: {finish.reason}; {more}"]
    if ended is None or not all(trial.state.is_final for trial in trials):
        return None
    able_to_retry, changes = past.engine.able_to_retry, request.changes
    if changes.accept_space or (changes.retry_failed and able_to_retry):
        return None
    is_changed = any(
        getattr(settings, each.name) != getattr(before, each.name)
        for each in SETTINGS
        if each.section in _MAKE_WORK
    ) or settings.own_options("pruner") != before.own_options("pruner")
    if is_changed or (request.epochs or 0) > (past.facts["epochs"] or 0):
        return None
    space = _grown(SearchSpace.from_json(past.facts["space"]), past.found_later)
    added, known = request.new_points(space, trials)
    if added or past.engine.added:
        return None
    known = [*_unread(settings, past), *known]
    finish = Finish(FinishReason(ended["finish_reason"]), ended["reason"])
    again = "; --retry-failed runs failed trials again" if able_to_retry else ""
    if finish.finish_reason is FinishReason.EXHAUSTED:
        more = "--epochs asks for longer trainings, --accept-space for a changed search space"
        return finish, [*known, f"nothing is left to do: {finish.reason}; {more}{again}"]
    searched, total = past.suggested, settings.budget_trials
    if finish.finish_reason is not FinishReason.DONE:
        if settings.confirm:  # not all repeats may exist yet
            return None
        finish = Finish(FinishReason.DONE, all_over(len(trials)))
    if total is None or searched < total:
        return None
    more = f"a larger --trials or --epochs, or --try, asks for more{again}"
    return finish, [*known, f"nothing is left to do: {searched} of {total} trials are over; {more}"]


def _is_used_up(settings: StudySettings, past: Past) -> bool:
    """Return whether the last run ended because a total was used up that still is."""
    limit, budget = settings.timeout_seconds or 0, settings.device_budget
    reason = (past.facts["ended"] or {}).get("finish_reason")
    if reason == FinishReason.TIME_UP:
        return 0 < limit <= past.engine.active_seconds
    is_spent = budget and past.engine.device_hours(budget.device) >= budget.hours
    return reason == FinishReason.BUDGET_SPENT and bool(is_spent)


def _unread(settings: StudySettings, past: Past) -> list[str]:
    """Return a line on the constants that have changed in a model file that is not read."""
    source = settings.source
    names = changed_constants(source, past.settings.source, past.directory.path)
    if not names:
        return []
    have = "has" if len(names) == 1 else "have"
    words = f"{' and '.join(names)} in {text.path(source.path)} {have} changed, and"
    return [f"{words} the file is read only if there is something to do"]


def resolve_again(request: ResumeRequest, past: Past, found: Found) -> tuple[Resolved, SearchSpace]:
    """Return what settings and code say, with lines on what changed, and the space as declared now.

    Raises:
        SpaceChangedError: It is another one than before, which `accept_space` does not allow.
        UsageError: The code contradicts the settings or the study.
    """
    lines = check_constants(request.asked.settings, past, found)
    # The fact "space" is written after the event that grew it; a master may die in between.
    known = _grown(SearchSpace.from_json(past.facts["space"]), past.found_later)
    before = SearchSpace.from_json(past.facts["declared_space"])
    declared = SearchSpace.from_json(found.space)
    if not found.is_complete:
        # The code was not run to its end, so a missing parameter need not be gone.
        declared = _grown(declared, [before.to_json()])
    # Trials declared the parameters known beyond that, and may do so again.
    space = _grown(declared, [known.missing_from(before)])
    differences = known.differences(space)
    changes = "; ".join(differences)
    if not differences:
        space = known  # in its old order, which determines what samplers draw
    elif request.changes.accept_space:
        lines.append(f"the search space is another one: {changes} (finished trials stay)")
    else:
        raise SpaceChangedError(
            f"the search space of {request.asked.settings.source.shown} has changed since the "
            f"study began: {changes}. Undo that, or continue in the new space with "
            f"`hptune resume {past.directory} --accept-space` (finished trials stay), or "
            "start a new study with `hptune run … --study OTHER`."
        )
    resolved = Resolved(
        asked=checked_code(request.asked, found),
        code=found,
        goals=goals_of(past.facts),
        epochs=request.epochs,
        space=space,
        notes=tuple(lines),
    )
    return resolved, declared


def _that_train_on(engine: Engine, files: StudyFiles, epochs: int | None) -> tuple[int, ...]:
    """Return the complete trials that get more epochs: the best ones, from their checkpoints."""
    if engine.epochs is None or epochs is None or epochs <= engine.epochs:
        return ()
    able = (n for n in engine.able_to_go_on if engine.last_step(n) < epochs)
    return tuple(number for number in able if files.can_continue(number))


def _epoch_notes(
    engine: Engine, go_on: tuple[int, ...], epochs: int | None, *, writes_own: bool
) -> list[str]:
    """Return what other epochs mean for the trials that are complete.

    Args:
        engine: The study's past.
        go_on: The trials that train on.
        epochs: The full training from now on.
        writes_own: Whether the user's code writes the checkpoints.
    """
    before = engine.epochs
    complete = {t.number for t in engine.trials if t.state is TrialState.COMPLETE}
    if before == epochs or not complete:
        return []
    lines, others = [], len(complete) - len(go_on)
    if go_on:
        trials = "best trial trains" if len(go_on) == 1 else "best trials train"
        reached = sorted({engine.last_step(number) for number in go_on})
        epoch = "epoch" if len(reached) == 1 else "epochs"
        lines.append(f"{len(go_on)} {trials} on from {epoch} {' and '.join(map(str, reached))}")
    is_longer = before is not None and epochs is not None and epochs > before
    if is_longer and engine.ended_early:
        lines.append(
            f"{len(engine.ended_early)} that ended by themselves (such as by EarlyStopping) do "
            "not: they would do so again"
        )
        others -= len(engine.ended_early)
    if others:
        stay = "trial stays as it is" if others == 1 else "trials stay as they are"
        trials = f"{'the other ' if lines else 'the '}{others} complete {stay}"
        most = max(map(engine.last_step, complete.difference(go_on)))
        limit = f" (trained at most {text.plural(most, 'epoch')})" if most else ""
        why = ", as no checkpoint of theirs is kept" if is_longer else ""
        if why and any(trial.confirms is not None for trial in engine.trials):
            why = ", as the repeats of the best would not be compared with longer trainings"
        elif why and writes_own and engine.able_to_go_on and not go_on:
            why = (
                ", as they have no checkpoint: objective() writes its own, to "
                "trial.checkpoint_dir (`hptune help checkpoints`)"
            )
        lines.append(f"{trials}{limit}{why}")
    change = text.plural(epochs or 0, "epoch") + (f" instead of {before}" if before else "")
    return [f"{change}: {'; '.join(lines)}"]


def _grown(space: SearchSpace, additions: Iterable[Sequence[Mapping[str, object]]]) -> SearchSpace:
    """Return the space with the additions, except those whose parent parameter is gone."""
    for entry in itertools.chain.from_iterable(additions):
        with contextlib.suppress(SpaceError):
            space = space.extended([entry])
    return space


def _resume_notes(engine: Engine, retried: tuple[int, ...]) -> list[str]:
    trials = list(engine.trials)
    over = sum(trial.state.is_final for trial in trials) - len(retried)
    interrupted = sum(trial.is_begun for trial in trials)
    line = f"resumed: {text.plural(over, 'trial')} {'is' if over == 1 else 'are'} over"
    if retried:
        line += f", {len(retried)} failed {'ones begin' if retried[1:] else 'one begins'} again"
    if interrupted:
        line += f", {interrupted} interrupted {'ones' if interrupted > 1 else 'one'} "
        line += "continue" if interrupted > 1 else "continues"
    return [line]
