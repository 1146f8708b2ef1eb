"""Comparison of results: goals, constraints, confirmations."""

from __future__ import annotations

import math

import hypothesis.strategies as st
import pytest
from hypothesis import given

from hptune.core.goals import Comparison, Constraint, Goals
from hptune.core.ranking import Ranking
from hptune.core.trial import Direction, Goal, Score, Trial, TrialState

UP, DOWN = Goal("up", Direction.MAX), Goal("down", Direction.MIN)
SMALL = Constraint("size", Comparison.AT_MOST, 10.0)
ONE = Goals((UP,))
TWO = Goals((UP, DOWN))
KEPT = Goals((UP, DOWN), (SMALL,))
SCORES = st.builds(
    Score,
    st.tuples(st.integers(0, 4).map(float), st.integers(0, 4).map(float)),
    st.sampled_from([0.0, 0.0, 0.5, 1.0]),
)


def complete(number: int, *values: float, violation: float = 0.0, origin: str = "t") -> Trial:
    return Trial(
        number,
        {"x": number},
        origin,
        TrialState.COMPLETE,
        value=values[0],
        extra_values=values[1:],
        violation=violation,
    )


def ranked(goals: Goals, *trials: Trial) -> Ranking:
    ranking = Ranking(goals)
    for trial in trials:
        ranking.expect(trial)
    for trial in trials:
        ranking.ended(trial)
    return ranking


def numbers(ranking: Ranking) -> list[int]:
    return [trial.number for trial in ranking.best]


# --- constraints ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sign", "value", "broken_by"),
    [
        ("<", 3.9, 0.0),
        ("<", 5.0, 0.25),
        ("<=", 4.0, 0.0),
        ("<=", 6.0, 0.5),
        (">", 5.0, 0.0),
        (">", 3.0, 0.25),
        (">=", 4.0, 0.0),
        (">=", 2.0, 0.5),
    ],
)
def test_a_constraint_tells_by_how_much_it_is_broken(
    sign: str, value: float, broken_by: float
) -> None:
    assert Constraint("m", Comparison(sign), 4.0).violation(value) == broken_by


@pytest.mark.parametrize("sign", ["<", ">"])
def test_a_value_on_the_bound_breaks_a_strict_constraint_a_little(sign: str) -> None:
    assert 0.0 < Constraint("m", Comparison(sign), 4.0).violation(4.0) < 1e-9


def test_a_bound_of_zero_is_a_bound() -> None:
    assert Constraint("m", Comparison.AT_MOST, 0.0).violation(0.5) == 0.5


def test_a_result_without_a_number_breaks_a_constraint_more_than_any_other() -> None:
    kept, broken, unknown = (KEPT.score({"up": 1.0, "down": 0.0, "size": s})
                             for s in (1.0, 1e9, math.nan))  # fmt: skip
    for better, worse in ((kept, broken), (kept, unknown), (broken, unknown)):
        assert KEPT.weakly_dominates(better, worse)
        assert not KEPT.weakly_dominates(worse, better)


def test_violations_add_up_and_are_told_in_words() -> None:
    goals = Goals((UP,), (SMALL, Constraint("up", Comparison.MORE, 1.0)))
    metrics = {"up": 0.5, "size": 15.0}
    assert goals.metrics == ("up", "size")
    assert goals.score(metrics) == Score((0.5,), 1.0)
    assert goals.broken(metrics) == [
        "size is 15, allowed is <= 10",
        "up is 0.5, allowed is > 1",
    ]
    assert goals.broken({"up": 2.0, "size": 10.0}) == []


# --- better and best --------------------------------------------------------------------------


@given(SCORES, SCORES, SCORES)
def test_covering_is_a_preorder_that_puts_feasible_results_first(
    a: Score, b: Score, c: Score
) -> None:
    assert KEPT.weakly_dominates(a, a)
    if KEPT.weakly_dominates(a, b) and KEPT.weakly_dominates(b, c):
        assert KEPT.weakly_dominates(a, c)
    if not a.violation and b.violation:
        assert KEPT.weakly_dominates(a, b)
        assert not KEPT.weakly_dominates(b, a)


@given(st.lists(SCORES, max_size=12))
def test_the_best_are_those_that_nothing_speaks_against(scores: list[Score]) -> None:
    trials = [complete(n, *s.values, violation=s.violation) for n, s in enumerate(scores)]
    ranking = ranked(KEPT, *trials)
    best = ranking.scores
    assert bool(best) == bool(scores)
    for score in scores:
        assert not KEPT.is_nondominated(score, best)
    for i, one in enumerate(best):
        assert not any(KEPT.weakly_dominates(other, one) for j, other in enumerate(best) if i != j)
    if any(not score.violation for score in scores):
        assert not any(score.violation for score in best)
    assert [score.values[0] for score in best] == sorted(
        (score.values[0] for score in best), reverse=True
    )
    assert ranking.kept == set(numbers(ranking))


def test_of_equal_trials_the_first_to_end_stays() -> None:
    assert numbers(ranked(ONE, complete(3, 0.5), complete(1, 0.5), complete(2, 0.4))) == [3]
    assert numbers(ranked(TWO, complete(3, 1, 1), complete(1, 1, 1), complete(2, 2, 2))) == [2, 3]


def test_the_least_broken_is_the_best_until_one_is_feasible() -> None:
    broken = [complete(0, 9.0, violation=0.5), complete(1, 1.0, violation=0.1)]
    assert numbers(ranked(ONE, *broken)) == [1]
    assert numbers(ranked(ONE, *broken, complete(2, 0.0))) == [2]


# --- confirming -------------------------------------------------------------------------------


def repeat(number: int, of: int, *values: float) -> Trial:
    return complete(number, *values, origin=f"confirm of {of}")


def failed(number: int, of: int) -> Trial:
    return Trial(number, {"x": of}, f"confirm of {of}", TrialState.FAILED)


SEARCHED = [complete(n, value) for n, value in enumerate([0.5, 0.9, 0.8, 0.7])]


def test_the_best_are_wanted_as_often_as_is_missing() -> None:
    ranking = ranked(ONE, *SEARCHED)
    assert [trial.number for trial in ranking.to_confirm(2, 2)] == [1, 1, 2, 2]
    ranking.expect(repeat(4, 1, 0.0))
    assert [trial.number for trial in ranking.to_confirm(2, 2)] == [1, 2, 2]
    assert ranking.to_confirm(0, 2) == []
    assert [trial.number for trial in ranking.to_confirm(9, 1)] == [2, 3, 0]


def test_the_best_mean_of_the_repeats_wins_and_other_values_count_no_more() -> None:
    ranking = ranked(
        ONE,
        *SEARCHED,
        repeat(4, 1, 0.1),
        repeat(5, 1, 0.2),
        repeat(6, 2, 0.7),
        repeat(7, 2, 0.75),
    )
    # Trial 3's value is better than either mean, but it is a single one; and trial 1's own is
    # above what its repeats gave.
    assert numbers(ranking) == [7]
    confirmation = ranking.confirmation(ranking.best[0])
    assert confirmation is not None
    assert confirmation == ranking.confirmation(SEARCHED[2])
    assert math.isclose(confirmation.mean.values[0], 0.725)
    assert math.isclose(confirmation.deviations[0], math.sqrt(2 * 0.025**2))
    assert [trial.number for trial in confirmation.trials] == [2, 6, 7]
    assert [trial.number for trial in confirmation.counted] == [6, 7]


def test_nothing_changes_before_all_repeats_of_one_are_over() -> None:
    ranking = Ranking(ONE)
    for trial in SEARCHED:
        ranking.ended(trial)
    for trial in (repeat(4, 2, 0.8), repeat(5, 2, 0.8)):
        ranking.expect(trial)
    ranking.ended(repeat(4, 2, 0.8))
    assert numbers(ranking) == [1]
    assert ranking.kept == {1, 4}, "its model may be the winner's"
    ranking.ended(repeat(5, 2, 0.8))
    assert numbers(ranking) == [4]
    assert ranking.kept == {4}


def test_the_model_that_is_kept_stays_where_its_configuration_wins() -> None:
    ranking = ranked(ONE, *SEARCHED, repeat(4, 1, 0.95), repeat(5, 1, 0.85))
    assert numbers(ranking) == [1]
    assert ranking.kept == {1}


def test_the_mean_of_large_values_is_finite() -> None:
    ranking = ranked(ONE, *SEARCHED, repeat(4, 1, 1.5e308), repeat(5, 1, 1.5e308))
    assert ranking.scores[0].values == (1.5e308,)


def test_a_configuration_that_fails_when_it_is_repeated_comes_last() -> None:
    one = [repeat(4, 1, 0.9), failed(5, 1)]
    two = [repeat(6, 2, 0.1), repeat(7, 2, 0.1)]
    assert numbers(ranked(ONE, *SEARCHED, *one)) == [1]
    assert numbers(ranked(ONE, *SEARCHED, *one, *two)) == [6]
    assert numbers(ranked(ONE, *SEARCHED, *two, *one)) == [6]


def test_what_could_not_be_repeated_at_all_says_nothing() -> None:
    none = [failed(4, 2), failed(5, 2)]
    assert numbers(ranked(ONE, *SEARCHED, *none)) == [1]
    assert ranked(ONE, *SEARCHED, *none).kept == {1}, "the best model is not thrown away"
    measured = [repeat(6, 1, 0.1), repeat(7, 1, 0.1)]
    assert numbers(ranked(ONE, *SEARCHED, *none, *measured)) == [1]
    assert numbers(ranked(ONE, *SEARCHED, *measured, *none)) == [1]


def test_a_front_is_confirmed_by_its_means() -> None:
    searched = [complete(0, 3, 3), complete(1, 2, 2), complete(2, 1, 1), complete(3, 0, 5)]
    ranking = ranked(TWO, *searched)
    assert [trial.number for trial in ranking.to_confirm(9, 1)] == [0, 1, 2]
    ranking = ranked(TWO, *searched, repeat(4, 0, 1, 3), repeat(5, 1, 4, 2), repeat(6, 2, 1, 1))
    assert [trial.confirms or trial.number for trial in ranking.best] == [1, 2]
    assert [score.values for score in ranking.scores] == [(4, 2), (1, 1)]


def test_feasible_ones_alone_are_confirmed_if_there_are_any() -> None:
    trials = [complete(0, 9.0, violation=0.5), complete(1, 8.0, violation=0.1)]
    assert [t.number for t in ranked(ONE, *trials).to_confirm(2, 1)] == [1, 0]
    assert [t.number for t in ranked(ONE, *trials, complete(2, 0.0)).to_confirm(2, 1)] == [2]


def test_constraints_on_large_numbers_are_written_with_all_digits() -> None:
    exact = Constraint("params", Comparison.AT_MOST, 1_234_567.0)
    assert str(exact) == "params <= 1234567"
    broken = Goals((UP,), (exact,)).broken({"params": 1_234_568.0})
    assert broken == ["params is 1234568, allowed is <= 1234567"]
    loss = Constraint("loss", Comparison.LESS, 0.1)
    assert Goals((UP,), (loss,)).broken({"loss": 1 / 3}) == ["loss is 0.333333, allowed is < 0.1"]
    assert Goals((UP,), (loss,)).broken({"loss": math.inf}) == ["loss is inf, allowed is < 0.1"]
