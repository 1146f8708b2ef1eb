"""The output of `hptune best`, and the words for results that other texts share."""

from __future__ import annotations

from ... import text
from ...core.ranking import Confirmation
from ...core.trial import Trial
from ..table import aligned, indented
from .rows import rows
from .view import StudyView


def best_text(view: StudyView, *, width: int | None = None) -> str:
    """Return the output of `hptune best`, of a study with a complete trial.

    Several trials are wrapped at a width.
    """
    if len(view.goals.objectives) > 1:
        return "\n".join(_front_lines(view, width))
    return "\n".join(_trial_lines(view, view.front[0]))


def nothing_complete(view: StudyView) -> str:
    """Return a sentence for a study without a complete trial."""
    if not view.trials:
        return "No trial has begun yet."
    return f"No trial is complete yet: {view.counts_text(of=view.all_trials)}."


def _trial_lines(view: StudyView, best: Trial) -> list[str]:
    metric, params = view.goal.metric, text.exact_params(text.shown_params(best))
    others = {n: text.measured(v) for n, v in best.metrics.items() if n != metric}
    width = max(len(text.clean(name)) for name in (metric, *params, *others))
    step = text.value_step(best, view.epochs)
    details = ", ".join(part for part in (str(view.goal.direction), step) if part)
    again = "" if best.confirms is None else f" (trains trial {best.confirms} again)"
    results = {metric: f"{text.measured(best.value)}  ({details})"}
    if (confirmation := view.confirmation(best)) is not None:
        (mean,) = _means(confirmation)
        results["mean"] = f"{mean}  ({_trainings(confirmation)})"
    lines = [
        f"trial {best.number}{again}, the best of {view.progress}",
        *(f"  infeasible: {each}" for each in view.goals.broken(best.metrics)),
        *aligned(results, width=width),
        *aligned(others, width=width),
    ]
    if params:
        lines += ["", "hyperparameters", *aligned(params, width=width)]
    if view.carrier:
        lines += ["", f"trained on {view.carrier}"]
    if model := model_lines(view, best):
        lines += ["", *model]
    return lines


def _front_lines(view: StudyView, width: int | None) -> list[str]:
    count = len(view.front)
    metrics = ", ".join(text.clean(goal.metric) for goal in view.goals.objectives)
    trials = text.plural(count, "best trial")
    lines = [f"{trials} of {view.progress}, by {metrics} (a Pareto front)"]
    for trial in view.front:
        lines += ["", f"trial {trial.number}  {values_text(view, trial)}"]
        lines += [f"  infeasible: {each}" for each in view.goals.broken(trial.metrics)]
        if trial.params:
            words = " ".join(text.exact_assignments(text.shown_params(trial)))
            lines += indented(words, width=width)
        path_and_load = model_lines(view, trial)[:2]  # another way to load would be too wide
        lines += [f"  {line}" for line in path_and_load]
    return lines


def best_json(view: StudyView) -> dict[str, object]:
    """Return the output of `hptune best --json`; `best` is null if no trial is complete.

    `trials` has all the best trials, which are several with several objectives.
    """
    best = [row.to_json() for row in rows(view, view.front)]
    return {
        "study": view.directory,
        **goals_json(view),
        "best": best[0] if best else None,
        "trials": best,
        "model": view.model or None,
        "trained_on": view.carrier or None,
    }


def goals_json(view: StudyView) -> dict[str, object]:
    """Return what is optimised: objectives and constraints, and the best trials of several."""
    found: dict[str, object] = {
        "metric": view.goal.metric,
        "direction": str(view.goal.direction),
    }
    if len(view.goals.objectives) > 1:
        found["objectives"] = [
            {"metric": goal.metric, "direction": str(goal.direction)}
            for goal in view.goals.objectives
        ]
        found["front"] = [trial.number for trial in view.front]
    if view.goals.constraints:
        found["constraints"] = [str(constraint) for constraint in view.goals.constraints]
    return found


def best_line(view: StudyView, best: Trial) -> str:
    """Return the best trial in one line."""
    step = text.value_step(best, view.epochs)
    goals = "" if len(view.goals.objectives) > 1 else f"  {view.goal}"
    broken = "; ".join(view.goals.broken(best.metrics))
    confirmation = view.confirmation(best)
    words = [
        f"{values_text(view, best)}{goals}",
        f"trial {best.number}",
        step if confirmation is None else _trainings(confirmation),
        f"infeasible: {broken}" if broken else "",
    ]
    return ", ".join(word for word in words if word)


def value_texts(view: StudyView, trial: Trial) -> list[str]:
    """Return a trial's value of each objective; their means if the trial was confirmed."""
    confirmation = view.confirmation(trial)
    if confirmation is None:
        return [text.measured(value) for value in trial.values]
    return _means(confirmation)


def values_text(view: StudyView, trial: Trial) -> str:
    """Return the same as one text, with the metrics' names if there are several."""
    values = value_texts(view, trial)
    if len(values) == 1:
        return values[0]
    metrics = [text.clean(goal.metric) for goal in view.goals.objectives]
    return ", ".join(f"{m} {value}" for m, value in zip(metrics, values, strict=True))


def _means(confirmation: Confirmation) -> list[str]:
    if len(confirmation.counted) == 1:  # one value has no spread
        return [text.measured(value) for value in confirmation.mean.values]
    return [
        f"{text.measured(mean)} ± {deviation:.2g}" if deviation else text.measured(mean)
        for mean, deviation in zip(confirmation.mean.values, confirmation.deviations, strict=True)
    ]


def _trainings(confirmation: Confirmation) -> str:
    numbers = ", ".join(map(str, sorted(trial.number for trial in confirmation.counted)))
    failed = f", {confirmation.failed} more failed" if confirmation.failed else ""
    if len(confirmation.counted) == 1:
        return f"one repeat, trial {numbers}{failed}"
    if not any(confirmation.deviations):
        return f"the same in trials {numbers}{failed}"
    return f"mean ± standard deviation of trials {numbers}{failed}"


def model_lines(view: StudyView, trial: Trial) -> list[str]:
    """Return the path of the model of one of the best trials, and how to load it.

    Empty if the trial stored none.
    """
    model = view.models.get(trial.number)
    if model is None:
        return []
    lines = [f"model  {text.path(model)}"]
    loader = view.model_loader if trial is view.best else "study"
    if model.endswith((".keras", ".h5")) and loader != "nothing":
        number = trial.number if len(view.goals.objectives) > 1 else ""
        lines.append(f"load   import hptune; hptune.Study({view.directory!r}).best_model({number})")
        if loader == "keras":  # known at the end of a run
            lines.append(f"or     import keras; keras.saving.load_model({model!r})")
    return lines
