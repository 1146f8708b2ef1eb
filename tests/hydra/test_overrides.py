"""Hydra's overrides become a search space."""

from __future__ import annotations

import shlex
from typing import Any

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from omegaconf import OmegaConf

from hptune.config.reference import SWEEPER, resume_call
from hptune.core.trial import Direction
from hptune.errors import SpaceError
from hptune.hydra.overrides import declare, split, value_in
from hptune.training.hyperparameters import HyperParameters


def parsed(line: str) -> Override:
    return OverridesParser.create().parse_override(line)


@pytest.mark.parametrize(
    ("line", "same"),
    [
        ("x=interval(0, 1)", lambda hp: hp.Float("x", 0.0, 1.0)),
        ("x=interval(-1.5, 1e-3)", lambda hp: hp.Float("x", -1.5, 1e-3)),
        ("x=tag(log, interval(1e-5, 0.1))", lambda hp: hp.Float("x", 1e-5, 0.1, sampling="log")),
        ("x=tag(other, interval(0, 1))", lambda hp: hp.Float("x", 0.0, 1.0)),
        ("x=int(interval(1, 5))", lambda hp: hp.Int("x", 1, 5)),
        ("x=float(int(interval(1, 5)))", lambda hp: hp.Float("x", 1.0, 5.0)),
        ("x=int(tag(log, interval(1, 512)))", lambda hp: hp.Int("x", 1, 512, sampling="log")),
        ("x=range(5)", lambda hp: hp.Int("x", 0, 4)),
        ("x=range(1, 10)", lambda hp: hp.Int("x", 1, 9)),
        ("x=range(1, 10, 4)", lambda hp: hp.Int("x", 1, 9, step=4)),
        ("x=range(1, 12, 4)", lambda hp: hp.Int("x", 1, 9, step=4)),
        ("x=range(10, 0, -3)", lambda hp: hp.Int("x", 1, 10, step=3)),
        ("x=shuffle(range(1, 4))", lambda hp: hp.Int("x", 1, 3)),
        ("x=int(range(1.0, 4.0))", lambda hp: hp.Int("x", 1, 3)),
        ("x=tag(log, range(1, 100))", lambda hp: hp.Int("x", 1, 99, sampling="log")),
        ("x=float(range(1, 4))", lambda hp: hp.Choice("x", [1.0, 2.0, 3.0])),
        ("x=range(0, 1, 0.25)", lambda hp: hp.Choice("x", [0.0, 0.25, 0.5, 0.75])),
        ("x=8,16", lambda hp: hp.Choice("x", [8, 16])),
        ("x=choice(1e-5, 0.5)", lambda hp: hp.Choice("x", [1e-05, 0.5])),
        ("x=sort(3, 1, 2, reverse=true)", lambda hp: hp.Choice("x", [3, 2, 1])),
        ("x=shuffle(choice(3, 1, 2))", lambda hp: hp.Choice("x", [3, 1, 2])),
        ("x=tag(log, choice(1, 2))", lambda hp: hp.Choice("x", [1, 2])),
        ("x=1,0.5", lambda hp: hp.Choice("x", ["1", "0.5"])),
        ("x=null,3", lambda hp: hp.Choice("x", ["null", "3"])),
        ("x=0.5,inf", lambda hp: hp.Choice("x", ["0.5", "inf"])),
        ("x=true,false", lambda hp: hp.Choice("x", ["True", "False"])),
        ("x=adam,sgd", lambda hp: hp.Choice("x", ["adam", "sgd"])),
        ("x='a b',c", lambda hp: hp.Choice("x", ["'a b'", "c"])),
        ("x=[1,2],[3]", lambda hp: hp.Choice("x", ["[1,2]", "[3]"])),
        ("x={a:1},{a:2}", lambda hp: hp.Choice("x", ["{a:1}", "{a:2}"])),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_sweep_is_the_declaration(line: str, same: Any) -> None:
    hp, expected = HyperParameters(), HyperParameters()
    declare(hp, parsed(line), "something else")
    same(expected)
    assert hp.get_config() == expected.get_config()
    value = hp.values["x"]
    if isinstance(value, int | float):  # it is what Hydra reads in the trial
        assert repr(parsed(f"x={value}").value()) == repr(value)


@pytest.mark.parametrize(
    ("line", "own", "default"),
    [
        ("x=interval(0, 1)", 0.5, 0.5),
        ("x=interval(0, 1)", 1, 1.0),
        ("x=interval(0, 1)", 2.0, 0.0),
        ("x=interval(0, 1)", True, 0.0),
        ("x=interval(0, 1)", "0.5", 0.0),
        ("x=range(1, 10)", 3, 3),
        ("x=range(1, 10)", 3.0, 1),
        ("x=8,16", 16, 16),
        ("x=8,16", 32, 8),
        ("x=a,'b c'", "b c", "'b c'"),
        ("x=MIN,MAX", Direction.MAX, "MAX"),
        ("x=1,null", None, "null"),
        ("x=[1],[2,3]", OmegaConf.create([2, 3]), "[2,3]"),
    ],
)
def test_the_configurations_own_value_is_the_default(line: str, own: Any, default: Any) -> None:
    hp = HyperParameters()
    declare(hp, parsed(line), own)
    assert (type(hp.values["x"]), hp.values["x"]) == (type(default), default)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("x=interval(1, 0)", "above the upper bound"),
        ("x=tag(log, interval(0, 1))", "x: "),
        ("x=range(3, 3)", "x=range(3, 3) has no values"),
        ("x=range(1.0, 0.0)", "there are no choices"),
        ("x=tag(log, range(8, 64, 8))", "has steps of 8"),
    ],
)
def test_a_sweep_without_values_is_refused(line: str, words: str) -> None:
    with pytest.raises(SpaceError, match=words.replace("(", r"\(").replace(")", r"\)")):
        declare(HyperParameters(), parsed(line), None)


def test_what_does_not_sweep_is_the_same_in_all_trials() -> None:
    lines = [
        "a=1",
        "b=1,2",
        "b=3",
        "+c=x",
        "~d",
        "e=4",
        "e=interval(0,1)",
        "db@here=a,b",
        "f=[1,2]",
        "g=1,2",
        "++g=3",
    ]
    fixed, searched = split(lines, None)  # type: ignore[arg-type]  # no group has a glob
    assert fixed == ["a=1", "b=3", "+c=x", "~d", "f=[1,2]", "++g=3"]
    assert [each.get_key_element() for each in searched] == ["e", "db@here"]


def test_the_configuration_says_what_it_has_of_a_key_or_a_group() -> None:
    config = OmegaConf.create(
        {
            "a": {"lr": 0.1, "gone": "???", "wrong": "${nothing}"},
            "hydra": {"runtime": {"choices": {"db": "mysql", "db@b": "pg"}}},
        }
    )
    keys = ("a.lr", "+a.lr", "a.gone", "a.wrong", "a.none", "db", "db@b", "+db")
    found = [value_in(config, parsed(f"{key}=1,2")) for key in keys]
    assert found == [0.1, 0.1, None, None, None, "mysql", "pg", "mysql"]


@pytest.mark.parametrize(
    "folder", ["multirun/2026-01-31", "/my runs/größe", "lr=0.1,x", "it's", "1"]
)
@pytest.mark.parametrize("name", ["hptune", "other"])
def test_the_line_that_continues_a_multirun_names_its_folder(folder: str, name: str) -> None:
    command = f"hptune resume {shlex.quote(f'{folder}/{name}')} --timeout 4h"
    _, _, where, limit = shlex.split(resume_call(command, SWEEPER))
    said = folder if name == "hptune" else f"{folder}/{name}"
    assert str(parsed(where).value()) == said
    assert parsed(limit).value() == "4h"
