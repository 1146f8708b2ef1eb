from __future__ import annotations

import doctest
import math
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hptune import text
from hptune.core import resources
from hptune.core.resources import Placement


@pytest.mark.parametrize("module", [text, resources])
def test_the_examples_in_the_documentation_hold(module: ModuleType) -> None:
    result = doctest.testmod(module)
    assert result.attempted > 0
    assert result.failed == 0


@given(st.text())
def test_cleaned_text_is_one_printable_line(raw: str) -> None:
    assert text.clean(raw).isprintable()


@given(st.text(), st.integers(min_value=1, max_value=50))
def test_shortened_text_keeps_to_its_limit(raw: str, limit: int) -> None:
    assert len(text.shorten(raw, limit)) <= limit


@given(st.floats(min_value=-1e300, max_value=1e300))
def test_numbers_for_people_are_short_and_close(value: float) -> None:
    for shown in (text.number(value), text.measured(value)):
        assert len(shown) <= 11
        assert math.isclose(float(shown), value, rel_tol=1e-3, abs_tol=1e-300)


def test_infinite_and_missing_values_are_shown() -> None:
    assert text.measured(float("-inf")) == "-inf"
    assert text.number(float("nan")) == "nan"
    assert text.duration(float("inf")) == text.duration(None) == text.NOTHING


def test_gpus_with_long_names_are_counted() -> None:
    placement = Placement("w", cpus=(0,), gpus=("GPU-7c1f", "GPU-99aa"))
    assert text.where("gpu01", placement) == "gpu01 2 GPUs"
