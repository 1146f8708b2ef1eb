"""What a study's results say: what matters, what was wasted, and what is advised."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from fake_study import GOALS, LivingMaster, attempt, trial
from hptune.core.attempt import NO_BETTER, AttemptId, Cause, Outcome, Usage
from hptune.core.goals import Goals
from hptune.core.messages import Finish, FinishReason
from hptune.core.space.space import (
    ChoiceParameter,
    Condition,
    FloatParameter,
    IntParameter,
    Parameter,
    Scale,
    SearchSpace,
)
from hptune.core.trial import CONFIRMS, Direction, Goal, Params, ParamValue, TrialState
from hptune.reporting.results.answers import advice as answers_that_ask
from hptune.reporting.results.answers import answers, importance_of
from hptune.reporting.results.summary import closing_text, status_text
from hptune.reporting.results.view import StudyView
from hptune.text import duration


def advice(view: StudyView) -> list[str]:
    return [each.words for each in answers_that_ask(view)]


RATE = FloatParameter("lr", 1e-4, 1e-1, scale=Scale.LOG)


def study(parameter: Parameter, best: Callable[[float], float], trials: int = 25) -> StudyView:
    """Return a study of one hyperparameter, whose value at `u` in [0, 1] is `best(u)`; max.

    The trials are spread evenly over the range, and the best one comes last.
    """
    points = sorted((k / (trials - 1) for k in range(trials)), key=best)
    return StudyView(
        directory="runs/one",
        search="tpe",
        goals=GOALS,
        budget_trials=trials,
        trials=[
            trial(number, value=best(u), params={parameter.name: parameter.from_unit(u)})
            for number, u in enumerate(points)
        ],
        space=SearchSpace((parameter,)),
    )


def rising(u: float) -> float:
    return u


def falling(u: float) -> float:
    return -u


SPREAD = 45
"""Trials of which the best five lie in a tenth of the range."""


@pytest.mark.parametrize(
    ("parameter", "best", "wider"),
    [
        (RATE, rising, 'at the upper end of its range; a wider one: hp.Float("lr", 0.0001, 1, sam'),
        (RATE, falling, 'the lower end of its range; a wider one: hp.Float("lr", 1e-05, 0.1, samp'),
        (FloatParameter("d", 0.1, 0.5), rising, 'hp.Float("d", 0.1, 0.7)'),
        (FloatParameter("d", 0.1, 0.5), falling, 'hp.Float("d", 0.05, 0.5)'),
        (FloatParameter("d", -2.0, 2.0), falling, 'hp.Float("d", -4, 2)'),
        (IntParameter("units", 32, 512, step=32), rising, 'hp.Int("units", 32, 768, step=32)'),
        (IntParameter("units", 2, 90), falling, 'hp.Int("units", 1, 90)'),
    ],
)
def test_a_range_at_whose_edge_the_best_trials_lie_is_to_be_widened(
    parameter: Parameter, best: Callable[[float], float], wider: str
) -> None:
    (line,) = advice(study(parameter, best, SPREAD))
    assert line.startswith(f"the best 5 trials have {parameter.name} at the ")
    assert wider in line


@pytest.mark.parametrize(
    ("parameter", "best"),
    [
        (RATE, lambda u: -abs(u - 0.8)),
        (FloatParameter("share", 0.0, 1.0), rising),
        (FloatParameter("share", 0.0, 1.0), falling),
        (IntParameter("layers", 1, 9), falling),
        (IntParameter("few", 2, 5), rising),
        (FloatParameter("momentum", 0.9, 0.999, scale=Scale.REVERSE_LOG), rising),
    ],
)
def test_other_ranges_stay(parameter: Parameter, best: Callable[[float], float]) -> None:
    assert advice(study(parameter, best, SPREAD)) == []


def test_few_trials_and_those_that_lack_the_hyperparameter_say_nothing() -> None:
    assert advice(study(RATE, rising, 19)) == []
    view = study(RATE, rising, SPREAD)
    without = [*view.trials[:-1], replace(view.trials[-1], params={})]
    assert advice(replace(view, trials=without)) == []


def test_a_value_that_the_code_never_asked_for_says_nothing() -> None:
    view = study(RATE, rising, SPREAD)
    assert advice(view)
    last = replace(view.trials[-1], unused=("lr",))
    assert advice(replace(view, trials=[*view.trials[:-1], last])) == []


@pytest.mark.parametrize(
    ("values", "best", "wider"),
    [
        ((16, 32, 64, 128, 256), rising, 'hp.Choice("batch", [16, 32, 64, 128, 256, 512])'),
        ((256, 128, 64, 32, 16), falling, 'hp.Choice("batch", [8, 16, 32, 64, 128, 256])'),
        ((0.1, 0.2, 0.3, 0.4, 0.5), rising, 'hp.Choice("batch", [0.1, 0.2, 0.3, 0.4, 0.5, 0.6])'),
        (("a", "b", "c", "d", "e"), rising, ""),
        ((3, 1, 2, 5, 4), rising, ""),
        ((1, 2, 3, 4, 5), falling, ""),
    ],
)
def test_a_choice_of_numbers_in_their_order_has_ends_as_well(
    values: tuple[ParamValue, ...], best: Callable[[float], float], wider: str
) -> None:
    is_down = values[0] == 256
    of = study(ChoiceParameter("batch", values), (lambda u: -best(u)) if is_down else best)
    lines = advice(of)
    assert [line.partition("wider one: ")[2] for line in lines] == ([wider] if wider else [])


UNITS = IntParameter("units", 32, 512, step=32)


def searched(
    value: Callable[[float, float], float], *, at_edge: int = 5, rung: int | None = None
) -> StudyView:
    """Return a study that looked at 20 places of `lr` and `units`, and then near its best ones.

    Its last five trials, of `lr` at its best, have `units` at the upper end, or some of them do.

    Args:
        value: The value by the places of `lr` and `units`, from 0 to 1.
        at_edge: How many of the last trials have `units` at its end.
        rung: The epoch at which all trials but the last three were stopped; None if none was.
    """
    chance = np.random.default_rng(2)
    places = [(float(chance.random()), float(chance.random())) for _ in range(20)]
    places += [(0.5 + 0.001 * n, 1.0 if 4 - n < at_edge else 0.6) for n in range(5)]
    trials = []
    for number, (rate, units) in enumerate(places):
        found = value(rate, units)
        one = trial(
            number,
            value=found,
            params={"lr": RATE.from_unit(rate), "units": UNITS.from_unit(units)},
        )
        if rung is not None:
            is_stopped = number < len(places) - 3
            state = TrialState.PRUNED if is_stopped else TrialState.COMPLETE
            at = {rung: (0.5 * found,)}
            one = replace(one, state=state, rungs=at, value=0.5 * found if is_stopped else found)
        trials.append(one)
    return replace(study(RATE, rising), trials=trials, space=SearchSpace((RATE, UNITS)))


def near(rate: float, units: float) -> float:
    """Return a value that is best at the middle of `lr`, and does not depend on `units`."""
    return 0.9 - abs(rate - 0.5) + 0.0 * units


def near_and_more(rate: float, units: float) -> float:
    return near(rate, units) + 0.2 * units


@pytest.mark.parametrize("rung", [None, 3])
def test_what_does_not_matter_may_lie_at_the_end_of_its_range(rung: int | None) -> None:
    """A search repeats what it has found, with the same value of what does not matter."""
    assert advice(searched(near, rung=rung)) == []
    (line,) = advice(searched(near_and_more, rung=rung))
    assert line.startswith("the best 5 trials have units at the upper end of its range; ")


def test_nearly_all_of_the_best_trials_at_the_end_suffice() -> None:
    (line,) = advice(searched(near_and_more, at_edge=4))
    assert line.startswith("4 of the best 5 trials have units at the upper end of its range; ")
    assert advice(searched(near_and_more, at_edge=3)) == []


def test_failed_trainings_and_values_of_another_space_do_not_matter() -> None:
    view = searched(near_and_more)
    far = [replace(each, value=-1e300) for each in view.trials[:2]]
    (line,) = advice(replace(view, trials=[*far, *view.trials[2:]]))
    assert line.startswith("the best 5 trials have units at the upper end of its range; ")
    batch = ChoiceParameter("batch", (16, 32, 64, 128, 256))
    of = study(batch, rising)
    other = replace(of.trials[3], params={"batch": 100})
    (line,) = advice(replace(of, trials=[*of.trials[:3], other, *of.trials[4:]]))
    assert line.startswith("the best 5 trials have batch at the upper end of its range; ")


def test_a_hyperparameter_that_was_a_choice_of_words_before_is_no_obstacle() -> None:
    of = study(RATE, rising)
    for number in (3, 24):
        word = replace(of.trials[number], params={"lr": "slow"})
        advice(replace(of, trials=[*of.trials[:number], word, *of.trials[number + 1 :]]))
    whole = study(UNITS, rising)
    half = replace(whole.trials[3], params={"units": 70.5})
    (line,) = advice(replace(whole, trials=[*whole.trials[:3], half, *whole.trials[4:]]))
    assert "trials have units at the upper end of its range; " in line


@pytest.mark.parametrize("is_declared_twice", [True, False])
def test_many_values_without_an_end_take_no_time(*, is_declared_twice: bool) -> None:
    """A column for each value of each of them would take a minute."""
    others = [FloatParameter(f"m{k}", 0.9, 0.999, scale=Scale.REVERSE_LOG) for k in range(8)]
    rng = np.random.default_rng(0)
    of = study(RATE, rising, 1000)
    trials = [
        replace(
            each,
            params={**each.params, **{one.name: one.from_unit(rng.random()) for one in others}},
        )
        for each in of.trials
    ]
    space = SearchSpace((RATE, *others))
    if is_declared_twice:
        first = [replace(one, conditions=(Condition("kind", ("a",)),)) for one in others]
        second = [replace(one, conditions=(Condition("kind", ("b",)),)) for one in others]
        space = SearchSpace((RATE, ChoiceParameter("kind", ("a", "b")), *first, *second))
        trials = [
            replace(each, params={**each.params, "kind": "ab"[each.number % 2]}) for each in trials
        ]
    began = time.process_time()
    (line,) = advice(replace(of, trials=trials, space=space))
    assert "have lr at the upper end of its range; " in line
    assert time.process_time() - began < 10.0


def noisy(noise: float, apart: float) -> StudyView:
    """Return 25 trials that are `apart` in their values, and rise to them with some noise."""
    rng = np.random.default_rng(1)
    trials = [trial(n, value=apart * n, params={}) for n in range(25)]
    ends = {
        number: [0.1 * step + noise * rng.normal() for step in range(6)] for number in range(17, 25)
    }
    return replace(study(RATE, rising), trials=trials, space=None, last_values=ends)


def test_trials_that_differ_less_than_their_noise_are_to_be_trained_again() -> None:
    (line,) = advice(noisy(0.01, 0.003))
    assert line.startswith(
        "the best 3 trials differ by less than a trial at its end does from one "
    )
    noise = float(line.partition("(")[2].partition(")")[0])
    assert 0.007 < noise < 0.013
    assert line.endswith("; `hptune resume runs/one --confirm 3` trains them again")
    assert advice(noisy(0.01, 0.02)) == []
    assert advice(noisy(0.0, 0.0)) == [], "equal values without noise are equal"
    falls = {number: [0.1 / epoch for epoch in range(1, 7)] for number in range(17, 25)}
    smooth = replace(noisy(0.0, 0.0001), last_values=falls)
    assert advice(smooth) == [], "a curve that falls more and more slowly is no noise"
    huge = {number: [1e308, -1e308] * 6 for number in range(17, 25)}
    assert advice(replace(noisy(0.0, 0.01), last_values=huge)) == [], "no noise can be computed"
    view = noisy(0.01, 0.003)
    again = trial(25, value=0.09, params={}, origin=f"{CONFIRMS}24")
    assert advice(replace(view, trials=[*view.trials, again])) == []
    assert advice(replace(view, trials=view.trials[6:])) == []


@pytest.mark.parametrize(
    ("ended", "best", "is_told"), [(40, 9, True), (40, 10, False), (33, 2, True), (32, 2, False)]
)
def test_a_search_that_stagnates_is_told(ended: int, best: int, *, is_told: bool) -> None:
    trials = [
        trial(number, value=0.9 if number == best else 0.5, params={}) for number in range(ended)
    ]
    again = trial(ended, value=0.5, params={}, origin=f"{CONFIRMS}{best}")
    view = replace(study(RATE, rising), trials=[*trials, again])
    lines = advice(view)
    assert bool(lines) == is_told
    if is_told:
        assert lines == [f"none of the {ended - best - 1} trials after trial {best} is better"]
        assert lines[0] in closing_text(view, Finish(FinishReason.DONE, ""))
        assert lines[0] in status_text(view, now=0.0)
        assert advice(replace(view, trials=trials[:best])) == [], "no trial has a better value"


BIG = SearchSpace((RATE, IntParameter("depth", 1, 8), ChoiceParameter("act", ("relu", "gelu"))))


def said(view: StudyView, now: float = 2000.0) -> dict[str, str]:
    """Return the answers of a study by their figures."""
    return {each.figure: each.words for each in answers(view, importance_of(view), now=now)}


def varied(count: int, fails: Callable[[Params], bool] = lambda _: False) -> StudyView:
    """Return a study whose values depend on the rate alone; its trials took ten seconds each."""
    rng = np.random.default_rng(0)
    trials, attempts = [], []
    for number in range(count):
        params = BIG.sample(rng)
        value = -((np.log10(float(params["lr"] or 0.0)) + 2.5) ** 2)
        failed = trial(number, TrialState.FAILED, params=params, reason="ValueError: shape")
        ended = trial(number, value=float(value), params=params)
        trials.append(failed if fails(params) else ended)
        at = 1000.0 + 10.0 * number
        held = attempt(number, placed_at=at, ended_at=at + 10.0, outcome=Outcome.FINISHED)
        attempts.append(held)
    return StudyView("runs/one", "tpe", GOALS, count, trials, attempts, space=BIG)


def test_a_small_study_says_nothing() -> None:
    assert said(varied(9)) == {}
    assert said(StudyView("runs/one", "tpe", GOALS, 9, trials=[])) == {}


def test_what_matters_is_said_where_chance_would_hardly_show_as_much() -> None:
    assert said(varied(60))["importance"].startswith("the most important is lr (")
    assert "importance" not in said(varied(19))
    view, wrong = varied(60), 0
    for seed in range(100):
        rng = np.random.default_rng(seed)
        trials = [replace(each, value=float(rng.normal())) for each in view.trials]
        wrong += "importance" in said(replace(view, trials=trials))
    assert wrong <= 5, "nothing matters"


def test_what_matters_for_the_first_of_several_objectives_is_said_so() -> None:
    view = varied(60)
    two = Goals((*GOALS.objectives, Goal("size", Direction.MIN)))
    trials = [replace(each, extra_values=(1.0,)) for each in view.trials]
    words = said(replace(view, trials=trials, goals=two))["importance"]
    assert words.startswith("for val_accuracy, the most important is lr (")


def test_when_the_last_better_value_came_is_said() -> None:
    view = varied(20)
    best = view.best
    assert best is not None
    later = 19 - best.number
    words = f"the last better value came with trial {best.number}, "
    without = f"{later} later trials ended without one"
    before = duration(10.0 * later)
    assert said(view)["history"] == f"{words}{before} before the end; {without}"
    running = said(replace(view, master=LivingMaster()), now=1000.0 + 10.0 * (best.number + 1) + 5)
    assert running["history"] == f"{words}5s ago; {without}"
    programs = said(replace(view, is_open=True), now=1000.0 + 10.0 * (best.number + 1) + 5)
    assert programs["history"] == running["history"], "no end is known"
    failed = attempt(
        best.number, 1, placed_at=1200.0, ended_at=1210.0, outcome=Outcome.FINISHED,
        reason=NO_BETTER,
    )  # fmt: skip
    trained_on = said(replace(view, attempts=[*view.attempts, failed]))["history"]
    before = duration(10.0 * later + 10.0)
    assert trained_on == f"{words}{before} before the end; {without}"
    two = Goals((*GOALS.objectives, Goal("size", Direction.MIN)))
    front = [replace(each, extra_values=(float(each.number),)) for each in view.trials]
    words = said(replace(view, trials=front, goals=two))["history"]
    assert words.startswith(f"the Pareto front last changed with trial {best.number}, ")
    assert words.endswith(f"{later} later trials ended without joining it")


def test_a_better_value_is_that_of_a_search_and_keeps_the_constraints() -> None:
    view = varied(20)
    values = [float(each.number == 5) + 2.0 * (each.number == 15) for each in view.trials]
    trials = [replace(each, value=value) for each, value in zip(view.trials, values, strict=True)]
    again = [
        trial(20 + n, value=value, origin=f"{CONFIRMS}{of}")
        for n, (of, value) in enumerate([(5, 1.0), (15, 0.5)])
    ]
    confirmed = replace(view, trials=[*trials, *again])
    assert confirmed.best is not None
    assert confirmed.best.confirms == 5, "by the mean of its repeats"
    words = said(confirmed)["history"]
    assert words.startswith("the last better value came with trial 15, ")
    assert words.endswith("; 4 later trials ended without one")
    broken = [replace(each, violation=1.0 + each.number) for each in trials]
    assert "history" not in said(replace(view, trials=broken)), "the least violation is the best"
    last = [replace(each, value=float(each.number)) for each in trials]
    words = said(replace(view, trials=last))["history"]
    assert words == "the last better value came with trial 19, 0s before the end"


def deep_gelu(params: Params) -> bool:
    return params["act"] == "gelu" and int(params["depth"] or 0) >= 7


@pytest.mark.parametrize(
    ("count", "fails", "words"),
    [
        (100, deep_gelu, "have depth ≥ 7 and act=gelu, and none of the"),
        (100, lambda params: params["act"] == "gelu", "have act=gelu, and none of the"),
        (100, lambda params: float(params["lr"] or 0.0) > 0.05, "have lr ≥ 0.05"),
        (100, lambda params: float(params["lr"] or 0.0) < 0.0003, "have lr ≤ 0.000"),
        (100, lambda params: hash(params["lr"]) % 5 == 0, ""),
        (12, deep_gelu, ""),
        (100, lambda params: float(params["lr"] or 0.0) > 0.09, ""),
        (100, lambda _: True, ""),
    ],
)
def test_what_failed_trials_have_in_common_is_said(
    count: int, fails: Callable[[Params], bool], words: str
) -> None:
    view = varied(count, fails)
    line = said(view).get("failures", "")
    assert words in line
    assert bool(line) is bool(words)
    if line:
        failed = view.counts[TrialState.FAILED]
        assert line.startswith(f"all {failed} failed trials have ")
        assert line.endswith(f"of the {count - failed} that did not fail")


@pytest.mark.parametrize(("failed", "values", "hyperparameters"), [(3, 5, 8), (4, 4, 10)])
def test_failures_by_chance_have_hardly_ever_something_in_common(
    failed: int, values: int, hyperparameters: int
) -> None:
    wrong = 0
    for seed in range(200):
        table = np.random.default_rng(seed).integers(values, size=(60, hyperparameters))
        params = [{f"p{name}": str(each) for name, each in enumerate(row)} for row in table]
        trials = [
            trial(n, TrialState.FAILED, params=each, reason="Error")
            if n < failed
            else trial(n, value=0.5, params=each)
            for n, each in enumerate(params)
        ]
        wrong += "failures" in said(replace(varied(0), trials=trials))
    assert wrong <= 10


def test_repeats_and_failures_that_count_as_pruned_are_not_compared() -> None:
    view = varied(60)
    origin = f"{CONFIRMS}7"
    again = [
        trial(60 + n, TrialState.FAILED, params=view.trials[7].params, reason="E", origin=origin)
        for n in range(5)
    ]
    assert "failures" not in said(replace(view, trials=[*view.trials, *again]))
    view = varied(100, deep_gelu)
    met = [each for each in view.trials if deep_gelu(each.params)]
    pruned = replace(met[0], state=TrialState.PRUNED, value=-9.0)
    trials = [pruned if each is met[0] else each for each in view.trials]
    cause = attempt(pruned.number, outcome=Outcome.PRUNED, cause=Cause.NON_FINITE)
    line = said(replace(view, trials=trials, attempts=[cause]))["failures"]
    assert line.endswith(f", and none of the {100 - len(met)} that did not fail")


def test_conditions_that_other_trials_meet_too_are_counted_and_reasons_named() -> None:
    view = varied(100, deep_gelu)
    met = [each for each in view.trials if deep_gelu(each.params)]
    saved = replace(met[0], state=TrialState.COMPLETE, value=-9.0, reason="")
    odd = trial(100, TrialState.FAILED, params=BIG.defaults(), reason="MemoryError")
    trials = [saved if each is met[0] else each for each in view.trials]
    line = said(replace(view, trials=[*trials, odd]))["failures"]
    assert line.startswith(f'all {len(met) - 1} trials that failed with "ValueError: shape" have ')
    assert f", and 1 of the {len(view.trials) - len(met) + 1} that" in line


def test_where_device_hours_went_is_said() -> None:
    view = varied(20, lambda params: params["act"] == "gelu")
    failed = view.counts[TrialState.FAILED]
    lost = attempt(3, 1, placed_at=2000.0, ended_at=2100.0, outcome=Outcome.LOST)
    again = replace(view, attempts=[*view.attempts, lost])
    share = f"{10 * (20 - failed) / 300:.0%} were used well; failed {10 * failed / 300:.0%}"
    assert said(again)["costs"] == f"of 10 core minutes, {share}, lost and repeated 33%"
    errored = replace(lost, outcome=Outcome.ERRORED)  # and --retry-failed completed the trial
    retried = replace(varied(20), attempts=[*varied(20).attempts, errored])
    assert said(retried)["costs"] == "of 10 core minutes, 67% were used well; failed 33%"
    whole = said(varied(20))["costs"]
    assert whole == "of 6.67 core minutes, 100% were used well"
    used = Usage(seconds=10.0, cpu_seconds=10.0, peak_memory_bytes=1)
    idle = replace(view, attempts=[replace(each, usage=used) for each in view.attempts])
    assert said(idle)["costs"].endswith("idle cores 50%")
    unfinished = replace(lost, id=AttemptId(20, 0), ended_at=None, outcome=None)
    trials = [*varied(20).trials, trial(20, TrialState.RUNNING)]
    attempts = [*varied(20).attempts, unfinished]
    runs = replace(varied(20), trials=trials, attempts=attempts, master=LivingMaster())
    assert said(runs, now=2100.0)["costs"].endswith("; unfinished trials 33%")
    assert list(said(again)) == ["history", "failures", "costs"], "in the order of the page"
