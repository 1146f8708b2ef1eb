"""Past trials that a new study learns from (`--warm-start`), as its goals and space see them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ...core.goals import Goals
from ...core.space.earlier_study import EarlierStudy, EarlierTrial
from ...core.space.parameters import Parameter, label
from ...core.space.space import SearchSpace
from ...core.trial import Direction, ParamValue
from ...errors import UsageError, without_passwords
from ...text import some
from .found import FoundTrial, FoundTrials
from .sources import read_sources

_NAMES_SHOWN = 5


@dataclass(frozen=True, slots=True)
class Earlier:
    """What a new study learns from a source, and a line about it for the user."""

    study: EarlierStudy
    note: str


def read_earlier(name: str, goals: Goals, space: SearchSpace) -> list[Earlier]:
    """Return what a new study can learn from the sources that a name means.

    Trials that measured all metrics of the new study count by these. If there are none, the
    trials count by their own study's objective, the first one if there are several.

    Args:
        name: As for `sources.read_sources`.
        goals: The new study's goals.
        space: The new study's search space.

    Raises:
        UsageError: There is no source, no complete trial in it, or no hyperparameter in common.
    """
    declared: dict[str, list[Parameter]] = {}
    for parameter in space:
        declared.setdefault(parameter.name, []).append(parameter)
        # hptune's own export to Optuna names a declaration with its conditions.
        declared.setdefault(label(parameter), []).append(parameter)
    sources = read_sources(name, hyperparameters=declared.keys(), metrics=goals.metrics)
    option = f"--warm-start {without_passwords(name)}"
    return [
        _as_seen(found, source, goals=goals, space=space, declared=declared, option=option)
        for source, found in sources.items()
    ]


def _as_seen(
    found: FoundTrials,
    source: str,
    *,
    goals: Goals,
    space: SearchSpace,
    declared: Mapping[str, Sequence[Parameter]],
    option: str,
) -> Earlier:
    """Return the trials of one source as the new study sees them.

    Raises:
        UsageError: It has no complete trial, or no hyperparameter in common.
    """
    skipped = dict(found.skipped)
    trials = [trial for trial in found.trials if _has_metrics(trial, goals)]
    if trials:
        judged = tuple(_judged(trial, goals, declared) for trial in trials)
        direction, is_same_metric = goals.goal.direction, True
        skipped[f"without {' or '.join(goals.metrics)}"] = len(found.trials) - len(trials)
    else:
        judged = tuple(
            EarlierTrial(_typed(trial.params, declared), trial.value)
            for trial in found.trials
            if trial.value is not None and math.isfinite(trial.value)
        )
        own = found.objective
        direction = goals.goal.direction if own is None else own.direction
        is_same_metric = own is not None and own.metric == goals.goal.metric
        skipped["without a value"] = len(found.trials) - len(judged)
    if not judged:
        raise UsageError(
            f"{source} has no complete trial to learn from; leave out {option}, or wait until it "
            "has"
        )
    study = EarlierStudy(source, direction, is_same_metric, judged)
    _check_common(study, found, space, option)
    return Earlier(study, _note(study, found, skipped, goals, space))


def _check_common(study: EarlierStudy, found: FoundTrials, space: SearchSpace, option: str) -> None:
    known = {*found.unused, *(name for trial in found.trials for name in trial.params)}
    names = {parameter.name for parameter in space}
    if not names & {name for trial in study.trials for name in trial.params}:
        raise UsageError(
            f"{study.name} has no hyperparameter in common with this study: there are "
            f"{', '.join(sorted(known)) or 'none'} in it and {', '.join(sorted(names)) or 'none'} "
            f"here; leave out {option}"
        )


def _has_metrics(trial: FoundTrial, goals: Goals) -> bool:
    """Return whether the trial measured all metrics of the new study's goals."""
    return all(math.isfinite(trial.metrics.get(name, math.nan)) for name in goals.metrics)


def _judged(
    trial: FoundTrial, goals: Goals, declared: Mapping[str, Sequence[Parameter]]
) -> EarlierTrial:
    first, *further = (score := goals.score(trial.metrics)).values
    params = _typed(trial.params, declared)
    return EarlierTrial(params, first, tuple(further), score.violation)


def _typed(
    given: Mapping[str, object], declared: Mapping[str, Sequence[Parameter]]
) -> dict[str, ParamValue]:
    """Return the values by the names that they have here, of the types that they have here.

    Those that are not searched stay: the space may grow when the study is resumed.
    """
    found: dict[str, ParamValue] = {}
    for name, value in given.items():
        candidates = declared.get(name, ())
        if isinstance(value, bool | int | float | str | None):
            read = _value(value, candidates)
            # A table has an empty cell where a trial has no value.
            if read not in ("", None) or _allows(candidates, read):
                found[candidates[0].name if candidates else name] = read
    return found


def _value(given: ParamValue, candidates: Sequence[Parameter]) -> ParamValue:
    """Return the value that is allowed, of those that a text or a number may stand for."""
    read = [given, *(candidate.read(str(given)) for candidate in candidates)]
    return next((value for value in read if _allows(candidates, value)), given)


def _allows(candidates: Sequence[Parameter], value: ParamValue) -> bool:
    return not candidates or any(not each.explain(each.canonical(value)) for each in candidates)


def _note(
    study: EarlierStudy,
    found: FoundTrials,
    skipped: Mapping[str, int],
    goals: Goals,
    space: SearchSpace,
) -> str:
    """Return what is taken from the source and what is not, in one line."""
    if len(study.trials[0].values) < len(goals.objectives):
        return (
            f"warm start: of {study.name} the best configuration only; no trial of it measured all "
            f"of {', '.join(goals.metrics)}"
        )
    taken, there = len(study.within(space)), len(study.trials)
    counts = {"outside the present bounds": there - taken, **skipped}
    left = ", ".join(f"{count} {why}" for why, count in counts.items() if count)
    note = f"warm start: {taken} of {there + sum(skipped.values())} trials of {study.name}"
    note += f" ({left})" if left else ""
    names = list(dict.fromkeys(parameter.name for parameter in space))
    labels = {label(parameter) for parameter in space}
    present = [*(name for trial in found.trials for name in trial.params), *found.unused]
    unknown = [name for name in dict.fromkeys(present) if name not in {*names, *labels}]
    measured = {name for trial in study.trials for name in trial.params}
    new = [name for name in names if name not in measured]
    note += f"; not searched here: {some(unknown, _NAMES_SHOWN)}" if unknown else ""
    note += f"; not searched there: {some(new, _NAMES_SHOWN)}" if new else ""
    if study.is_same_metric:
        return note
    note += f"; no {' or '.join(goals.metrics)} there: "
    if found.objective is not None:
        return f"{note}their {found.objective} is a guide"
    better = "less" if study.direction is Direction.MIN else "more"
    return f"{note}their value is a guide, and {better} is taken to be better, as here"
