"""Which GPUs are found and given, on every kind of node and with every variable of a job.

A framework sees GPUs through a runtime that obeys variables; `gpu_nodes` has what the runtimes of
the vendors do, written from their documentation. The property: two trials never share a device,
and of those that the job has, none is hidden.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

import nvml
from gpu_nodes import Sysfs, cuda, hip, max_1550, mi250x, mi300a, sycl
from hptune.worker import devices
from hptune.worker.gpus import vendor
from hptune.worker.gpus.machine import GIVEN, Gpus, confine

AMD_UUIDS = [f"GPU-{0xABC4 + place:016X}" for place in range(8)]
CUDA_UUIDS = [f"GPU-{place}" for place in range(4)]
VARIABLES = {
    "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES",
    "ZE_AFFINITY_MASK", "ZE_FLAT_DEVICE_HIERARCHY", "ONEAPI_DEVICE_SELECTOR", GIVEN,
}  # fmt: skip


@contextmanager
def on(root: Path, job: Mapping[str, str], *cards: nvml.Card) -> Iterator[Gpus]:
    """Be on a node with these files and NVIDIA GPUs, in a job with these variables."""
    rest = {name: text for name, text in os.environ.items() if name not in VARIABLES}
    driver = nvml.Driver(*cards) if cards else None
    with (
        patch.object(vendor, "ROOT", root),
        patch.dict(os.environ, {**rest, **job}, clear=True),
        patch.dict(sys.modules, {"pynvml": driver}),
    ):
        yield Gpus()


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Make one node of each kind."""
    made = {name: tmp_path_factory.mktemp(name) for name in ("AMD", "Intel", "none")}
    mi250x(made["AMD"])
    max_1550(made["Intel"])
    return made


Runtime = Callable[[Mapping[str, str]], list[Any]]
"""What a framework sees with some variables."""


def check(gpus: Gpus, job: Mapping[str, str], has: list[Any], sees: Runtime) -> None:
    """Check that trials with one GPU each have the job's devices, and that one with all has them.

    Args:
        gpus: The GPUs as hptune finds them.
        job: The variables of the job.
        has: The devices that the job has.
        sees: The runtime.
    """

    def seen(*names: str) -> list[Any]:
        environment = dict(job)
        confine(names, environment)
        return sees(environment)

    each = [seen(name) for name in gpus.names]
    assert all(len(devices) == 1 for devices in each), each
    given = [device for devices in each for device in devices]
    assert sorted(given) == sorted(has)
    assert len(set(given)) == len(given)
    assert sorted(seen(*gpus.names)) == sorted(has)
    assert seen() == []


def some(count: int, least: int = 1) -> st.SearchStrategy[list[int]]:
    return st.lists(st.integers(0, count - 1), min_size=least, max_size=count, unique=True)


def text(numbers: list[int], uuids: list[str] | None = None) -> str:
    return ",".join(uuids[each] if uuids else str(each) for each in numbers)


@given(st.data())
def test_on_amd(nodes: dict[str, Path], data: st.DataObject) -> None:
    job, has = dict[str, str](), list(range(8))
    rocr = data.draw(st.none() | some(8), "devices of ROCr")
    by_uuid = data.draw(st.booleans(), "by UUID")
    second = data.draw(st.sampled_from(["", "HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"]))
    if rocr is not None:
        job["ROCR_VISIBLE_DEVICES"] = text(rocr, AMD_UUIDS if by_uuid else None)
        has = rocr
    if second and rocr is not None and not by_uuid and data.draw(st.booleans(), "repeated"):
        job[second] = text(rocr)  # as batch systems do, whatever the runtime makes of it
    elif second:
        job[second] = text(data.draw(some(len(has)), "devices of HIP"))
        if job[second] != job.get("ROCR_VISIBLE_DEVICES"):
            has = hip(AMD_UUIDS, job)
    with on(nodes["AMD"], job) as gpus:
        check(gpus, job, has, lambda environment: hip(AMD_UUIDS, environment))


@given(chosen=st.none() | some(4), by_uuid=st.booleans(), is_set_for_all=st.booleans())
def test_on_nvidia(
    nodes: dict[str, Path], chosen: list[int] | None, by_uuid: bool, is_set_for_all: bool
) -> None:
    job = dict[str, str]()
    if chosen is not None:
        job["CUDA_VISIBLE_DEVICES"] = text(chosen, CUDA_UUIDS if by_uuid else None)
        if is_set_for_all and not by_uuid:  # Slurm, where it does not know the vendor
            job |= dict.fromkeys(("ROCR_VISIBLE_DEVICES", "ZE_AFFINITY_MASK"), text(chosen))
    cards = [nvml.Card(each, bus=place) for place, each in enumerate(CUDA_UUIDS)]
    with on(nodes["none"], job, *cards) as gpus:
        has = cuda(CUDA_UUIDS, job)
        check(gpus, job, has, lambda environment: cuda(CUDA_UUIDS, environment))


@given(st.data())
def test_on_intel(nodes: dict[str, Path], data: st.DataObject) -> None:
    hierarchy = data.draw(st.sampled_from([None, "FLAT", "COMPOSITE"]))
    job = {} if hierarchy is None else {"ZE_FLAT_DEVICE_HIERARCHY": hierarchy}
    if mask := data.draw(st.none() | some(6), "mask"):
        tiles = st.sampled_from(["", ".0", ".1"] if hierarchy == "COMPOSITE" else [""])
        job["ZE_AFFINITY_MASK"] = ",".join(f"{each}{data.draw(tiles)}" for each in mask)
    selector = data.draw(st.sampled_from([None, "", "opencl:gpu;level_zero:gpu", "numbers"]))
    if selector == "numbers":
        chosen = text(data.draw(some(len(sycl(6, job))), "devices of SYCL"))
        if chosen != job.get("ZE_AFFINITY_MASK"):
            job["ONEAPI_DEVICE_SELECTOR"] = f"level_zero:{chosen}"
    elif selector is not None:
        job["ONEAPI_DEVICE_SELECTOR"] = selector
    with on(nodes["Intel"], job) as gpus:
        check(gpus, job, sycl(6, job), lambda environment: sycl(6, environment))


def test_the_property_can_fail(nodes: dict[str, Path]) -> None:
    """As in tools that set a variable on top of Slurm's, or give numbers of the machine."""
    job = {"ROCR_VISIBLE_DEVICES": "2,3"}
    assert hip(AMD_UUIDS, {**job, "CUDA_VISIBLE_DEVICES": "2"}) == []
    assert hip(AMD_UUIDS, {**job, "HIP_VISIBLE_DEVICES": "1"}) == [3]
    assert sycl(6, {"ZE_AFFINITY_MASK": "2,3", "ONEAPI_DEVICE_SELECTOR": "level_zero:2"}) == []
    with on(nodes["AMD"], job) as gpus, pytest.raises(AssertionError):
        check(gpus, job, [2, 3], lambda _: hip(AMD_UUIDS, {"ROCR_VISIBLE_DEVICES": "2"}))


@pytest.mark.parametrize(
    ("job", "names", "way"),
    [
        ({}, [f"amd:{each}" for each in range(8)], "AMD, by KFD in sysfs"),
        ({"ROCR_VISIBLE_DEVICES": ""}, [], "AMD, by ROCR_VISIBLE_DEVICES"),
        ({"HIP_VISIBLE_DEVICES": "", "CUDA_VISIBLE_DEVICES": "5"}, ["amd:5"],
         "AMD, by CUDA_VISIBLE_DEVICES"),
        ({"HIP_VISIBLE_DEVICES": "4", "CUDA_VISIBLE_DEVICES": "5"}, ["amd:4"],
         "AMD, by HIP_VISIBLE_DEVICES"),
        ({"ROCR_VISIBLE_DEVICES": "6,7", "HIP_VISIBLE_DEVICES": "1"}, ["amd:7"],
         "AMD, by ROCR_VISIBLE_DEVICES and HIP_VISIBLE_DEVICES"),
        ({"CUDA_VISIBLE_DEVICES": "NoDevFiles"}, [], "AMD, by CUDA_VISIBLE_DEVICES"),
        ({GIVEN: "amd:1,amd:2", "ROCR_VISIBLE_DEVICES": "0"}, ["amd:1", "amd:2"],
         "AMD, by ROCR_VISIBLE_DEVICES"),
    ],
)  # fmt: skip
def test_what_a_job_has_and_by_which_way(
    nodes: dict[str, Path], job: dict[str, str], names: list[str], way: str
) -> None:
    with on(nodes["AMD"], job) as gpus:
        assert (list(gpus.names), gpus.way) == (names, way)


@pytest.mark.parametrize(
    ("job", "names"),
    [
        ({"ROCR_VISIBLE_DEVICES": "2,3"}, ["amd:2", "amd:3"]),
        ({"ROCR_VISIBLE_DEVICES": "2,3", "HIP_VISIBLE_DEVICES": "1"}, ["amd:3"]),
        ({"HIP_VISIBLE_DEVICES": "1"}, ["amd:1"]),
        ({"ZE_AFFINITY_MASK": "3,1"}, ["intel:1", "intel:3"]),
        ({"CUDA_VISIBLE_DEVICES": "1"}, ["1"]),
        ({"CUDA_VISIBLE_DEVICES": "1, 1"}, ["1"]),
        ({}, []),
    ],
)
def test_where_nothing_but_variables_tells_of_devices(
    nodes: dict[str, Path], job: dict[str, str], names: list[str]
) -> None:
    with on(nodes["none"], job) as gpus:
        assert list(gpus.names) == names
        assert gpus.total_bytes(gpus.names) == 0
        assert {gpus.identity(each) for each in names} <= {""}


def notes(root: Path, job: dict[str, str]) -> str:
    with on(root, job) as gpus:
        return " | ".join(f"{each.found}; {each.advice}" for each in gpus.notes)


def test_variables_that_another_tool_has_set_against_each_other_are_told(
    nodes: dict[str, Path],
) -> None:
    both = {"ROCR_VISIBLE_DEVICES": "2,3", "CUDA_VISIBLE_DEVICES": "2,3"}
    found = notes(nodes["AMD"], both)
    assert "ROCR_VISIBLE_DEVICES and CUDA_VISIBLE_DEVICES are both 2,3" in found
    assert "unset CUDA_VISIBLE_DEVICES for other programs" in found
    assert notes(nodes["AMD"], dict.fromkeys(both, "0,1")) == ""
    found = notes(nodes["AMD"], {**both, "CUDA_VISIBLE_DEVICES": "1,2"})
    assert "CUDA_VISIBLE_DEVICES is 1,2, which names 1 of the devices here" in found
    assert notes(nodes["AMD"], {"CUDA_VISIBLE_DEVICES": "-1"}) == "", "it hides them on purpose"
    found = notes(nodes["Intel"], {"ZE_AFFINITY_MASK": "0.1"})
    assert "ZE_AFFINITY_MASK is 0.1, but ZE_FLAT_DEVICE_HIERARCHY is FLAT" in found
    composite = {"ZE_AFFINITY_MASK": "0.1", "ZE_FLAT_DEVICE_HIERARCHY": "COMPOSITE"}
    assert notes(nodes["Intel"], composite) == ""


# --- what sysfs tells --------------------------------------------------------------------------

GIB = 2**30


def test_each_die_of_an_mi250x_is_a_device(nodes: dict[str, Path]) -> None:
    with on(nodes["AMD"], {}) as gpus:
        assert len(gpus.names) == 8
        assert gpus.total_bytes(gpus.names) == 64 * GIB
        assert gpus.memory_bytes(("amd:2", "amd:5"), None) == 5 * GIB
        assert gpus.memory_bytes(("amd:2",), {17}) is None
        for pid, held in ((17, 3), (18, 4)):
            Sysfs(nodes["AMD"]).write(f"sys/class/kfd/kfd/proc/{pid}/vram_5006", held)
        assert gpus.memory_bytes(("amd:2",), {17, 18, 19}) == 7
        assert (gpus.is_busy(("amd:0",)), gpus.is_busy(("amd:0", "amd:1"))) == (False, True)
        assert gpus.identity("amd:2") == "5006"


def test_dies_of_other_jobs_are_not_counted(tmp_path: Path) -> None:
    """The kernel refuses to read them, and ROCr numbers those that are left from 0."""
    mi250x(tmp_path)
    (tmp_path / "sys/class/kfd/kfd/topology/nodes/4/properties").unlink()
    with on(tmp_path, {}) as gpus:
        assert len(gpus.names) == 7
        assert gpus.identity("amd:0") == "5005"
    (tmp_path / "dev/kfd").unlink()
    with on(tmp_path, {}) as gpus:
        assert gpus.names == ()


@pytest.mark.parametrize(("partitions", "memory"), [(1, 128 * GIB), (2, 64 * GIB)])
def test_an_mi300a_has_main_memory_and_may_have_partitions(
    tmp_path: Path, partitions: int, memory: int
) -> None:
    mi300a(tmp_path, partitions)
    with on(tmp_path, {}) as gpus:
        assert len(gpus.names) == 4 * partitions
        assert gpus.total_bytes(gpus.names) == memory
        assert len({gpus.identity(each) for each in gpus.names}) == 4 * partitions
        assert gpus.is_busy(gpus.names[-1:])
        assert gpus.cores_near(gpus.names[-1]) == "72-95"


@pytest.mark.parametrize("driver", ["i915", "xe"])
def test_tiles_of_a_max_1550_are_devices_unless_cards_are(tmp_path: Path, driver: str) -> None:
    max_1550(tmp_path, driver)
    with on(tmp_path, {}) as gpus:
        assert gpus.names == tuple(f"intel:{each}" for each in range(12))
        assert gpus.total_bytes(gpus.names) == 64 * GIB
        assert gpus.identity("intel:3") == "0000:2a:00.0 1"
        assert (gpus.memory_bytes(gpus.names, None), gpus.is_busy(gpus.names)) == (None, False)
    with on(tmp_path, {"ZE_FLAT_DEVICE_HIERARCHY": "COMPOSITE"}) as gpus:
        assert len(gpus.names) == 6
        assert gpus.total_bytes(gpus.names) == 128 * GIB
        assert gpus.total_bytes(("intel:1.1",)) == 64 * GIB
        assert gpus.identity("intel:1.1") == "0000:2a:00.0 1"


def test_the_gpu_of_a_desktop_processor_is_used_only_if_a_variable_names_it(tmp_path: Path) -> None:
    """Else a laptop would run one trial at a time, for a device that no framework uses."""
    tree = Sysfs(tmp_path)
    tree.numa("0-15")
    tree.amd(1, 0xC500, 16 * GIB)
    tree.pci("0000:c5:00.0", "0-15", mem_info_vram_total=GIB // 2)
    tree.intel(0, "0000:00:02.0", "0-15", {})
    with on(tmp_path, {}) as gpus:
        assert gpus.names == ()
    with on(tmp_path, {"HIP_VISIBLE_DEVICES": "0"}) as gpus:
        assert gpus.names == ("amd:0",)


def test_a_worker_knows_which_gpus_are_near_its_cores(nodes: dict[str, Path]) -> None:
    """On LUMI the dies are in another order than the NUMA nodes."""
    cores = nodes["AMD"] / "sys/devices/system/node"
    with (
        on(nodes["AMD"], {"ROCR_VISIBLE_DEVICES": "0,1,2,4"}),
        patch.object(devices, "NODES", cores),
        patch.object(devices, "cpus", lambda: tuple(range(64))),
    ):
        found = devices.capacity()
        assert found.near[3] == tuple(range(48, 64))
        assert found.gpus_near == (("amd:4",), ("amd:2",), (), ("amd:0", "amd:1"))
    with (
        on(nodes["AMD"], {}),
        patch.object(devices, "NODES", cores),
        patch.object(devices, "cpus", lambda: (0, 1)),
    ):
        assert devices.capacity().gpus_near == ()


# --- NVIDIA's driver ---------------------------------------------------------------------------


def test_slices_are_devices_with_their_own_memory(nodes: dict[str, Path]) -> None:
    with on(nodes["none"], {}, *nvml.h100_with_slices().cards) as gpus:
        assert gpus.names == ("GPU-a", "MIG-1", "MIG-2")
        assert gpus.total_bytes(gpus.names) == 10 * nvml.GB
        assert gpus.memory_bytes(("MIG-1",), {11}) == nvml.GB
        assert (gpus.is_busy(("MIG-1",)), gpus.is_busy(("GPU-a",))) == (False, True)
        assert any("whether a MIG slice computes" in each.found for each in gpus.notes)
    cards = nvml.h100_with_slices().cards
    with on(nodes["none"], {"CUDA_VISIBLE_DEVICES": "MIG-2"}, *cards) as gpus:
        assert gpus.names == ("MIG-2",)
        assert gpus.total_bytes(gpus.names) == 20 * nvml.GB


def test_unequal_gpus_have_names_that_cannot_be_mistaken(nodes: dict[str, Path]) -> None:
    """CUDA's number 0 is the fastest one, the driver's the first on the bus."""
    cards = nvml.a100_and_v100().cards
    with on(nodes["none"], {}, *cards) as gpus:
        assert gpus.names == ("GPU-v", "GPU-a", "GPU-b")
        assert gpus.total_bytes(("GPU-a",)) == 40 * nvml.GB
    numbers = {"CUDA_VISIBLE_DEVICES": "0,1"}
    with on(nodes["none"], numbers, *cards) as gpus:
        assert gpus.names == ("0", "1")
        assert (gpus.total_bytes(("0",)), gpus.identity("0")) == (0, "")
        assert "set CUDA_DEVICE_ORDER=PCI_BUS_ID" in gpus.notes[0].advice
    for job in ({"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}, {"SLURM_JOB_ID": "7"}):
        with on(nodes["none"], numbers | job, *cards) as gpus:
            assert (gpus.names, gpus.notes) == (("0", "1"), ())
            assert (gpus.total_bytes(("0",)), gpus.identity("1")) == (16 * nvml.GB, "GPU-a")
            assert gpus.total_bytes(("7",)) == 0


def test_a_uuid_may_be_as_short_as_cuda_takes_it(nodes: dict[str, Path]) -> None:
    cards = (nvml.Card("GPU-8932f937-d72c"), nvml.Card("GPU-8f00c4a1-0b11"))
    with on(nodes["none"], {"CUDA_VISIBLE_DEVICES": "GPU-8932f,GPU-8"}, *cards) as gpus:
        short, unclear = gpus.names
        assert (gpus.identity(short), gpus.total_bytes([short])) == (cards[0].uuid, 80 * nvml.GB)
        assert (gpus.identity(unclear), gpus.total_bytes([unclear])) == ("", 0)
