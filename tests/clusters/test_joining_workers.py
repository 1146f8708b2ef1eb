"""Schedulers, workers and studies as processes that come and go, as on several machines."""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import signal
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import IO, Any

import psutil
import pytest

from hptune.core.seeds import training_seed
from in_process import InProcess
from private_slurm import free_ports
from real_runs import Hptune, Started, is_alive, rows, trials, wait_for

STEPS = 6
MODEL = """
import json, os, pathlib, random, time

OBJECTIVE = "score:max"
HERE = pathlib.Path({here!r})

def objective(hp, trial):
    x = hp.Float("x", 0.0, 1.0)
    state, kept = trial.checkpoint_dir / "state.json", [0.0]
    if trial.resumed_from is not None:
        kept = json.loads(state.read_text())[:trial.resumed_from + 1]
    for step in range(len(kept), {steps} + 1):
        kept.append(kept[-1] + x * random.Random(trial.seed + step).random())
        state.write_text(json.dumps(kept))
        trial.report(step, score=kept[-1])
        while step >= 3 and not (HERE / "go").exists():
            if trial.should_stop():
                return None
            time.sleep(0.02)
    return kept[-1]
"""

# Says which GPU it had, and when.
HOLDING = """
import json, os, pathlib, time

OBJECTIVE = "score:max"
HERE = pathlib.Path({here!r})

def objective(hp, trial):
    x = hp.Float("x", 0.0, 1.0)
    record = {{"study": {study!r}, "from": time.time(), "gpu": os.environ["CUDA_VISIBLE_DEVICES"]}}
    trial.report(1, score=x)
    time.sleep(0.3)
    while not (HERE / {gate!r}).exists():
        if trial.should_stop():
            return None
        time.sleep(0.02)
    record["to"] = time.time()
    with (HERE / "holds").open("a") as file:
        file.write(json.dumps(record) + "\\n")
    return x
"""


@dataclass
class RealScheduler:
    """A scheduler, with the arguments to join it and to use it."""

    hptune: Hptune
    started: Started
    address: str

    def worker(self, *arguments: object, **environment: str) -> Started:
        return self.hptune.start("worker", self.address, *arguments, **environment)

    def run(self, model: Path, *arguments: object, study: str = "study") -> Started:
        where = self.hptune.study(study)
        return self.hptune.start(
            "run", model, "--connect", self.address, "--study", where, *arguments
        )

    @property
    def folder(self) -> Path:
        """The folder of its files."""
        (found,) = (
            each.parent
            for each in self.hptune.temporary.glob("dask-hptune-*/owner")
            if each.read_text().split(" ")[2] == str(self.started.pid)
        )
        return found

    def end(self) -> None:
        """End the scheduler and wait until it is gone."""
        self.started.leave()


def open_scheduler(hptune: Hptune, port: int) -> RealScheduler:
    scheduler = hptune.start("scheduler", "--port", port)
    assert scheduler.process.stdout is not None
    found = re.search(r"tls://\S+", scheduler.process.stdout.readline())
    assert found, scheduler.wait()
    return RealScheduler(hptune, scheduler, found[0])


@pytest.fixture
def scheduler(hptune: Hptune) -> Iterator[RealScheduler]:
    # One that a test can open again: no connection of this machine has it meanwhile.
    (port,) = free_ports(1)
    opened = open_scheduler(hptune, port)
    yield opened
    if opened.started.process.poll() is None:
        opened.end()


def listening(hptune: Hptune) -> set[str]:
    """Return the addresses on which the test's processes accept connections."""
    found = []
    for pid in hptune.processes():
        with contextlib.suppress(psutil.NoSuchProcess):
            found += psutil.Process(pid).net_connections()
    return {each.laddr.ip for each in found if each.status == psutil.CONN_LISTEN}


def attempts(study: Path) -> list[dict[str, Any]]:
    if not (study / "study.db").exists():
        return []
    return rows(study, "SELECT * FROM attempts ORDER BY trial, number")


def reached(study: Path, step: int, *, trial: int = 0) -> bool:
    if not (study / "study.db").exists():
        return False
    query = f"SELECT count(*) AS n FROM reports WHERE trial = {trial} AND step >= {step}"
    return bool(rows(study, query)[0]["n"])


def waits(study: Path) -> bool:
    """Return whether an attempt waits at its worker."""
    return any(attempt["reason"].startswith("waits") for attempt in attempts(study))


def model_of(hptune: Hptune, text: str = MODEL, **names: object) -> Path:
    return hptune.file(
        f"{names.get('study', 'model')}.py",
        text.format(here=str(hptune.directory), steps=STEPS, **names),
    )


def read_until(stream: IO[str] | None, words: str) -> None:
    """Read the output of a command until these words come."""
    assert stream is not None
    read = ""
    while words not in read:
        line = stream.readline()
        assert line, f"{words!r} was never said: {read}"
        read += line


def undisturbed(trial: dict[str, Any], *, seed: int) -> float:
    """Return the result of an undisturbed trial of `MODEL`."""
    own = training_seed(seed, trial["number"])
    value = 0.0
    for step in range(1, STEPS + 1):
        value += trial["params"]["x"] * random.Random(own + step).random()
    return value


# The beginning of a script that says when a study has connected to its scheduler.
CONNECTS = """
import distributed, pathlib
from hptune.executors import dask_client

connect = dask_client.connect

def connect_and_say_so(*arguments, **options):
    client = connect(*arguments, **options)
    pathlib.Path("connected").touch()
    return client

dask_client.connect = connect_and_say_so
"""


@pytest.mark.parametrize(
    "when", ["its model is read", pytest.param("it is registered", marks=pytest.mark.slow)]
)
def test_a_scheduler_that_dies_while_a_study_starts_is_one_clean_ending(
    scheduler: RealScheduler, when: str
) -> None:
    # Each time after the study has connected to it.
    kill = (
        "import os, pathlib, time\n"
        "while not pathlib.Path('connected').exists(): time.sleep(0.02)\n"
        f"os.kill({scheduler.started.pid}, 9); time.sleep(1)"
    )
    text = "def objective(hp, trial):\n    return hp.Float('x', 0, 1)\n"
    if when == "its model is read":
        text = f"{kill}\n{text}"
    model = scheduler.hptune.file("model.py", text)
    script = CONNECTS
    if when == "it is registered":
        register = f"lambda *_, **__: exec({kill!r})"
        script += f"distributed.Client.set_metadata = {register}\n"
    arguments = ["run", str(model), "--connect", scheduler.address, "--study", "study"]
    script += f"from hptune.cli import main\nmain({arguments})"
    ended = scheduler.hptune.script(script).wait()
    assert ended.code == 1, ended
    assert "Error: the connection to the Dask scheduler is lost" in ended.err, ended.err
    assert "Traceback" not in ended.err
    is_study = (scheduler.hptune.study() / "study.db").exists()
    assert is_study == (when == "it is registered")
    assert ("`hptune resume" if is_study else "start the study again") in ended.err


def test_a_study_waits_for_workers_uses_who_comes_and_loses_nothing_with_who_goes(
    scheduler: RealScheduler, hptune: Hptune
) -> None:
    model = model_of(hptune)
    arguments = ("--trials", 3, "--seed", 5, "--search", "random")
    run = scheduler.run(model, *arguments)
    read_until(run.process.stderr, "waiting for a worker")
    small = scheduler.worker("--cpus", 1, "--name", "small")
    study = hptune.study()
    wait_for(lambda: reached(study, 3), "the first trial to be in its middle")
    assert len(attempts(study)) == 1, "more trials than the worker has cores"
    large = scheduler.worker("--cpus", 2, "--name", "large")
    wait_for(lambda: len(attempts(study)) == 3, "the worker that came late to have its batch")
    assert listening(hptune) == {"127.0.0.1"}, "others may connect, but the scheduler is local"
    for each in hptune.temporary.iterdir():
        assert not each.stat().st_mode & 0o077, f"other users may enter {each.name}"
    first = attempts(study)[0]
    said = small.leave()
    assert "released" in said
    again = "SELECT * FROM attempts WHERE trial = 0 AND number = 1"
    wait_for(lambda: rows(study, again), "the trial to be placed again")
    (hptune.directory / "go").touch()
    ended = run.wait()
    assert ended.code == 0, ended
    for trial in trials(study):
        assert trial["value"] == undisturbed(trial, seed=5)
    one, two = attempts(study)[:2]
    assert (one["outcome"], two["outcome"]) == ("RELEASED", "FINISHED"), (one, two)
    assert first["worker"] == one["worker"] != two["worker"]
    reports = rows(
        study, "SELECT attempt, min(step) AS step FROM reports WHERE trial = 0 GROUP BY attempt"
    )
    assert [row["step"] for row in reports] == [1, 4], "it did not continue from its checkpoint"
    large.leave()
    left = sorted(each.name.rpartition("-")[0] for each in hptune.temporary.glob("*hptune-*"))
    assert left == ["dask-hptune", "health-hptune"], "others than those of the scheduler"


def test_a_killed_worker_and_a_lost_scheduler_leave_a_study_that_goes_on(
    scheduler: RealScheduler, hptune: Hptune, certificates: Path
) -> None:
    model = model_of(hptune)
    study = hptune.study()
    run = scheduler.run(model, "--trials", 1, "--seed", 5)
    killed = scheduler.worker("--cpus", 1)
    wait_for(lambda: reached(study, 3), "the trial to be in its middle")
    pid = trial_pid(hptune, study)
    killed.kill()
    wait_for(lambda: not is_alive(pid), "the trial to end with its worker")
    # A worker that `dask worker` started.
    plain = hptune.other(
        sys.executable, "-m", "distributed.cli.dask_worker", scheduler.address,
        "--nthreads", "1", "--no-dashboard",
        *(f"--tls-{each}={certificates / 'worker.pem'}" for each in ("ca-file", "cert", "key")),
    )  # fmt: skip
    wait_for(lambda: len(attempts(study)) == 2, "the trial to continue elsewhere")
    os.killpg(plain.pid, signal.SIGTERM)
    plain.wait()
    waits = scheduler.worker("--cpus", 1)
    # Not before it trains there: what is only placed would begin under the next scheduler.
    for said in ("joined", f"study {study}: trial 0 starts with "):
        read_until(waits.process.stdout, said)
    assert len(attempts(study)) == 3
    port = int(scheduler.address.rpartition(":")[2])
    scheduler.started.kill()
    ended = run.wait()
    assert (ended.code, "connection to the Dask scheduler is lost" in ended.err) == (1, True), ended
    assert f"`hptune resume {study}`" in ended.err
    assert "distributed.client" not in ended.err
    # One line each, or one for both if they join at almost the same time.
    assert re.search(r"lost; \d trials? resumes? from (its|their) last checkpoint", ended.err), (
        ended.err
    )
    (hptune.directory / "go").touch()
    again = open_scheduler(hptune, port)
    resumed = hptune("resume", study)
    assert resumed.code == 0, resumed
    assert again.address in resumed.err, "the scheduler is not remembered"
    ends = [attempt["outcome"] for attempt in attempts(study)]
    assert (ends[0], ends[-1], ends.count("FINISHED")) == ("LOST", "FINISHED", 1)
    assert trials(study)[0]["value"] == undisturbed(trials(study)[0], seed=5)
    read_until(waits.process.stdout, "joined")
    waits.leave()
    again.end()


def test_a_scheduler_that_hangs_keeps_no_worker_silent(
    scheduler: RealScheduler, hptune: Hptune
) -> None:
    scheduler.started.process.send_signal(signal.SIGSTOP)
    waits = scheduler.worker("--cpus", 1)
    late = scheduler.worker("--cpus", 1, "--death-timeout", "1s").wait()
    assert late.code == 1
    assert "cannot be reached from this machine (it has not answered yet)" in late.err
    read_until(waits.process.stdout, "it has not answered yet")
    waits.process.send_signal(signal.SIGINT)
    ended = waits.wait()
    assert (ended.code, ended.err) == (0, ""), ended
    scheduler.started.process.send_signal(signal.SIGCONT)


def test_a_worker_is_healthy_wherever_its_files_are(
    scheduler: RealScheduler, hptune: Hptune
) -> None:
    worker = scheduler.worker("--cpus", 1, "--local-directory", hptune.directory / "files")
    read_until(worker.process.stdout, "joined")
    check = [sys.executable, "-P", "-m", "hptune.worker.health"]
    wait_for(
        lambda: not hptune.other(*check).wait().code, "the scheduler and the worker to be healthy"
    )
    scheduler.end()
    read_until(worker.process.stdout, "waiting for a scheduler")
    assert hptune.other(*check).wait().err == "the worker has not joined a scheduler\n"
    worker.leave()


def test_a_scheduler_whose_terminal_is_closed_ends_in_good_order(scheduler: RealScheduler) -> None:
    folder = scheduler.folder
    for _ in range(2):
        scheduler.started.process.send_signal(signal.SIGHUP)
    ended = scheduler.started.wait()
    assert (ended.code, ended.err, folder.exists()) == (0, "", False)


def test_a_worker_leaves_on_the_signal_of_a_batch_system_and_before_its_walltime(
    scheduler: RealScheduler, hptune: Hptune
) -> None:
    model = model_of(hptune)
    study = hptune.study()
    run = scheduler.run(model, "--trials", 1, "--seed", 5)
    starts = f"study {study}: trial 0 starts with "
    signalled = scheduler.worker("--cpus", 1)
    for said in ("joined", starts):
        read_until(signalled.process.stdout, said)
    signalled.process.send_signal(signal.SIGUSR2)
    ended = signalled.wait()
    assert re.search("SIGUSR2.*: trials here are released", ended.out), ended
    assert ended.code == 0
    # A busy machine may not have begun to train when a short walltime is over.
    for walltime in ("12s", "40s", "120s"):
        ended = scheduler.worker("--cpus", 1, "--walltime", walltime).wait()
        assert "; leaves at " in ended.out
        assert re.search("end of the job's walltime.*: trials here are released", ended.out), ended
        assert ended.code == 0
        wait_for(lambda: all(each["outcome"] for each in attempts(study)), "the release")
        if len(attempts(study)) > 1 and attempts(study)[-1]["started"] is not None:
            break
    (hptune.directory / "go").touch()
    scheduler.worker("--cpus", 1)
    assert run.wait().code == 0
    *released, last = [each["outcome"] for each in attempts(study)]
    assert (set(released), last) == ({"RELEASED"}, "FINISHED"), attempts(study)
    assert attempts(study)[-2]["started"] is not None, "no trial ran at the end of a walltime"


def trial_pid(hptune: Hptune, study: Path) -> int:
    events = rows(study, "SELECT payload FROM events WHERE kind = 'AttemptStarted' ORDER BY seq")
    return int(json.loads(events[-1]["payload"])["pid"])


def test_studies_on_one_worker_never_hold_the_same_and_a_dead_one_holds_nothing(
    scheduler: RealScheduler, hptune: Hptune, cli: InProcess
) -> None:
    # Names of its own: a worker that an interrupted run of this test left holds locks.
    gpus = tuple(f"GPU-{os.getpid()}-{each}" for each in "ab")
    worker = scheduler.worker("--cpus", 2, CUDA_VISIBLE_DEVICES=",".join(gpus))
    arguments = ("--trials", 6, "--seed", 1, "--search", "random", "--gpus-per-trial", 1)

    def running(study: str, gate: str, *more: object) -> Started:
        model = model_of(hptune, HOLDING, study=study, gate=gate)
        return scheduler.run(model, *arguments, *more, study=study)

    dead = running("dead", "never", "--master-grace", 0)
    wait_for(lambda: reached(hptune.study("dead"), 1, trial=1), "a study to hold both GPUs")
    first = running("first", "go")
    wait_for(lambda: waits(hptune.study("first")), "the first study to wait for them")
    dead.kill()
    wait_for(lambda: reached(hptune.study("first"), 1), "the first study to run")
    second = running("second", "go")
    wait_for(lambda: waits(hptune.study("second")), "an attempt of the second study to wait")
    status = cli("status", hptune.study("second"))
    assert "waits for cores or GPUs that another study holds" in status.out
    (hptune.directory / "go").touch()
    for run in (first, second):
        assert run.wait().code == 0
    said = worker.leave()
    holds = [json.loads(line) for line in (hptune.directory / "holds").read_text().splitlines()]
    assert len(holds) == 12
    for gpu in gpus:
        here = sorted((h for h in holds if h["gpu"] == gpu), key=lambda hold: hold["from"])
        for one, other in pairwise(here):
            assert one["to"] <= other["from"], "two trials had one GPU at a time"
    # In the order of the worker: masters that stall have nothing there that could wait.
    lines = re.findall(r"study (\S+): (trial \d+) (?:(waits)|starts with .*GPU (\S+))", said)
    overtaken = []
    for at, (study, trial, _, gpu) in enumerate(lines):
        waiting = (study, trial, "waits", "")
        if gpu and waiting in lines[:at]:
            meanwhile = lines[lines.index(waiting) : at]
            others = [who for who, _, _, where in meanwhile if where == gpu and who != study]
            overtaken.append(len(others))
    assert overtaken
    assert max(overtaken) <= 2, f"a study starved: {said}"


def test_a_worker_with_another_version_is_refused_with_both_named(
    scheduler: RealScheduler, hptune: Hptune
) -> None:
    other = hptune.directory / "site" / "hptune-9.9.9.dist-info"
    other.mkdir(parents=True)
    (other / "METADATA").write_text("Metadata-Version: 2.1\nName: hptune\nVersion: 9.9.9\n")
    (other.parent / "sitecustomize.py").write_text(
        "import platform\nplatform.python_version_tuple = lambda: ('3', '99', '1')\n"
    )
    run = scheduler.run(model_of(hptune), "--trials", 1)
    read_until(run.process.stderr, "waiting for a worker")
    first = os.pathsep.join([str(other.parent), os.environ.get("PYTHONPATH", "")])
    ended = scheduler.worker("--cpus", 1, PYTHONPATH=first).wait()
    named = (
        rf"the master has python 3\.{sys.version_info.minor}, this worker has 3\.99; "
        r"the master has hptune \d+\.\d+\S*, this worker has 9\.9\.9"
    )
    assert ended.code == 1, ended
    assert re.search(named, ended.err), ended
    read_until(run.process.stderr, "this worker has 9.9.9")
    run.process.terminate()
    assert run.wait().code == 130


def test_a_scheduler_that_is_not_there_is_said_at_once(cli: InProcess) -> None:
    model = cli.file("model.py", "def objective(hp, trial):\n    return hp.Float('x', 0, 1)\n")
    unreachable = cli("run", model, "--connect", "tls://127.0.0.1:9", "--study", cli.study())
    assert unreachable.code == 1
    assert "no Dask scheduler answers at tls://127.0.0.1:9" in unreachable.err
    assert not cli.study().exists()
    late = cli("worker", "tls://127.0.0.1:9", "--death-timeout", "1s")
    assert (late.code, "waiting for a scheduler" in late.out) == (1, True)
    assert "no scheduler answered" in late.err


def test_a_scheduler_says_why_it_cannot_listen(hptune: Hptune) -> None:
    ended = hptune("scheduler", "--host", "198.51.100.7", "--port", 0)
    assert "port 0: Cannot assign requested address. Choose" in ended.err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("run", "model.py", "--connect", "node1:8786"), "tls://node1:8786"),
        (("run", "model.py", "--connect", "tls://n:1", "--workers", "2"), "workers is 2"),
        (("worker", "nonsense"), "allowed are an address such as tls://node1:8786"),
        (("worker", "tls://n:1", "--cpus", "100000"), "--cpus is 100000, but"),
        (("worker", "tls://n:1", "--gpus", "99"), "--gpus is 99, but"),
    ],
)
def test_what_cannot_be_meant_is_a_usage_error(
    cli: InProcess, arguments: tuple[str, ...], words: str
) -> None:
    cli.file("model.py", "def objective(hp, trial):\n    return hp.Float('x', 0, 1)\n")
    ended = cli(*arguments)
    assert (ended.code, words in ended.err) == (2, True), ended
