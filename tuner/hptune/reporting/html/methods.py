"""The paragraph on methods for a paper: how the best configuration was found."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ... import text
from ..results.best import best_line
from ..results.costs import costs_of
from ..results.view import StudyView
from .markdown import escaped

_LIMITS = ("--trials", "--timeout", "--budget")
_KNOWLEDGE = ("--warm-start", "--try", "--prior")


def methods_text(view: StudyView, facts: Mapping[str, str], *, now: float) -> str:
    """Return versions, search space, budget, failures, costs, seeds and result, as Markdown.

    Args:
        view: The study.
        facts: How it was started, by name: the options that were given, "seed", "hptune".
        now: The time, up to which attempts that run have cost something.
    """
    parts = (_search(view, facts), _trials(view, facts, now), _result(view))
    return "\n\n".join(escaped(" ".join(part)) for part in parts) + "\n"


def _search(view: StudyView, facts: Mapping[str, str]) -> Iterator[str]:
    goals = " and ".join(
        f"{goal.direction}imise {text.clean(goal.metric)}" for goal in view.goals.objectives
    )
    yield f"Hyperparameters were searched with hptune {facts['hptune']} (search {view.search})"
    yield f"to {goals}. The seed was {facts['seed']}; the seed of each trial follows from it."
    if view.goals.constraints:
        yield f"Trials had to keep {' and '.join(map(str, view.goals.constraints))}."
    if known := [name for name in _KNOWLEDGE if name in facts]:
        yield f"The search was given earlier knowledge by {' and '.join(known)}."
    ranges = "; ".join(
        f"{text.clean(each.name)} ({', only if '.join((each.bounds, *map(str, each.conditions)))})"
        for each in view.space or ()
    )
    yield f"The search space was: {ranges}."


def _trials(view: StudyView, facts: Mapping[str, str], now: float) -> Iterator[str]:
    epochs = "" if view.epochs is None else f" of at most {text.plural(view.epochs, 'epoch')}"
    searched = text.plural(len(view.trials) - view.confirmations, "trial")
    repeats = text.plural(view.confirmations, "repeat")
    again = f", and {repeats} of the best ones" if view.confirmations else ""
    yield f"There were {searched}{epochs}{again}: {view.counts_text()}."
    if limits := [f"{name} {facts[name]}" for name in _LIMITS if name in facts]:
        yield f"The limits were {' and '.join(limits)}."
    if (pruner := facts.get("--pruner", "none")) != "none":
        steps = f"{text.step_word(view.epochs)}s"
        rungs = f" at {steps} {', '.join(map(str, view.rungs))}" if view.rungs else ""
        yield f"Poor trials were pruned by {pruner}{rungs}."
    if view.failures:
        yield f"The failures were {'; '.join(map(str, view.failures))}."
    costs = costs_of(view.attempts, now=now if view.is_live else None)
    gpus = f" and {text.held(costs.gpu_hours, 'GPU')}" if costs.gpu_hours else ""
    yield f"The trials took {text.held(costs.core_hours, 'core')}{gpus}."


def _result(view: StudyView) -> Iterator[str]:
    if view.best is None:
        yield "No trial is complete yet."
        return
    chosen = ", ".join(text.assignments(text.shown_params(view.best)))
    best = "The best"
    if len(view.front) > 1:
        front = text.plural(len(view.front), "trial")
        best = f"Of {front} on the Pareto front, the best in {text.clean(view.goal.metric)}"
    yield f"{best} was {best_line(view, view.best)}, with {chosen}."
    if view.confirmation(view.best) is None:
        yield "It was not trained again: a value that is the best of many is too good by chance."
    yield "To add: the versions of the framework, the devices, and the value on test data."
