"""Output of sinfo, and sizes of workers, which never exceed the node."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hptune_jobqueue.config import Shape
from hptune_jobqueue.errors import ConfigError
from hptune_jobqueue.nodes import NodeShape, Partition, parse_gpus, parse_sinfo
from hptune_jobqueue.sizing import (
    Need,
    WorkerShape,
    are_nodes_up,
    beside_master,
    choose_worker,
    gpus_of,
    how_many_fit,
    size_worker,
)

GIBIBYTE = 2**30
SINFO = """\
main*|up|infinite|4|8000|(null)|1|idle
main*|up|infinite|4|8000|gpu:small:2|2|mix
main*|up|infinite|4|8000|gpu:small:2|1|down*
gpu|up|1-00:00:00|64|512000+|gpu:a100:4(S:0-1),gpu:h100:1|3|idle
closed|down|n/a|16|64000|(null)|7|drain
"""
SHAPE = Shape(name="s", partition="main", walltime="01:00:00")
NODE = NodeShape(16, 64 * GIBIBYTE, (("a100", 4),))


def test_sinfo_is_understood() -> None:
    main, gpu, closed = parse_sinfo(SINFO)
    assert main.is_default
    assert main.limit_seconds is None
    assert [count for _, count in main.nodes] == [1, 2]
    assert main.gpu_types() == ("small",)
    assert gpu.limit_seconds == 86400
    assert gpu.nodes == ((NodeShape(64, 512000 * 2**20, (("a100", 4), ("h100", 1))), 3),)
    assert (closed.is_up, closed.nodes[0][1]) == (False, 0)
    assert parse_sinfo("slurm_load_partitions: error\n") == ()


@pytest.mark.parametrize(
    ("text", "gpus"),
    [
        ("(null)", ()),
        ("gpu:2", (("", 2),)),
        ("gpu:nvidia_a100_3g.20gb:2", (("nvidia_a100_3g.20gb", 2),)),
        ("craynetwork:4,gpu:tesla:1(IDX:0)", (("tesla", 1),)),
        ("mps:400", ()),
    ],
)
def test_gpus_are_found_among_the_generic_resources(
    text: str, gpus: tuple[tuple[str, int], ...]
) -> None:
    assert parse_gpus(text) == gpus


def test_a_trial_fits_into_a_small_worker_that_takes_it() -> None:
    small = dataclasses.replace(SHAPE, memory=1500 * 10**6)
    worker = size_worker(NODE, Need(memory_bytes=600 * 10**6), small)
    assert worker.trials == 1
    assert worker.for_trials_bytes >= 600 * 10**6
    with pytest.raises(ConfigError, match=r"of which the worker needs 0\.75 GB"):
        size_worker(NODE, Need(memory_bytes=800 * 10**6), small)


def test_each_process_of_a_trial_has_a_gpu_where_there_are_any() -> None:
    pair = Need(cpus=2, gpus=None, processes=2)
    assert how_many_fit(NODE, pair) == 2
    assert how_many_fit(dataclasses.replace(NODE, gpus=()), pair) == 8
    with pytest.raises(ConfigError, match=r"needs 2 cores and 2 GPUs, .* 1 GPU and"):
        size_worker(dataclasses.replace(NODE, gpus=(("a100", 1),)), pair, SHAPE)


def test_a_whole_node_and_a_slice() -> None:
    need = Need(cpus=2, gpus=1)
    assert size_worker(NODE, need, SHAPE) == WorkerShape(8, 4, 64 * GIBIBYTE, 4)
    slice_of_it = dataclasses.replace(SHAPE, trials_per_job=1)
    assert size_worker(NODE, need, slice_of_it) == WorkerShape(2, 1, 16 * GIBIBYTE, 1)


def test_a_share_of_a_gpu() -> None:
    worker = size_worker(NODE, Need(cpus=1, gpus=0.5), SHAPE)
    assert (worker.trials, worker.gpus) == (8, 4)
    worker = size_worker(NODE, Need(cpus=4, gpus=0.3), SHAPE)
    assert (worker.trials, worker.gpus) == (4, 2)


@pytest.mark.parametrize(
    ("said", "need", "cpus"),
    [
        ({}, Need(gpus=1, takes_cores_of_gpus=True), 16),
        ({"trials_per_job": 1}, Need(gpus=1, takes_cores_of_gpus=True), 4),
        (
            {"trials_per_job": 1},
            Need(cpus=2, gpus=None, processes=2, takes_cores_of_gpus=True),
            8,
        ),
        ({"trials_per_job": 1}, Need(gpus=1), 1),
        ({"trials_per_job": 1}, Need(cpus=2, gpus=1, processes=2), 2),
        ({"trials_per_job": 1, "gpus": 2}, Need(gpus=0, takes_cores_of_gpus=True), 1),
        ({"trials_per_job": 1, "cpus": 3}, Need(gpus=1, takes_cores_of_gpus=True), 3),
    ],
)
def test_a_job_has_the_part_of_the_cores_that_falls_to_its_gpus(
    said: dict[str, Any], need: Need, cpus: int
) -> None:
    assert size_worker(NODE, need, dataclasses.replace(SHAPE, **said)).cpus == cpus


def test_memory_that_is_named_counts_and_memory_that_is_not_is_shared() -> None:
    worker = size_worker(NODE, Need(memory_bytes=20 * GIBIBYTE), SHAPE)
    # The worker and the process that trials are forked from need some, too.
    assert (worker.trials, worker.memory_bytes) == (3, 61 * GIBIBYTE)
    assert worker.for_trials_bytes == 60 * GIBIBYTE
    assert size_worker(NODE, Need(memory_bytes=16 * GIBIBYTE), SHAPE).trials == 3
    assert size_worker(NODE, Need(cpus=4), dataclasses.replace(SHAPE, trials_per_job=1)) == (
        WorkerShape(4, 0, 16 * GIBIBYTE, 1)
    )
    assert size_worker(NODE, Need(), dataclasses.replace(SHAPE, memory=0)).memory_bytes == 0


def test_what_the_shape_says_is_what_is_asked_for() -> None:
    said = dataclasses.replace(SHAPE, cpus=12, gpus=3, memory=8 * GIBIBYTE)
    assert size_worker(NODE, Need(cpus=4, gpus=1), said) == WorkerShape(12, 3, 8 * GIBIBYTE, 3)


@pytest.mark.parametrize(
    ("change", "need", "said"),
    [
        ({}, Need(cpus=17), "a trial needs 17 cores and 0 GPUs, but a job in partition main"),
        ({}, Need(gpus=5), "1 core and 5 GPUs"),
        ({}, Need(memory_bytes=10**12), "1 core, 0 GPUs and 1,000 GB"),
        ({"gpu_type": "h100"}, Need(gpus=1), "16 cores, 0 GPUs"),
        ({"cpus": 17}, Need(), "cpus is 17, but a node of partition main has 16"),
        (
            {"memory": 10**11},
            Need(),
            "memory is 100 GB, but a node of partition main has 68.7 GB",
        ),
        ({"gpus": 1}, Need(gpus=2), "1 GPU"),
        ({"trials_per_job": 5}, Need(gpus=1), "trials_per_job is 5, but"),
    ],
)
def test_what_cannot_be_had_is_said(change: dict[str, int], need: Need, said: str) -> None:
    with pytest.raises(ConfigError) as error:
        size_worker(NODE, need, dataclasses.replace(SHAPE, **change))  # type: ignore[arg-type] # mixed
    assert said in str(error.value)


def test_the_nodes_with_most_places_are_chosen() -> None:
    partitions = parse_sinfo(SINFO)
    assert choose_worker(partitions, SHAPE, Need(gpus=1)).gpus == 2
    assert choose_worker(partitions, SHAPE, Need(gpus=0)).trials == 4
    # If the number of GPUs is not specified, a trial takes one if there are any.
    assert choose_worker(partitions, SHAPE, Need(gpus=None)).gpus == 2
    both = dataclasses.replace(SHAPE, partition="main,gpu")
    assert choose_worker(partitions, both, Need(cpus=4, gpus=1)).trials == 5


def test_a_site_may_choose_the_partition() -> None:
    partitions = parse_sinfo(SINFO)
    any_of_them = dataclasses.replace(SHAPE, partition="*", walltime="2-0")
    # Only `main` allows two days.
    assert choose_worker(partitions, any_of_them, Need(gpus=1)).gpus == 2
    day = dataclasses.replace(SHAPE, partition="*", walltime="1-0")
    assert choose_worker(partitions, day, Need(cpus=16, gpus=4)).gpus == 4
    only = tuple(each for each in partitions if each.name == "gpu")
    with pytest.raises(ConfigError, match="but partition gpu allows 1-00:00:00 at most"):
        choose_worker(only, any_of_them, Need())
    with pytest.raises(ConfigError, match="has no nodes"):
        choose_worker([dataclasses.replace(only[0], nodes=())], day, Need())


def test_nodes_that_partitions_share_are_up_once() -> None:
    line = "{}|up|1-00:00:00|8|64000|gpu:2|{}|idle"
    shared = parse_sinfo("\n".join((line.format("long", 1), line.format("short", 1))))
    pair = dataclasses.replace(SHAPE, partition="*", nodes=2)
    worker = choose_worker(shared, pair, Need(gpus=1))
    assert not are_nodes_up(shared, pair, worker)
    one = dataclasses.replace(pair, nodes=1)
    assert are_nodes_up(shared, one, worker)
    for what in ("cpus", "gpus", "memory_bytes"):
        assert not are_nodes_up(shared, one, dataclasses.replace(worker, **{what: 10**12}))
    assert are_nodes_up(parse_sinfo(line.format("long", 2)), pair, worker)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"partition": "gup"}, "there is no partition 'gup'; Slurm has closed, gpu, main"),
        ({"partition": "gpu", "walltime": "2-0"}, "walltime is 2-0, but partition gpu allows"),
        ({"partition": "gpu", "gpu_type": "A100"}, "but partition gpu has a100, h100; write the"),
        ({"gpu_type": "a100"}, "gpu_type is 'a100', but partition main has small"),
        ({"partition": "closed", "gpu_type": "a100"},
         "partition closed has no GPUs; GPUs are in main (small), gpu (a100, h100)"),
        ({"partition": "closed", "gpus": 1}, "; GPUs are in main (small), gpu (a100, h100)"),
    ],
)  # fmt: skip
def test_partitions_and_time_limits_are_checked(change: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigError) as error:
        choose_worker(
            parse_sinfo(SINFO),
            dataclasses.replace(SHAPE, **change),  # type: ignore[arg-type] # mixed
            Need(),
        )
    assert said in str(error.value)


def test_a_need_must_make_sense() -> None:
    wrongs: list[dict[str, Any]] = [
        {"cpus": 0},
        {"gpus": -1.0},
        {"gpus": 1.5},
        {"memory_bytes": -1},
    ]
    for wrong in wrongs:
        with pytest.raises(ValueError, match=r"a trial needs|GPUs are shared"):
            Need(**wrong)


nodes = st.builds(
    NodeShape,
    cpus=st.integers(1, 256),
    memory_bytes=st.integers(1, 4096).map(lambda gigabytes: gigabytes * GIBIBYTE),
    gpus=st.lists(
        st.tuples(st.sampled_from(["", "a100", "h100"]), st.integers(1, 16)),
        max_size=2,
        unique_by=lambda each: each[0],
    ).map(tuple),
)
needs = st.builds(
    Need,
    cpus=st.integers(1, 64),
    gpus=st.one_of(
        st.none(), st.integers(0, 9).map(float), st.sampled_from([0.1, 0.25, 0.3, 0.5, 0.9])
    ),
    memory_bytes=st.one_of(st.just(0), st.integers(1, 512 * GIBIBYTE)),
)
slices = st.one_of(st.none(), st.integers(1, 8))


@given(nodes, needs, slices)
def test_never_more_than_the_node_has_and_never_a_trial_without_its_own(
    node: NodeShape, need: Need, trials_per_job: int | None
) -> None:
    shape = dataclasses.replace(SHAPE, trials_per_job=trials_per_job)
    try:
        worker = size_worker(node, need, shape)
    except ConfigError:
        assert how_many_fit(node, need) < (trials_per_job or 1)
        return
    each = need.gpus_where(node.gpu_count())
    assert worker.trials >= 1
    assert need.cpus * worker.trials <= worker.cpus <= node.cpus
    assert gpus_of(worker.trials, each) <= worker.gpus <= node.gpu_count()
    assert worker.memory_bytes <= node.memory_bytes
    assert need.memory_bytes * worker.trials <= worker.memory_bytes


@given(nodes, needs)
def test_a_whole_node_leaves_nothing_idle_that_one_more_trial_could_use(
    node: NodeShape, need: Need
) -> None:
    try:
        worker = size_worker(node, need, SHAPE)
    except ConfigError:
        return
    each = need.gpus_where(node.gpu_count())
    more = worker.trials + 1
    whole = dataclasses.replace(worker, memory_bytes=node.memory_bytes)
    assert (
        need.cpus * more > node.cpus
        or gpus_of(more, each) > node.gpu_count()
        or (need.memory_bytes and need.memory_bytes * more > whole.for_trials_bytes)
    )


def test_a_study_that_may_use_gpus_never_gets_jobs_without_them_unasked() -> None:
    """Only the node without GPUs has the cores, and such a study would train on it silently."""
    text = "main|up|infinite|64|8000|(null)|1|idle\nmain|up|infinite|4|8000|gpu:2|2|idle\n"
    for shape in (SHAPE, dataclasses.replace(SHAPE, cpus=8)):
        with pytest.raises(ConfigError, match="Only its nodes without GPUs hold a trial; for"):
            choose_worker(parse_sinfo(text), shape, Need(cpus=8, gpus=None))
    on_cores = choose_worker(parse_sinfo(text), SHAPE, Need(cpus=8, gpus=0))
    assert (on_cores.cpus, on_cores.gpus) == (64, 0)
    typed = dataclasses.replace(SHAPE, gpu_type="a100")
    with pytest.raises(ConfigError, match="main has GPUs without a type; leave gpu_type out"):
        choose_worker(parse_sinfo(text), typed, Need(gpus=None))


MASTER = Shape(name="master", partition="main", walltime="01:00:00", memory=2 * GIBIBYTE)


@pytest.mark.parametrize(
    ("nodes", "partition", "cpus"),
    [(1, "main", 15), (2, "main", 16), (1, "other", 16), (0, "main", 15)],
)
def test_jobs_leave_the_master_its_part_of_the_only_node(
    nodes: int, partition: str, cpus: int
) -> None:
    main = Partition("main", True, True, None, ((NODE, nodes),))
    other = Partition("other", False, True, None, ((NODE, 1),))
    master = dataclasses.replace(MASTER, partition=partition)
    beside = beside_master((main, other), SHAPE, master)
    worker = choose_worker(beside, SHAPE, Need())
    assert worker.cpus == cpus
    assert beside[1] == other
    assert beside[0].nodes[0][0].memory_bytes == (62 if cpus == 15 else 64) * GIBIBYTE


def test_a_job_on_all_nodes_leaves_the_master_its_part() -> None:
    main = Partition("main", True, True, None, ((NODE, 2),))
    on_two = dataclasses.replace(SHAPE, nodes=2)
    assert choose_worker(beside_master((main,), on_two, MASTER), on_two, Need(nodes=2)).cpus == 15
