"""Resources of a trial: measurement decides those that are not specified, and no others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

import pytest

from hptune.clusters.layout import fitting, resolve_layout, trial_resources
from hptune.config.asked import Asked, asked
from hptune.config.settings import StudySettings
from hptune.core.resources import Amount, Capacity, Resources
from hptune.core.scheduling.cluster import ClusterState
from hptune.errors import UsageError
from hptune.user_code.source import ObjectiveSource, SourceKind
from hptune.worker.devices import share

MACHINE = Capacity((0, 1, 2, 3), ("A",), 10**10)
CPUS, GPUS, MEMORY = Amount


def request(**said: Any) -> Asked:
    source = ObjectiveSource(SourceKind.FILE, "model.py")
    return asked(StudySettings(source=source, working_directory=".", **said))


@pytest.mark.parametrize(
    ("said", "file", "measured"),
    [
        ({}, {}, (CPUS, GPUS, MEMORY)),
        ({"pack": "off"}, {}, ()),
        ({"executor": "joblib"}, {}, ()),
        ({"cpus_per_trial": 1}, {}, (GPUS, MEMORY)),
        ({"workers": 2}, {}, (GPUS, MEMORY)),
        ({"gpus_per_trial": 0}, {}, (CPUS, MEMORY)),
        ({"memory_per_trial_bytes": 10**9}, {}, (CPUS, GPUS)),
        ({}, {"cpus": 2}, (GPUS, MEMORY)),
        ({}, {"gpu_memory_bytes": 10**9}, (CPUS, MEMORY)),
    ],
)
def test_what_was_said_is_not_measured(
    said: Mapping[str, Any], file: Mapping[str, int], measured: tuple[Amount, ...]
) -> None:
    assert resolve_layout(request(**said), {"RESOURCES": file}, MACHINE).measured == measured


def test_a_part_of_a_core() -> None:
    shape = resolve_layout(request(cpus_per_trial=0.5), {}, MACHINE)
    assert (shape.resources.cpus, shape.at_once) == (0.5, 1)
    with pytest.raises(UsageError, match="the workers of --executor joblib have whole ones"):
        resolve_layout(request(cpus_per_trial=0.5, executor="joblib"), {}, MACHINE)


@pytest.mark.parametrize(
    ("said", "file", "at_once", "each"),
    [
        ({}, {}, 2, "8 cores and 1 GPU"),
        ({"gpus_per_trial": 0.25}, {}, 8, "2 cores and 0.25 GPUs"),
        ({"gpus_per_trial": 2}, {}, 1, "16 cores and 2 GPUs"),
        ({"cpus_per_trial": 3}, {}, 2, "3 cores and 1 GPU"),
        ({"gpus_per_trial": 0}, {}, 16, "1 core"),
        ({"processes_per_trial": 2}, {}, 1, "2 processes of 8 cores and 1 GPU"),
        ({"workers": 4}, {}, 4, "4 cores and 1 GPU"),
        ({"workers": 4, "gpus_per_trial": 1}, {}, 2, "4 cores and 1 GPU"),
        ({"workers": 1, "gpus_per_trial": 2}, {}, 1, "16 cores and 2 GPUs"),
        ({"workers": 2, "cpus_per_trial": 2, "gpus_per_trial": 0.5}, {}, 4, "2 cores and 0.5 GPUs"),
        ({}, asdict(Resources(gpus=1)), 2, "8 cores and 1 GPU"),
        ({}, asdict(Resources(cpus=1, gpus=1)), 2, "1 core and 1 GPU"),
    ],
)
def test_gpus_limit_what_runs_at_once(
    said: Mapping[str, Any], file: Mapping[str, Any], at_once: int, each: str
) -> None:
    machine = Capacity(tuple(range(16)), ("A", "B"))
    layout = resolve_layout(request(**said), {"RESOURCES": file}, machine)
    assert (layout.at_once, str(layout.usual)) == (at_once, each)


@pytest.mark.parametrize(
    ("trial", "count"),
    [
        (Resources(), 2),
        (Resources(gpus=0), 8),
        (Resources(cpus=2, gpus=0, memory_bytes=6 * 10**9), 2),
        (Resources(gpus=0.4), 4),
        (Resources(cpus=0.3, gpus=0), 24),
        (Resources(processes=2), 1),
        (Resources(processes=4), 0),
        (Resources(memory_bytes=17 * 10**9), 0),
    ],
)
def test_as_many_trials_fit_as_the_engine_places(trial: Resources, count: int) -> None:
    has = Capacity(tuple(range(8)), ("A", "B"), 16 * 10**9)
    assert fitting(trial, [has]) == count
    places = ClusterState()
    places.add("w", "here", has)
    assert places.free_slots(trial, at_most=100) == count


def test_memory_limits_what_runs_at_once() -> None:
    wanted = {"memory_per_trial_bytes": 4 * 10**9, "gpus_per_trial": 0}
    assert resolve_layout(request(**wanted), {}, MACHINE).at_once == 2
    assert resolve_layout(request(**wanted, workers=2), {}, MACHINE).at_once == 2
    refusal = r"4 GB of memory, but each of 3 workers has 3\.33 GB; ask for less or fewer workers"
    with pytest.raises(UsageError, match=refusal):
        resolve_layout(request(**wanted, workers=3), {}, MACHINE)


@pytest.mark.parametrize(
    ("said", "machine", "workers"),
    [
        ({}, Capacity((0, 1, 2, 3)), [(0,), (1,), (2,), (3,)]),
        ({"processes_per_trial": 2}, Capacity((0, 1, 2, 3)), [(0, 1), (2, 3)]),
        ({"gpus_per_trial": 2}, Capacity((0, 1, 2, 3), ("A", "B", "C", "D")), [(0, 1), (2, 3)]),
        ({"gpus_per_trial": 2, "cpus_per_trial": 1}, Capacity((0, 1, 2, 3), ("A", "B")), [(0,)]),
        ({"gpus_per_trial": 2}, Capacity((0, 1, 2, 3), ("A", "B", "C")), [(0, 1, 2, 3)]),
        ({"gpus_per_trial": 0.5}, Capacity((0, 1, 2, 3), ("A", "B")), [(0, 1), (2, 3)]),
        ({"processes_per_trial": 2}, Capacity((0, 1, 2, 3), ("A", "B")), [(0, 1, 2, 3)]),
        ({"gpus_per_trial": 0}, Capacity((0, 1), ("A",)), [(0,), (1,)]),
        ({"memory_per_trial_bytes": 6 * 10**9}, Capacity((0, 1), (), 10**10), [(0,)]),
    ],
)
def test_each_joblib_worker_has_what_a_trial_needs(
    said: Mapping[str, Any], machine: Capacity, workers: list[tuple[int, ...]]
) -> None:
    layout = resolve_layout(request(executor="joblib", **said), {}, machine)
    assert layout.cores == workers
    places = ClusterState()
    for index, cores in enumerate(layout.cores):
        has = replace(share(machine, index, len(layout.cores)), cpus=cores)
        places.add(f"w{index}", "here", has)
    assert places.free_slots(layout.resources, at_most=100) >= len(workers)


@pytest.mark.parametrize("amount", [0, -1, 1.5, "two"])
def test_what_makes_no_sense(amount: Any) -> None:
    with pytest.raises(UsageError, match=r"--cpus-per-trial is .*allowed are whole numbers from 1"):
        request(cpus_per_trial=amount)
    with pytest.raises(UsageError, match="--pack is 'on'; allowed are auto and off"):
        request(pack="on")


@pytest.mark.parametrize(
    ("said", "file", "wanted"),
    [
        ({"processes_per_trial": 2}, {}, Resources(processes=2)),
        ({"processes_per_trial": 2, "cpus_per_trial": 4}, {}, Resources(4, processes=2)),
        ({"processes_per_trial": 2, "workers": 1}, {}, Resources(4, processes=2)),
        ({"processes_per_trial": 3, "workers": 1}, {}, Resources(3, processes=3)),
        ({"processes_per_trial": 2}, {"cpus": 1}, Resources(processes=2)),
        ({}, {"processes": 2, "memory_bytes": 8}, Resources(memory_bytes=8, processes=2)),
        ({"processes_per_trial": 4}, {"processes": 2}, Resources(processes=4)),
    ],
)
def test_a_trial_of_several_processes_has_a_core_for_each_and_is_not_packed(
    said: Mapping[str, Any], file: Mapping[str, int], wanted: Resources
) -> None:
    machine = replace(MACHINE, gpus=())
    layout = resolve_layout(request(**said), {"RESOURCES": file}, machine)
    assert (layout.resources, layout.measured) == (wanted, ())
    assert layout.at_once == 4 // int(wanted.cpus)


@pytest.mark.parametrize(
    ("said", "file", "one"),
    [
        ({}, {}, Resources()),
        ({"workers": 2}, {}, Resources()),
        ({}, {"cpus": 2, "processes": 2, "gpus": 2, "nodes": 2}, Resources()),
        ({}, {"cpus": 4, "memory_bytes": 8}, Resources(4, memory_bytes=8)),
        (
            {"cpus_per_trial": 2, "memory_per_trial_bytes": 10**9},
            {"cpus": 4},
            Resources(2, None, 10**9),
        ),
        ({}, {"gpus": 0}, Resources(gpus=0)),
        ({"gpus_per_trial": 0}, {"gpus": 2}, Resources(gpus=0)),
        ({"processes_per_trial": None, "gpus_per_trial": "auto"}, {"gpus": 0}, Resources()),
    ],
)
def test_a_trial_whose_devices_are_chosen_holds_the_rest_of_what_was_asked_for(
    said: Mapping[str, Any], file: Mapping[str, int], one: Resources
) -> None:
    chosen = request(**{"processes_per_trial": "auto", **said})
    layout = resolve_layout(chosen, {"RESOURCES": file}, MACHINE)
    assert (layout.resources, layout.measured) == (one, ())


def test_a_trial_of_several_nodes_has_a_process_on_each() -> None:
    elsewhere = Capacity(tuple(range(1_000)))

    def resources(said: Mapping[str, Any], file: Mapping[str, int] | None = None) -> Resources:
        return trial_resources(request(**said), file, elsewhere, is_certain=False)

    assert resources({"nodes_per_trial": 2}) == Resources(nodes=2)
    four = Resources(gpus=4, processes=4, nodes=2)
    assert resources({"processes_per_trial": 4}, {"nodes": 2, "gpus": 4}) == four


@pytest.mark.parametrize(
    ("said", "error"),
    [
        ({"processes_per_trial": 2}, "2 processes takes a GPU .* machine's are: A; .*-per-trial 0"),
        ({"nodes_per_trial": 2}, "2 nodes, but all workers are on this machine; use those of"),
        ({"processes_per_trial": 5}, "a trial asks for 5 cores, but this machine has 4"),
        (
            {"processes_per_trial": 2, "cpus_per_trial": 3},
            "of a trial, 3 cores cannot be divided .*: ask for 2 or 4 cores",
        ),
        (
            {"processes_per_trial": 2, "gpus_per_trial": 1},
            "of a trial, 1 GPU cannot be divided .*: ask for 2 GPUs",
        ),
    ],
)
def test_processes_that_can_never_run(said: Mapping[str, Any], error: str) -> None:
    with pytest.raises(UsageError, match=error):
        resolve_layout(request(**said), {}, MACHINE)


def test_workers_that_share_out_too_few_gpus() -> None:
    machine = Capacity((0, 1, 2, 3), ("A", "B"))
    said = {"workers": 2, "gpus_per_trial": 2}
    with pytest.raises(UsageError, match=r"are: A, B .*; each of 2 workers gets 1; ask for fewer"):
        resolve_layout(request(**said), {}, machine)
    three = replace(machine, gpus=("A", "B", "C"))  # one of the workers has two
    assert resolve_layout(request(**said), {}, three).at_once == 1
