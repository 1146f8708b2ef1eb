"""Trials that came to different rungs are compared at one of them."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from hptune.core.sampler import Sampler
from hptune.core.space.space import FloatParameter, SearchSpace
from hptune.core.trial import Direction, Suggestion, Trial, TrialState
from hptune.samplers.common.encoding import Encoding
from hptune.samplers.common.observations import Fidelities, History, Observations, Tier
from hptune.samplers.gp.sampler import BayesianSampler
from hptune.samplers.tpe.sampler import TpeSampler

NAN = float("nan")
RANDOM = "(random)"
SPACE = SearchSpace((FloatParameter("x", 0.0, 1.0),))


def at_common_rung(
    rungs: list[dict[int, float]],
    finals: list[float],
    *,
    enough: int = 2,
    running: set[int] | None = None,
) -> list[float]:
    fidelities = Fidelities()
    for slot, losses in enumerate(rungs):
        fidelities.record(slot, losses)
    is_stopped = np.array([slot not in (running or ()) for slot in range(len(rungs))])
    found = fidelities.at_common_rung(
        np.arange(len(rungs)), np.array(finals), is_stopped=is_stopped, enough=enough
    )
    return [float(loss) for loss in found]


def test_the_highest_rung_with_enough_trials_counts() -> None:
    rungs = [{1: 0.9, 3: 0.5}, {1: 0.8, 3: 0.4}, {1: 0.7}]
    assert at_common_rung(rungs, [0.1, NAN, NAN])[:2] == [0.5, 0.4]
    assert at_common_rung(rungs, [0.1, 0.2, NAN])[:2] == [0.1, 0.2]
    assert at_common_rung(rungs, [0.1, NAN, NAN], enough=3) == [0.9, 0.8, 0.7]
    assert at_common_rung(rungs, [0.1, NAN, NAN], enough=99) == [0.9, 0.8, 0.7]


def test_what_was_stopped_counts_as_those_that_had_as_much_and_went_on() -> None:
    rungs = [{1: 1.0, 3: 0.2}, {1: 2.0, 3: 0.4}, {1: 1.5}, {1: 5.0}, {1: 0.5}]
    found = at_common_rung(rungs, [NAN] * 5)
    assert found[2] == pytest.approx(0.3), "half-way between the two"
    assert found[3] == pytest.approx(0.4 + 3.0), "as much worse as it was"
    assert found[4] == pytest.approx(0.2), "no better than the best that went on"


def test_more_at_the_lower_rung_never_becomes_less() -> None:
    rng = random.Random(1)
    rungs = [{1: rng.random(), 3: rng.random()} for _ in range(20)]
    stopped = [{1: k / 30} for k in range(45)]
    found = at_common_rung(rungs + stopped, [NAN] * 65, enough=5)[20:]
    assert all(a <= b for a, b in itertools.pairwise(found))


def test_what_still_runs_is_not_guessed() -> None:
    rungs = [{1: 1.0, 3: 0.2}, {1: 2.0, 3: 0.4}, {1: 1.5}, {}]
    found = at_common_rung(rungs, [NAN] * 4, running={2, 3})
    assert found[:2] == [0.2, 0.4]
    assert np.isnan(found[2:]).all()


def test_there_is_room_for_any_number_of_trials() -> None:
    rungs = [{1: float(slot)} for slot in range(1_000)]
    assert at_common_rung(rungs, [NAN] * 1_000) == [float(slot) for slot in range(1_000)]


# --- as samplers see it -----------------------------------------------------------------------


def trial(
    number: int,
    state: TrialState,
    value: float | None = None,
    *,
    rungs: dict[int, tuple[float, ...]] | None = None,
) -> Trial:
    params = {"x": number / 64}
    return Trial(number, params, "test", state, value=value, step=1, rungs=rungs or {})


def observed(trials: list[Trial], direction: Direction = Direction.MIN) -> Observations:
    history = History(Encoding(SPACE), directions=(direction,))
    for each in trials:
        history.tell(each)
    return history.observations()


@pytest.mark.parametrize("direction", Direction)
def test_stopped_trials_are_observations_like_others(direction: Direction) -> None:
    sign = 1.0 if direction is Direction.MIN else -1.0
    seen = observed(
        [
            trial(0, TrialState.COMPLETE, sign * 0.1, rungs={1: (sign * 0.8,), 3: (sign * 0.5,)}),
            trial(1, TrialState.RUNNING, rungs={1: (sign * 0.7,), 3: (sign * 0.4,)}),
            trial(2, TrialState.PRUNED, sign * 0.9, rungs={1: (sign * 0.9,)}),
            trial(3, TrialState.FAILED, rungs={1: (sign * 0.6,), 3: (sign * 0.3,)}),
            trial(4, TrialState.RUNNING, rungs={1: (sign * 0.6,)}),
            trial(5, TrialState.PAUSED, sign * 0.75, rungs={1: (sign * 0.75,)}),
        ],
        direction,
    )
    assert seen.tiers.tolist() == [
        Tier.COMPLETE,
        Tier.COMPLETE,
        Tier.COMPLETE,
        Tier.FAILED,
        Tier.UNFINISHED,
        Tier.COMPLETE,
    ]
    losses = seen.losses[[0, 1, 2, 5]].tolist()
    assert losses == pytest.approx([0.5, 0.4, 0.5 + 0.1, 0.45])


def test_several_objectives_are_compared_at_one_rung_each_by_itself() -> None:
    history = History(Encoding(SPACE), directions=(Direction.MIN, Direction.MAX))
    for each in [
        trial(0, TrialState.RUNNING, rungs={1: (0.8, 1.0), 3: (0.5, 2.0)}),
        trial(1, TrialState.RUNNING, rungs={1: (0.6, 3.0), 3: (0.4, 4.0)}),
        # It is projected onto (0.45, 3.0): behind trial 1, and in front of trial 0.
        trial(2, TrialState.PRUNED, 0.7, rungs={1: (0.7, 2.0)}),
        trial(3, TrialState.PRUNED, 0.1),
    ]:
        history.tell(each)
    seen = history.observations()
    assert history.has_rungs
    assert seen.tiers.tolist() == [Tier.COMPLETE] * 3 + [Tier.PRUNED]
    assert seen.losses[:3].tolist() == [2.0, 0.0, 1.0]


def test_an_epoch_that_breaks_a_constraint_does_not_take_back_the_value_of_a_rung() -> None:
    feasible = trial(0, TrialState.PRUNED, 0.9, rungs={1: (0.4,)})
    broke_it_later = replace(trial(1, TrialState.PRUNED, 0.9, rungs={1: (0.3,)}), violation=2.0)
    broke_it_always = replace(trial(2, TrialState.COMPLETE, 0.1), violation=0.5)
    seen = observed([feasible, broke_it_later, broke_it_always])
    assert seen.losses[:2].tolist() == [0.4, 0.3]
    assert seen.losses[2] > 0.4


def test_without_rungs_nothing_changes() -> None:
    seen = observed([trial(0, TrialState.COMPLETE, 0.1), trial(1, TrialState.PRUNED, 0.2)])
    assert seen.tiers.tolist() == [Tier.COMPLETE, Tier.PRUNED]
    assert seen.losses.tolist() == [0.1, 0.2]


def told(sampler: Sampler, *, raced: bool) -> Sampler:
    """The sampler, told of forty trials that are the better the nearer they are to 0.3."""
    for number in range(40):
        x = (number * 0.618) % 1.0
        loss = (x - 0.3) ** 2
        state, rungs = TrialState.COMPLETE, dict[int, tuple[float, ...]]()
        if raced:
            state = TrialState.PRUNED
            rungs = {1: (1.0 + loss,)}
            if loss < 0.02:
                rungs[3] = (0.5 + loss,)
        sampler.tell(Trial(number, {"x": x}, "test", state, loss, 1, rungs=rungs))
    return sampler


def xs(suggestions: Sequence[Suggestion]) -> list[float]:
    return [float(str(suggestion.params["x"])) for suggestion in suggestions]


@pytest.mark.parametrize("make", [TpeSampler, BayesianSampler])
def test_searches_learn_from_trials_that_all_were_stopped(
    make: type[TpeSampler] | type[BayesianSampler],
) -> None:
    answers = told(make(SPACE, 3, directions=(Direction.MIN,)), raced=True).ask(range(40, 52))
    modelled = xs([each for each in answers if not each.origin.endswith(RANDOM)])
    assert sum(abs(x - 0.3) < 0.2 for x in modelled) > 0.6 * len(modelled) > 3.0


@pytest.mark.parametrize("make", [TpeSampler, BayesianSampler])
def test_half_of_what_is_suggested_is_random_where_trials_are_raced(
    make: type[TpeSampler] | type[BayesianSampler],
) -> None:
    answers = told(make(SPACE, 3, directions=(Direction.MIN,)), raced=True).ask(range(40, 120))
    random_ones = [each for each in answers if each.origin.endswith(RANDOM)]
    assert len(random_ones) == pytest.approx(40, abs=2)
    assert np.histogram(xs(random_ones), bins=4, range=(0, 1))[0].min() >= 4, "all over the space"


@pytest.mark.parametrize(("make", "name"), [(TpeSampler, "tpe"), (BayesianSampler, "bayesian")])
def test_a_model_is_asked_for_all_where_nothing_is_raced(
    make: type[TpeSampler] | type[BayesianSampler], name: str
) -> None:
    answers = told(make(SPACE, 3, directions=(Direction.MIN,)), raced=False).ask(range(40, 70))
    assert {each.origin for each in answers} == {name}


@pytest.mark.parametrize("count", [1, 2, 7])
def test_which_ones_are_random_does_not_depend_on_how_many_are_asked_for(count: int) -> None:
    sampler = told(TpeSampler(SPACE, 3, directions=(Direction.MIN,)), raced=True)
    origins = [sampler.ask(range(n, n + count))[0].origin for n in range(40, 80)]
    assert origins == [each.origin for each in sampler.ask(range(40, 80))]
