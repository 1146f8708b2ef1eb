"""Racing: which configurations are trained again."""

from __future__ import annotations

import math
import random
import statistics

import hypothesis.strategies as st
import pytest
from hypothesis import given

from hptune.core.racing import KNOWN_FROM, LEAST, SHARE, to_repeat

RESULTS = st.dictionaries(
    st.integers(0, 99),
    st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=6),
    max_size=12,
)


def race(true: list[float], noise: float, *, most: int, room: int = 1) -> dict[int, list[float]]:
    """Return all results of a race of configurations with these true losses."""
    rng = random.Random(0)
    results = {number: [rng.gauss(loss, noise)] for number, loss in enumerate(true)}
    while chosen := to_repeat(results, most=most, room=room):
        for number in chosen:
            results[number].append(rng.gauss(true[number], noise))
    return results


def repeated(results: dict[int, list[float]]) -> int:
    return sum(len(each) - 1 for each in results.values())


@given(RESULTS, st.integers(1, 6), st.integers(0, 9))
def test_no_configuration_is_trained_more_often_than_allowed(
    results: dict[int, list[float]], most: int, room: int
) -> None:
    chosen = to_repeat(results, most=most, room=room)
    assert len(chosen) <= room
    for number in chosen:
        assert len(results[number]) + chosen.count(number) <= most


@given(RESULTS, st.integers(1, 6), st.integers(0, 9))
def test_the_order_of_the_trainings_of_a_configuration_does_not_matter(
    results: dict[int, list[float]], most: int, room: int
) -> None:
    other = {number: [*reversed(each)] for number, each in results.items()}
    assert to_repeat(results, most=most, room=room) == to_repeat(other, most=most, room=room)


@given(
    st.lists(st.floats(0, 1), max_size=60), st.floats(0, 2), st.integers(1, 5), st.integers(1, 9)
)
def test_every_race_ends_within_its_limit(
    true: list[float], noise: float, most: int, room: int
) -> None:
    limit = max(LEAST, math.ceil(SHARE * len(true)))
    assert repeated(race(true, noise, most=most, room=room)) <= limit


@pytest.mark.parametrize("room", [1, 8])
def test_a_clear_leader_is_repeated_until_the_noise_is_known(room: int) -> None:
    results = race([0.0, 9.0, *(50.0 + n for n in range(58))], 0.01, most=5, room=room)
    assert repeated(results) == KNOWN_FROM
    assert {number for number, each in results.items() if len(each) > 1} <= {0, 1, 50}


def test_those_that_are_close_are_repeated_more_often() -> None:
    close = [0.0, 0.01, 0.02]
    results = race([*close, *(50.0 + n for n in range(57))], 1.0, most=9)
    assert repeated(results) == SHARE * 60
    assert all(len(results[number]) == 1 for number in range(3, 60))


def test_a_leader_that_was_lucky_is_found_out() -> None:
    lucky = {0: [-9.0], **{number: [float(number)] for number in range(1, 9)}}
    assert to_repeat(lucky, most=3, room=1) == [0]
    lucky[0] += [5.0, 5.2]
    assert to_repeat(lucky, most=3, room=1) == [1]


def test_the_one_with_fewer_trainings_is_repeated() -> None:
    results = {0: [0.0, 0.1, 0.2, 0.1], 1: [0.1, 0.2, 0.3], 2: [9.0]}
    assert to_repeat(results, most=5, room=1) == [1]
    assert to_repeat(results, most=4, room=9) == [1]
    assert to_repeat(results, most=3, room=9) == []


def test_running_repeats_count() -> None:
    results = {0: [0.0], 1: [0.01], 2: [9.0]}
    assert sorted(to_repeat(results, most=5, room=9)) == [0, 0, 1, 1]


def test_equal_results_need_no_repeats_once_that_is_known() -> None:
    results = race([0.5] * 9, 0.0, most=9)
    assert repeated(results) == KNOWN_FROM
    assert statistics.pvariance(results[0]) == 0.0


@pytest.mark.parametrize("large", [1e200, 1.7e308])
def test_results_may_be_as_large_as_numbers_are(large: float) -> None:
    assert to_repeat({0: [large, -large], 1: [large, large], 2: [0.1]}, most=5, room=1) == [2]


def test_repeats_of_configurations_that_left_the_race_count() -> None:
    results = {number: [float(number)] for number in range(9)}
    assert len(to_repeat(results, most=5, room=99, made=LEAST - 2)) == 2
    assert to_repeat(results, most=5, room=99, made=LEAST) == []


def test_one_configuration_alone_does_not_race() -> None:
    assert to_repeat({}, most=5, room=9) == []
    assert to_repeat({3: [0.5]}, most=5, room=9) == []
