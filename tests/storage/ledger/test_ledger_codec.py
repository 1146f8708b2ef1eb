"""Events survive the ledger exactly: every kind, every value."""

from __future__ import annotations

import dataclasses
import json
import types
import typing
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hptune.core.attempt import AttemptId, Ending, Report, Usage
from hptune.core.messages import Event, FinishReason, StopRequested
from hptune.core.resources import Resources
from hptune.errors import StudyError
from hptune.storage.ledger.codec import decode_event, dumps, encode_event, loads

free_form = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: (
        st.lists(inner)
        | st.lists(inner).map(tuple)
        | st.dictionaries(st.text() | st.sampled_from(["$float", "$dict", "$escaped"]), inner)
    ),
    max_leaves=8,
)


def values_of(hint: Any) -> st.SearchStrategy[Any]:
    """Return a strategy for values of a type, defaults included; new events need no change here."""
    if hint is object:
        return free_form
    if hint is Resources:
        small, few = st.integers(0, 9), st.integers(1, 3)
        gpus = st.none() | small | st.sampled_from([0.25, 0.5])
        plain = st.builds(Resources, small.map(lambda n: n + 1), gpus, small)
        return plain | st.builds(Resources, gpus=st.none(), processes=st.just(6), nodes=few)
    if hint is AttemptId:
        return st.builds(AttemptId, st.integers(), st.integers(), rank=st.just(0))
    if isinstance(hint, types.UnionType) and Resources in typing.get_args(hint):
        return st.none() | values_of(Resources)
    if dataclasses.is_dataclass(hint):
        hints = typing.get_type_hints(hint)
        made: Any = hint
        fields = {name: values_of(hints[name]) for name in hints}
        if hint in (Report, Ending, Usage):
            counts = [name for name, kind in hints.items() if kind in (int, int | None)]
            fields |= dict.fromkeys(counts, st.integers(0, 2**63 - 1))
        return st.builds(made, **fields)
    match typing.get_origin(hint), typing.get_args(hint):
        case (origin, (item, *_)) if origin is tuple:
            return st.lists(values_of(item), max_size=3).map(tuple)
        case (origin, (key, item)) if origin is Mapping:
            return st.dictionaries(values_of(key), values_of(item), max_size=3)
    return st.from_type(hint)


@pytest.mark.parametrize("kind", typing.get_args(Event), ids=lambda kind: kind.__name__)
@given(data=st.data())
@settings(max_examples=25, deadline=None)
def test_every_event_survives_exactly(kind: type[Event], data: st.DataObject) -> None:
    event = data.draw(values_of(kind))
    name, payload = encode_event(event)
    assert foreign_constants(payload) == set()
    # repr tells 1 from 1.0 and True, and finds NaN equal to itself.
    assert repr(decode_event(name, payload)) == repr(event)


def foreign_constants(payload: str) -> set[str]:
    """Return the constants in a payload that JSON does not have."""
    found: set[str] = set()
    json.loads(payload, parse_constant=found.add)
    return found


@given(free_form)
@settings(deadline=None)
def test_free_form_values_survive_exactly(value: object) -> None:
    assert repr(loads(dumps(value))) == repr(value)


def test_lone_surrogates_survive() -> None:
    event = StopRequested(0.0, FinishReason.INTERRUPTED, "\udcff in a file's name")
    assert decode_event(*encode_event(event)) == event


def test_an_event_of_a_newer_version() -> None:
    with pytest.raises(StudyError, match=r"'Teleported'.*version"):
        decode_event("Teleported", "{}")
    with pytest.raises(StudyError, match="cannot be read"):
        decode_event("StopRequested", '{"at": 1.0}')
