"""Real workers that do not see the study's directory: it is hidden from them by a mount."""

from __future__ import annotations

import json
import random
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from hptune.core.seeds import training_seed
from real_runs import COMMAND, Hptune, Started, rows, trials, wait_for
from requirements import unavailable

STEPS = 6
MODEL = """
import json, pathlib, time

from helper import grown

OBJECTIVE = "score:max"
GATE = pathlib.Path({gate!r})

def objective(hp, trial):
    x = hp.Float("x", 0.0, 1.0)
    state, kept = trial.checkpoint_dir / "state.json", [0.0]
    if trial.resumed_from is not None:
        kept = json.loads(state.read_text())
        print("continues after", len(kept) - 1, flush=True)
    for step in range(len(kept), {steps} + 1):
        kept.append(grown(kept[-1], x, trial.seed + step))
        fresh = state.with_suffix(".new")
        fresh.write_text(json.dumps(kept))
        fresh.replace(state)
        trial.report(step, score=kept[-1])
        while step >= 3 and not GATE.exists():
            if trial.should_stop():
                return None
            time.sleep(0.02)
    return kept[-1]
"""
HELPER = """
import random

def grown(value, x, seed):
    return value + x * random.Random(seed).random()
"""
KERAS = """
import keras
from helper import SIZE

EPOCHS = 2

def load_data():
    import numpy as np
    x = np.random.default_rng(0).normal(size=(64, 4)).astype("float32")
    return (x, x[:, :1]), (x, x[:, :1])

def build_model(hp):
    model = keras.Sequential([keras.layers.Dense(SIZE), keras.layers.Dense(1)])
    model.compile(keras.optimizers.SGD(hp.Float("rate", 1e-3, 1e-1)), "mse")
    return model
"""


class Machines:
    """A scheduler, and workers that do not see the test's directory."""

    def __init__(self, hptune: Hptune, certificates: Path) -> None:
        self.hptune = hptune
        # As copied to another machine: the user's own are hidden, too.
        self.certs = hptune.temporary / "worker.pem"
        shutil.copy(certificates / "worker.pem", self.certs)
        self.scheduler = hptune.start("scheduler", "--port", 0)
        assert self.scheduler.process.stdout is not None
        found = re.search(r"tls://\S+", self.scheduler.process.stdout.readline())
        assert found, self.scheduler.wait()
        self.address = found[0]

    def worker(self, *arguments: object, node: str = "") -> Started:
        """Start a worker, on a machine of another name if one is given."""
        hidden = shlex.quote(str(self.hptune.directory.parent))
        given = ("worker", self.address, "--certs", self.certs, *arguments)
        words = shlex.join(map(str, (COMMAND, *given)))
        renamed = f"echo {node} > /proc/sys/kernel/hostname && " if node else ""
        command = f"{renamed}mount -t tmpfs none {hidden} && cd / && exec {words}"
        return self.hptune.other(
            "unshare", "--map-root-user", "--mount", "--uts", "sh", "-c", command,
        )  # fmt: skip

    def run(self, model: Path, *arguments: object) -> Started:
        study = self.hptune.study()
        return self.hptune.start(
            "run", model, "--connect", self.address, "--study", study, *arguments
        )


@pytest.fixture
def machines(hptune: Hptune, certificates: Path) -> Iterator[Machines]:
    tried = subprocess.run(
        ["unshare", "--map-root-user", "--mount", "mount", "-t", "tmpfs", "none", "/mnt"],
        capture_output=True,
        text=True,
        check=False,
    )
    if tried.returncode:
        unavailable(f"this kernel lends no namespaces: {tried.stderr.strip()}")
    found = Machines(hptune, certificates)
    yield found
    found.scheduler.leave()


def undisturbed(params: dict[str, float], *, number: int, seed: int) -> float:
    """Return the result of an undisturbed trial of `MODEL`."""
    own, value = training_seed(seed, number), 0.0
    for step in range(1, STEPS + 1):
        value += params["x"] * random.Random(own + step).random()
    return value


def test_trials_go_on_elsewhere_after_sigkill_and_sigterm_without_a_shared_directory(
    machines: Machines, hptune: Hptune
) -> None:
    gate, study = hptune.temporary / "go", hptune.study()
    hptune.file("helper.py", HELPER)
    model = hptune.file("model.py", MODEL.format(gate=str(gate), steps=STEPS))
    given = ("--trials", 2, "--seed", 5, "--search", "random", "--cpus-per-trial", 1)
    run = machines.run(model, *given)
    killed, told = machines.worker("--cpus", 1), machines.worker("--cpus", 1)

    def steps(trial: int) -> int:
        path = study / "trials" / str(trial) / "checkpoint" / "state.json"
        return len(json.loads(path.read_text())) - 1 if path.exists() else 0

    wait_for(lambda: steps(0) == steps(1) == 3, "checkpoints at the master")
    last = machines.worker("--cpus", 2)
    killed.kill()
    assert "released" in told.leave()
    query = "SELECT count(*) AS n FROM attempts WHERE number > 0 AND started > 0"
    wait_for(lambda: rows(study, query)[0]["n"] == 2, "both trials to run on the last worker")
    gate.touch()
    ended = run.wait()
    assert ended.code == 0, ended
    assert "files: over the connection" in ended.out + ended.err
    assert "is not visible here; files go over the connection" in last.leave()
    found = trials(study)
    assert [each["state"] for each in found] == ["COMPLETE", "COMPLETE"]
    for each in found:
        expected = undisturbed(each["params"], number=each["number"], seed=5)
        assert each["value"] == pytest.approx(expected)
        log = (study / "trials" / str(each["number"]) / "log.txt").read_text()
        assert log == "continues after 3\n"
    best = json.loads((study / "best" / "best.json").read_text())
    kept = json.loads((study / "best" / "checkpoint" / "state.json").read_text())
    assert kept[-1] == pytest.approx(best["value"]), "the kept files are those of the result"
    outcomes = [each["outcome"] for each in rows(study, "SELECT outcome FROM attempts")]
    assert sorted(outcomes) == ["FINISHED", "FINISHED", "LOST", "RELEASED"]


OF_RANKS = """
import json, pathlib, time

GATE = pathlib.Path({gate!r})

def objective(hp, trial):
    hp.Choice("x", [1])
    state = trial.checkpoint_dir / "state.json"
    done = json.loads(state.read_text()) if trial.resumed_from is not None else 0
    print("begins after", done, flush=True)
    for step in range(done + 1, 6):
        trial.ranks.gather(b"gradients")
        if trial.rank == 0:
            state.write_text(json.dumps(step))
        trial.report(step, value=float(step))
        while step == 3 and not trial.ranks.broadcast(b"open" * GATE.exists()):
            if trial.should_stop():
                return None
            time.sleep(0.02)
    return 5.0
"""


@pytest.mark.slow
def test_ranks_on_nodes_without_a_shared_directory_continue_from_one_checkpoint(
    machines: Machines, hptune: Hptune
) -> None:
    gate, study = hptune.temporary / "go", hptune.study()
    model = hptune.file("model.py", OF_RANKS.format(gate=str(gate)))
    run = machines.run(model, "--trials", 1, "--nodes-per-trial", 2)
    workers = [machines.worker("--cpus", 1, node=f"n{number}") for number in (1, 2)]
    state = study / "trials" / "0" / "checkpoint" / "state.json"
    wait_for(lambda: state.exists() and state.read_text() == "3", "a checkpoint at the master")
    workers[0].kill()
    workers.append(machines.worker("--cpus", 1, node="n3"))
    query = "SELECT count(*) AS n FROM attempts WHERE number > 0 AND started > 0"
    wait_for(lambda: rows(study, query)[0]["n"] == 1, "the trial to run again")
    gate.touch()
    ended = run.wait()
    assert ended.code == 0, ended
    for worker in workers[1:]:
        worker.leave()
    for log in ("log.txt", "log.rank1.txt"):
        found = (study / "trials" / "0" / log).read_text()
        assert found.endswith("begins after 3\n"), (log, found)
    (trial,) = trials(study)
    assert (trial["state"], trial["value"]) == ("COMPLETE", 5.0)
    outcomes = [each["outcome"] for each in rows(study, "SELECT outcome FROM attempts")]
    assert sorted(outcomes) == ["FINISHED", "LOST"]


def test_an_error_for_a_missing_file_names_the_machine(machines: Machines, hptune: Hptune) -> None:
    # The scheduler's machine has the file, and so reads the search space.
    (hptune.directory / "data.csv").write_text("1\n")
    model = hptune.file(
        "model.py",
        f"""
        import pathlib

        def objective(hp, trial):
            x = hp.Float("x", 0, 1)
            pathlib.Path({str(hptune.directory / "data.csv")!r}).read_text()
            return x
        """,
    )
    worker = machines.worker()
    ended = machines.run(model, "--trials", 1).wait()
    worker.leave()
    (trial,) = trials(hptune.study())
    assert ended.code == 1
    assert "data.csv" in ended.out + ended.err
    assert "which does not see the files of the study's machine" in trial["reason"]


@pytest.mark.slow
def test_the_best_model_is_kept_and_can_be_loaded(machines: Machines, hptune: Hptune) -> None:
    hptune.file("helper.py", "SIZE = 3\n")
    model = hptune.file("model.py", KERAS)
    worker = machines.worker("--cpus", 1)
    ended = machines.run(model, "--trials", 2, "--objective", "val_loss").wait(seconds=120)
    worker.leave()
    assert ended.code == 0, ended
    script = (
        f"import hptune; print(hptune.Study({str(hptune.study())!r}).best_model().count_params())"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False, cwd="/"
    )
    assert done.stdout.split()[-1:] == ["19"], done.stderr
