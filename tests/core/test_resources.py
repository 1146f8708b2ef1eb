"""Resources that a trial asks for, and the placements of its processes."""

from __future__ import annotations

from typing import Any

import pytest

from hptune.core.budget import Device
from hptune.core.resources import Placement, Resources


@pytest.mark.parametrize(
    ("asked", "one", "text"),
    [
        ({}, Resources(), "1 core"),
        ({"processes": 2}, Resources(), "2 processes of 1 core"),
        ({"nodes": 2}, Resources(), "2 processes of 1 core, on 2 nodes"),
        ({"processes": 2, "gpus": 0}, Resources(gpus=0), "2 processes of 1 core"),
        (
            {"processes": 4, "nodes": 2, "cpus": 8, "gpus": 4, "memory_bytes": 10**10},
            Resources(2, 1, 2_500_000_000),
            "4 processes of 2 cores and 1 GPU, 2.5 GB, on 2 nodes",
        ),
    ],
)
def test_amounts_are_totals_and_divided_equally(
    asked: dict[str, Any], one: Resources, text: str
) -> None:
    wanted = Resources(**asked)
    assert wanted.of_one_process == one
    assert str(wanted) == text


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"processes": -1}, "processes is -1: allowed are whole numbers from 1 on"),
        ({"processes": True, "nodes": 2}, "processes is True: allowed"),
        ({"processes": 2, "nodes": 1.5}, "nodes is 1.5: allowed are whole numbers from 1 on"),
        ({"processes": 1, "nodes": 2}, "1 process cannot .* among 2 nodes: ask for 2 processes"),
        ({"processes": 5, "nodes": 2}, "among 2 nodes: ask for 4 or 6 processes"),
        ({"processes": 2, "cpus": 3}, "3 cores .* among 2 processes: ask for 2 or 4 cores"),
        ({"processes": 2, "cpus": 0.5}, r"0\.5 cores .* ask for 2 cores"),
        ({"processes": 4, "gpus": 2}, "2 GPUs .* among 4 processes: ask for 4 GPUs"),
        ({"processes": 2, "gpu_memory_bytes": 5}, "cannot share a GPU"),
        ({"cpus": "two"}, "cpus is 'two': allowed are a part of a core"),
        ({"cpus": float("nan")}, "cpus is nan: allowed are a part of a core"),
        ({"gpus": "1"}, "gpus is '1': allowed are 0, a part of a GPU"),
        ({"memory_bytes": "4GB"}, "memory_bytes is '4GB': allowed are numbers from 0 on"),
    ],
)
def test_amounts_that_do_not_divide_are_refused(asked: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Resources(**asked)


def test_a_placement_lists_its_ranks() -> None:
    plain = Placement("a", (0,), ("0",))
    assert plain.ranks == (plain,)
    others = Placement("a", (1,), ("1",)), Placement("b", (0,), ("0",))
    whole = Placement("a", (0,), ("0",), peers=others)
    assert whole.ranks == (plain, *others)
    assert whole.workers == ("a", "b")
    assert (Device.CORE.of(whole), Device.GPU.of(whole)) == (3, 3)
