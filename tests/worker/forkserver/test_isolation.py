"""Isolation of an attempt: it sees its own cores and devices, and no others."""

from __future__ import annotations

import os
import sys
import types
from dataclasses import replace
from typing import Any

import pytest

from attempts import Attempts
from hptune.core.resources import Placement
from hptune.worker.forkserver import isolation
from real_runs import Hptune, trials

CORES = sorted(os.sched_getaffinity(0))

SEES = """
import os, threading

def objective(hp, trial):
    hp.Float("x", 0, 1)
    names = ["OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS",
             "TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS", "CUDA_VISIBLE_DEVICES",
             "ROCR_VISIBLE_DEVICES", "XLA_PYTHON_CLIENT_PREALLOCATE",
             "XLA_PYTHON_CLIENT_MEM_FRACTION"]
    for name in names:
        print(f"{name}={os.environ.get(name)}")
    print("cores", sorted(os.sched_getaffinity(0)), "threads", threading.active_count())
    return 1.0
"""


def test_an_attempt_sees_its_share_of_the_machine(attempts: Attempts) -> None:
    held = Placement("w", tuple(CORES[:2]), ("GPU-b", "1"), gpu_share=0.25)
    log = attempts.run(SEES, placement=held).log
    cores = len(held.cpus)
    for line in (f"OMP_NUM_THREADS={cores}", f"OPENBLAS_NUM_THREADS={cores}",
                 f"MKL_NUM_THREADS={cores}", f"NUMEXPR_NUM_THREADS={cores}",
                 f"TF_NUM_INTRAOP_THREADS={cores}", f"TF_NUM_INTEROP_THREADS={cores}",
                 "CUDA_VISIBLE_DEVICES=GPU-b,1", "XLA_PYTHON_CLIENT_PREALLOCATE=false",
                 "XLA_PYTHON_CLIENT_MEM_FRACTION=0.2500"):  # fmt: skip
        assert line in log.splitlines()
    assert f"cores {CORES[:2]}" in log


def test_an_attempt_on_gpus_of_amd_has_one_variable(attempts: Attempts) -> None:
    held = Placement("w", tuple(CORES[:1]), ("amd:2", "amd:3"))
    lines = attempts.run(SEES, placement=held).log.splitlines()
    assert {"ROCR_VISIBLE_DEVICES=2,3", "CUDA_VISIBLE_DEVICES=None"} <= set(lines)


def test_an_attempt_and_what_it_starts_are_scheduled_as_batch(attempts: Attempts) -> None:
    # tf.data waits for nothing at the end of an epoch on one core if its process is not batch.
    code = """
import os, subprocess, sys

def objective(hp, trial):
    hp.Float("x", 0, 1)
    print("own", os.sched_getscheduler(0) == os.SCHED_BATCH, flush=True)
    subprocess.run([sys.executable, "-c", "import os; print('policy', os.sched_getscheduler(0))"])
    return 1.0
"""
    lines = attempts.run(code).log.splitlines()
    assert {"own True", f"policy {os.SCHED_BATCH}"} <= set(lines)


def test_one_that_shares_a_core_runs_on_any_of_its_workers_and_no_other(attempts: Attempts) -> None:
    shared = Placement("w", (CORES[0],), cpu_share=0.25, floats_on=(*CORES[:1], 100_000))
    log = attempts.run(SEES, placement=shared).log
    assert f"cores {CORES[:1]}" in log
    assert "OMP_NUM_THREADS=1" in log.splitlines()
    floats = replace(shared, floats_on=tuple(CORES))
    assert f"cores {CORES}" in attempts.run(SEES, placement=floats).log


def test_an_attempt_without_a_gpu_sees_none(attempts: Attempts) -> None:
    log = attempts.run(SEES, placement=Placement("w", (CORES[0],))).log
    assert "CUDA_VISIBLE_DEVICES=" in log.splitlines()
    assert "XLA_PYTHON_CLIENT_MEM_FRACTION=None" in log.splitlines()
    (seen,) = [line for line in log.splitlines() if line.startswith("cores")]
    assert len(seen.split("threads")[0].split(",")) == 1


LOOKS = """
import os
import tensorflow as tf

look = tf.config.list_physical_devices

def look_and_complain(kind):
    os.write(2, b"E failed call to cuInit: no device\\nE the driver is too old\\n")
    return look(kind)

tf.config.list_physical_devices = look_and_complain

def objective(hp, trial):
    os.write(2, b"E the trial's own cuInit\\n")
    return float(tf.reduce_sum(tf.fill(3, hp.Float("x", 0.0, 1.0, default=0.5))))
"""


@pytest.mark.tensorflow
def test_tensorflow_finds_no_gpu_without_a_word_where_there_is_to_be_none(
    attempts: Attempts,
) -> None:
    ended = attempts.run(LOOKS, placement=Placement("w", (CORES[0],)))
    assert ended.ending.metrics == {"value": 1.5}
    lines = [line for line in ended.log.splitlines() if line.startswith("E ")]
    assert lines == ["E the driver is too old", "E the trial's own cuInit"]
    assert ended.log.count("cuInit") == 1


@pytest.mark.tensorflow
def test_tensorflow_computes_with_the_threads_of_its_cores(attempts: Attempts) -> None:
    result = attempts.run(
        """
        import os, pathlib
        import keras

        def objective(hp, trial):
            import tensorflow as tf

            def names():
                return [each.joinpath("comm").read_text().strip()
                        for each in pathlib.Path("/proc/self/task").iterdir()]

            before = len(names())
            hp.Float("x", 0, 1)
            model = keras.Sequential([keras.Input((64,)), keras.layers.Dense(64)])
            model.compile("adam", "mse")
            x = tf.random.normal((4096, 64))
            model.fit(x, x, epochs=1, verbose=0)
            computing = [name for name in names() if name.startswith(("tf_Compute", "tf_Eigen"))]
            return {"value": 1.0, "before": before, "computing": len(computing),
                    "cores": len(os.sched_getaffinity(0))}
        """,
        placement=Placement("w", (CORES[0],)),
    )
    assert result.ending.metrics["cores"] == 1
    # Its own, and the one that listens for orders to stop.
    assert result.ending.metrics["before"] == 2
    assert 1 <= result.ending.metrics["computing"] <= 2


def test_two_trials_at_once_never_share_a_core_or_a_gpu(hptune: Hptune) -> None:
    model = hptune.file(
        "model.py",
        """
        import os, pathlib, time

        def objective(hp, trial):
            hp.Float("x", 0, 1)
            trial.report(1, value=1.0)  # the model file is read until here
            cores, gpu = sorted(os.sched_getaffinity(0)), os.environ["CUDA_VISIBLE_DEVICES"]
            held = [pathlib.Path("held", f"core {core}") for core in cores]
            held += [pathlib.Path("held", f"gpu {gpu}")]
            for each in held:
                each.touch(exist_ok=False)   # another trial has it: FileExistsError
            pathlib.Path("seen").joinpath(f"{trial.number}").touch()
            # Until another trial is there, or none can come.
            deadline = time.monotonic() + (30 if len(os.sched_getaffinity(os.getppid())) > 1 else 0)
            while time.monotonic() < deadline and len(os.listdir("held")) < 4:
                if len(os.listdir("seen")) == 8:
                    break
                time.sleep(0.01)
            together = len(os.listdir("held"))
            time.sleep(0.05)
            for each in held:
                each.unlink()
            return {"value": 1.0, "cores": len(cores), "together": together}
        """,
    )
    for name in ("held", "seen"):
        (hptune.directory / name).mkdir()
    ended = hptune(
        "run", model, "--trials", "8", "--study", hptune.study(), "--workers", "2",
        CUDA_VISIBLE_DEVICES="GPU-a,GPU-b", SLURMD_NODENAME="a node without other studies",
    )  # fmt: skip
    assert ended.code == 0, ended.err
    found = trials(hptune.study())
    assert {trial["state"] for trial in found} == {"COMPLETE"}, [t["reason"] for t in found]
    if len(CORES) > 1:
        assert any('"together":4.0' in trial["metrics"] for trial in found)


# --- what needs no GPU to be seen ------------------------------------------------------------


class FakeConfig:
    def __init__(self) -> None:
        self.capped: list[tuple[str, list[Any]]] = []

    def list_physical_devices(self, kind: str) -> list[str]:
        assert kind == "GPU"
        return ["gpu"]

    @staticmethod
    def LogicalDeviceConfiguration(memory_limit: int) -> int:  # noqa: N802 - TensorFlow's name
        return memory_limit

    def set_logical_device_configuration(self, device: str, limits: list[Any]) -> None:
        self.capped.append((device, limits))


def test_frameworks_use_no_more_of_a_shared_gpu_than_was_granted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    config = FakeConfig()
    when_used: list[Any] = []
    fractions: list[tuple[float, int]] = []
    cuda = types.SimpleNamespace(
        _lazy_call=when_used.append,
        set_per_process_memory_fraction=lambda *args: fractions.append(args),
    )
    monkeypatch.setitem(sys.modules, "tensorflow", types.SimpleNamespace(config=config))
    monkeypatch.setitem(sys.modules, "torch", types.SimpleNamespace(cuda=cuda))
    isolation.cap_gpu_memory(Placement("w", (0,), ("0",)))
    assert (config.capped, when_used) == ([], [])
    shared = Placement("w", (0,), ("0",), gpu_share=0.25, gpu_memory_bytes=3 * 2**30)
    isolation.cap_gpu_memory(shared)
    assert config.capped == [("gpu", [3072])]
    assert fractions == []  # not before the device is used
    for call in when_used:
        call()
    assert fractions == [(0.25, 0)]
