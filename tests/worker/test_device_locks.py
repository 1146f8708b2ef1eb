"""No GPU of a machine is offered by two workers."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from commands import Commands
from hptune.core.resources import Capacity
from hptune.errors import StudyError, UsageError
from hptune.worker import device_locks, devices
from hptune.worker.dask.offer import WorkerOptions, granted_by, offered
from real_runs import Hptune, Started, wait_for
from requirements import require_root

GPUS = ("GPU-a", "GPU-b", "GPU-c")
WORKER = WorkerOptions("tls://x:1")


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """Hide the workers of other tests on this machine."""
    monkeypatch.setenv("SLURMD_NODENAME", str(tmp_path))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", ",".join(GPUS))
    held: dict[str, device_locks._Lock] = {}
    monkeypatch.setattr(device_locks, "_held", held)
    yield
    for lock in held.values():
        lock.socket.close()


def of_another_process(most: int) -> subprocess.Popen[str]:
    code = f"""
from hptune.worker import device_locks
print(",".join(device_locks.lock_gpus({GPUS!r}, {most})), flush=True)
input()
"""
    return subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


def test_what_another_worker_offers_is_not_offered_again() -> None:
    with of_another_process(2) as other:
        assert other.stdout is not None
        assert other.stdout.readline().strip() == "GPU-a,GPU-b"
        assert device_locks.lock_gpus(GPUS, 3) == ("GPU-c",)
        assert offered(WORKER).capacity.gpus == ("GPU-c",)
        with pytest.raises(UsageError, match="all but 1 of its 3"):
            offered(replace(WORKER, gpus=2))
        other.kill()
    assert device_locks.lock_gpus(GPUS, 2) == ("GPU-a", "GPU-c")
    assert device_locks.lock_gpus(GPUS, 3) == GPUS


def test_a_lock_stays_this_users_however_often_others_look(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "SOMAXCONN", 1)
    assert device_locks.lock_gpus(GPUS, 1) == ("GPU-a",)
    identity = device_locks._seen_here("GPU-a")
    for _ in range(10):
        wait_for(lambda: device_locks._holder(identity) is None, "the lock's holder to be known")
    device_locks.release()
    assert device_locks._holder(identity) == "an unknown user"  # nobody
    assert device_locks.lock_gpus(GPUS, 3) == GPUS


@pytest.mark.parametrize("then", ["listen()", "listen(0)", "getsockname()"])
def test_another_user_cannot_lock_a_gpu(then: str) -> None:
    require_root("start a process of another user")
    identity = device_locks._seen_here("GPU-b")
    stranger = f"""
import os, socket
os.setuid(65534)
lock = socket.socket(socket.AF_UNIX)
lock.bind(chr(0) + "hptune-{identity}")
lock.{then}
waiting = [socket.socket(socket.AF_UNIX) for _ in range(2)]
for each in waiting * ("{then}" == "listen(0)"):
    each.settimeout(0)
    each.connect_ex(chr(0) + "hptune-{identity}")
print("bound", flush=True)
input()
"""
    with subprocess.Popen(
        [sys.executable, "-c", stranger], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "bound\n"
        offer = offered(replace(WORKER, cpus=1))
        assert offer.capacity.gpus == GPUS
        who = "an unknown user" if then != "listen()" else f"user nobody, process {other.pid}"
        assert f"hold locks in your name: GPU-b ({who})" in offer.note
        other.kill()
    device_locks.release()
    assert device_locks.others_locks() == ""
    assert device_locks.lock_gpus(GPUS, 3) == GPUS


def test_a_worker_with_fewer_gpus_than_its_job_asked_for_joins_no_study(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its trials would train on cores, and the run would not show it."""
    monkeypatch.setenv("HPTUNE_WORKER_GPUS", "4")
    with pytest.raises(
        StudyError, match=r"asked for 4 GPUs, but this process can use 3 on .*GPU-a"
    ):
        offered(WORKER)


def test_a_worker_offers_as_large_a_part_of_the_memory_as_of_the_cores(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(devices, "capacity", lambda: Capacity((0, 1, 2, 3), (), 1000))

    def memory(cpus: int | None, memory_bytes: int | None = None) -> int:
        offer = offered(replace(WORKER, cpus=cpus, memory_bytes=memory_bytes))
        return offer.capacity.memory_bytes

    assert (memory(None), memory(4), memory(1)) == (1000, 1000, 250)
    assert (memory(1, 900), memory(None, 300), memory(1, 0)) == (900, 300, 0)
    # So dask-jobqueue writes that a job has no limit.
    assert offered(replace(WORKER, memory_granted_bytes=0)).capacity.memory_bytes == 1000


def test_the_second_worker_that_offers_a_whole_machine_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cores = (0, 1, 2, 3)
    monkeypatch.setattr(devices, "capacity", lambda: Capacity(cores, (), 1000))

    def note(cpus: int | None = None) -> str:
        return offered(replace(WORKER, cpus=cpus)).note

    lock = f"device_locks.lock_core_set({cores})"
    other = f"from hptune.worker import device_locks; {lock}; print(flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", other], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        assert "another worker or study of yours has all cores and all memory" in note()
        assert note(cpus=2) == ""
        process.kill()
    assert note() == note() == ""


def test_a_gpu_is_the_same_by_its_number_and_by_its_uuid(
    commands: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = "".join(f"{i}, {name}, 0, 0, 80000, V, 0\\n" for i, name in enumerate(GPUS))
    commands.make("nvidia-smi", f"printf '{rows}'")
    monkeypatch.setitem(sys.modules, "pynvml", None)
    with of_another_process(2) as other:
        assert other.stdout is not None
        assert other.stdout.readline().strip() == "GPU-a,GPU-b"
        assert device_locks.lock_gpus(("0", "1", "2"), 3) == ("2",)
        assert device_locks.lock_gpus(("2",), 1) == ("2",)
        other.kill()
    study = "another study of this process"
    numbers = ("0", "1", "7")
    assert device_locks.lock_gpus(numbers, 3, study) == numbers, "the last one is unknown"
    device_locks.release(study)
    assert device_locks.lock_gpus(GPUS, 3) == ("GPU-a", "GPU-b")


def test_the_agents_of_one_worker_offer_the_same() -> None:
    assert device_locks.lock_gpus(GPUS, 2) == device_locks.lock_gpus(GPUS, 2) == ("GPU-a", "GPU-b")
    assert device_locks.lock_gpus(GPUS, 1) == ("GPU-a",)
    assert device_locks.lock_gpus((), 3) == ()


def test_two_studies_of_one_process_share_no_gpu() -> None:
    assert device_locks.lock_gpus(GPUS, 2, "one") == ("GPU-a", "GPU-b")
    assert device_locks.lock_core_set((0, 1), "one")
    assert device_locks.lock_gpus(GPUS, 3, "two") == ("GPU-c",)
    assert not device_locks.lock_core_set((0, 1), "two")
    device_locks.release("two")
    with of_another_process(3) as other:
        assert other.stdout is not None
        assert other.stdout.readline().strip() == "GPU-c", "what the first one has stays locked"
        other.kill()
    device_locks.release("one")
    assert device_locks.lock_gpus(GPUS, 3, "two") == GPUS


@pytest.mark.parametrize("name", ["SLURM_JOB_ID", "PBS_JOBID"])
def test_devices_of_another_job_that_have_the_same_names_are_others(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv(name, "7")
    with of_another_process(3) as other:
        assert other.stdout is not None
        assert other.stdout.readline().strip() == ",".join(GPUS)
        monkeypatch.setenv(name, "8")
        assert device_locks.lock_gpus(GPUS, 3) == GPUS
        other.kill()


def test_a_plain_dask_worker_offers_what_its_threads_are_of_the_cores(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    machine = Capacity((0, 1, 2, 3), GPUS, 100)
    monkeypatch.setattr(devices, "capacity", lambda: machine)
    for threads, expected in (
        (1, Capacity((0,), ("GPU-a",), 25)),
        (2, Capacity((0, 1), ("GPU-a", "GPU-b"), 50)),
        (8, machine),
    ):
        worker = SimpleNamespace(name="w", state=SimpleNamespace(nthreads=threads))
        assert granted_by(worker) == expected


HOLDS = """
    import os, time
    from pathlib import Path

    OBJECTIVE = "score:max"

    def objective(hp, trial):
        x = hp.Float("x", 0.0, 1.0)
        trial.report(1, score=x)
        held = Path(trial.checkpoint_dir.parents[2], "held")
        with held.open("a") as file:
            file.write(os.environ["CUDA_VISIBLE_DEVICES"] + " ")
        while not Path(__file__).with_name("go").exists():
            time.sleep(0.05)
        return x
    """


def test_two_runs_on_one_machine_share_no_gpu(hptune: Hptune) -> None:
    model = hptune.file("holds.py", HOLDS)

    def held(name: str) -> set[str]:
        path = hptune.study(name) / "held"
        return set(path.read_text().split()) if path.exists() else set()

    def run(name: str, gpus: str, *more: object) -> Started:
        study = hptune.study(name)
        arguments = (model, "--study", study, "--trials", 3, "--search", "random", *more)
        return hptune.start(
            "run", *arguments, CUDA_VISIBLE_DEVICES=gpus, SLURMD_NODENAME=str(hptune.directory)
        )

    first = run("first", "GPU-a")
    wait_for(lambda: held("first"), "the first study's trial")
    second = run("second", "GPU-a,GPU-b")
    wait_for(lambda: held("second"), "the second study's trial")
    third = run("third", "GPU-a,GPU-b").wait()
    assert third.code == 1
    assert "other studies or workers of yours use GPU-a, GPU-b" in third.err
    assert not hptune.study("third").exists()
    (hptune.directory / "go").touch()
    ended = [each.wait() for each in (first, second)]
    assert [each.code for each in ended] == [0, 0]
    assert (held("first"), held("second")) == ({"GPU-a"}, {"GPU-b"})
    assert "of yours use GPU-a; this one has GPU-b" in ended[1].err
    assert "runs on the same cores" in ended[1].err
    assert "runs on the same cores" not in ended[0].err
    # What a run had is free when it is over.
    last = run("last", "GPU-a,GPU-b", "--gpus-per-trial", 2).wait()
    assert last.code == 0, last.err
    assert held("last") == {"GPU-a,GPU-b"}


def test_tasks_of_one_step_share_the_gpus_that_the_driver_knows(
    commands: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As `srun -n 4 hptune worker` starts them; where it does not, each may see its own GPU 0."""
    monkeypatch.setitem(sys.modules, "pynvml", None)
    monkeypatch.setenv("SLURM_PROCID", "0")
    rows = "".join(f"{i}, {name}, 0, 0, 80000, V, 0\\n" for i, name in enumerate(GPUS))
    commands.make("nvidia-smi", f"printf '{rows}'")
    with of_another_process(2) as other:
        assert other.stdout is not None
        assert other.stdout.readline().strip() == "GPU-a,GPU-b"
        monkeypatch.setenv("SLURM_PROCID", "1")
        assert device_locks.lock_gpus(("0", "1", "2", "GPU-x"), 4) == ("2", "GPU-x")
        other.kill()
