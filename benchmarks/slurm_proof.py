"""Disturb a study of Keras trials on a Slurm with accounting, and compare it with a quiet one.

    python benchmarks/slurm_proof.py --trials 40

A study trains small Keras models in Slurm jobs on three nodes of this machine. Meanwhile all of its
jobs are preempted, jobs are requeued, nodes are drained and fail, its master is ended by Ctrl-C and
continued by `hptune resume --detach`, preempted, cancelled, and continued. Every two seconds it is
noted which jobs run, on which nodes trials train, and what `hptune status` says. The same study
then runs undisturbed. Every trial must be complete once, with the same values, and no job may have
run for a minute without a trial, unless `hptune status` or the log said why.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from accounting_slurm import AccountingSlurm

HPTUNE = str(Path(sys.executable).with_name("hptune"))

SLURM_TOML = """
partition = "main"
account = "proj"
qos = "low"
walltime = "00:30:00"
cpus = 4
trials_per_job = 2
interface = "lo"

[master]
qos = "low"
partition = "cpu"
"""

MODEL = """
import keras
from sklearn.datasets import load_digits

OBJECTIVE, EPOCHS = "val_loss", 12

def build_model(hp):
    model = keras.Sequential([
        keras.Input((8, 8, 1)),
        keras.layers.Conv2D(hp.Int("filters", 8, 32, step=8), 3, activation="relu"),
        keras.layers.Flatten(),
        keras.layers.Dropout(hp.Float("dropout", 0.0, 0.5)),
        keras.layers.Dense(10, activation="softmax"),
    ])
    rate = hp.Float("learning_rate", 1e-4, 1e-2, sampling="log")
    optimizer = keras.optimizers.Adam(rate)
    model.compile(optimizer, "sparse_categorical_crossentropy", metrics=["accuracy"])
    return model

def load_data():
    digits = load_digits()
    x, y = digits.images[..., None] / 16.0, digits.target
    return (x[:1400], y[:1400]), (x[1400:], y[1400:])
"""

REASONS = (
    "still reads the model", "hold their cores until --master-grace ends",
    "no worker has joined from job", "it has no worker, so no trial runs",
)  # fmt: skip
"""What `hptune status` says while jobs run without a trial."""

PREEMPTOR = "#!/bin/sh\n#SBATCH --qos=high --exclusive --partition=main --time=5\nsleep {}\n"


def say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", flush=True)


class Study:
    """A study that is run, disturbed and continued."""

    def __init__(self, home: Path, slurm: AccountingSlurm, *, trials: int) -> None:
        self.home = home
        self.study = home / "study"
        self.slurm = slurm
        self.trials = trials
        self.master: subprocess.Popen[bytes] | None = None
        (home / "tmp").mkdir(parents=True)
        (home / "model.py").write_text(MODEL)
        (home / "slurm.toml").write_text(SLURM_TOML)
        self.environment = {
            **os.environ, **slurm.environment, "TMPDIR": str(home / "tmp"),
            "CUDA_VISIBLE_DEVICES": "", "TF_CPP_MIN_LOG_LEVEL": "3",
        }  # fmt: skip

    def start(self) -> subprocess.Popen[bytes]:
        """Start it in the foreground; returns its master."""
        with (self.home / "log.txt").open("ab") as log:
            self.master = subprocess.Popen(
                [HPTUNE, "run", "model.py", "--study", str(self.study), "--search", "random",
                 "--seed", "7", "--trials", str(self.trials), "--gpus-per-trial", "0",
                 "--slurm", "slurm.toml", "--max-jobs", "3"],
                cwd=self.home, env=self.environment, stdin=subprocess.DEVNULL,
                stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip
        return self.master

    def hptune(self, *words: str) -> str:
        """Return what a command says."""
        done = subprocess.run(
            [HPTUNE, *words], cwd=self.home, env=self.environment, text=True, check=False,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        return done.stdout.strip()

    def detach(self) -> None:
        """Continue it as a job; Slurm may show an earlier master for a moment."""
        for _ in range(30):
            said = self.hptune("resume", str(self.study), "--detach")
            say(f"resume --detach: {said}")
            if "The master is Slurm job" in said:
                return
            time.sleep(2)
        raise SystemExit("the study cannot be continued")

    def has_failed(self) -> bool:
        """Return whether the master in the foreground has ended with an error."""
        return self.master is not None and self.master.poll() not in (None, 0)

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        """Return rows of the ledger; none before there is one."""
        if not (self.study / "study.db").exists():
            return []
        uri = f"{(self.study / 'study.db').as_uri()}?mode=ro"
        with contextlib.closing(sqlite3.connect(uri, uri=True, timeout=60)) as ledger:
            return ledger.execute(query).fetchall()

    def complete(self) -> int:
        return len(self.rows("SELECT number FROM trials WHERE state = 'COMPLETE'"))

    def training(self) -> set[str]:
        """Return the nodes on which attempts have begun and not ended."""
        return {node for (node,) in self.rows("SELECT node FROM attempts WHERE ended IS NULL")}

    def results(self) -> dict[int, tuple[Any, ...]]:
        query = "SELECT number, params, state, value, step, metrics FROM trials"
        return {row[0]: row[1:] for row in self.rows(query)}


class Watch(threading.Thread):
    """Notes every two seconds what is held, what trains, and what users are told."""

    def __init__(self, study: Study) -> None:
        super().__init__(daemon=True)
        self._study = study
        self._over = threading.Event()
        self._idle_since: dict[str, float] = {}
        self.idle: list[str] = []
        self._file = (study.home / "watch.txt").open("w")
        self._said = ""

    def run(self) -> None:
        while not self._over.wait(2):
            try:
                self._look()
            except (sqlite3.Error, subprocess.SubprocessError) as error:
                self._note(repr(error))

    def end(self) -> None:
        self._over.set()
        self.join()
        for job in list(self._idle_since):
            self._ended(job)

    def _note(self, text: str) -> None:
        print(time.strftime("%H:%M:%S"), text, file=self._file, flush=True)

    def _look(self) -> None:
        study = self._study
        lines = study.slurm.run("squeue", "-h", "-r", "-o", "%i|%j|%T|%N|%r").splitlines()
        training = study.training()
        self._note(f"training on {sorted(training)}; {'; '.join(lines)}")
        if (said := study.hptune("status", str(study.study))) != self._said:
            self._said = said
            self._note(f"status:\n{said}\n{study.hptune('list', str(study.home))}")
        held = set()
        for line in lines:
            job, name, state, node, _ = line.split("|")
            is_idle = state == "RUNNING" and "workers" in name and node not in training
            if is_idle and not any(reason in said for reason in REASONS):
                held.add(f"{job} on {node}")
        for job in held - self._idle_since.keys():
            self._idle_since[job] = time.time()
        for job in self._idle_since.keys() - held:
            self._ended(job)

    def _ended(self, job: str) -> None:
        since = self._idle_since.pop(job)
        if (seconds := time.time() - since) > 20:
            began = time.strftime("%H:%M:%S", time.localtime(since))
            self.idle.append(f"job {job} ran {seconds:.0f} s without trial or reason from {began}")
            self._note(self.idle[-1])


class Disturbance:
    """What users, administrators and other users' jobs do to a study."""

    def __init__(self, study: Study) -> None:
        self._study = study
        self._slurm = study.slurm

    def _wait(self, condition: Callable[[], bool], what: str, *, seconds: float = 600) -> None:
        until = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > until or self._study.has_failed():
                raise SystemExit(f"waited {seconds:g} s for {what}; see {self._study.home}")
            time.sleep(0.5)

    def _wait_for_training(self, more: int = 2) -> None:
        """Wait until trials have completed since now."""
        before = self._study.complete()
        enough = min(before + more, self._study.trials)
        self._wait(lambda: self._study.complete() >= enough, f"{enough} complete trials")

    def _jobs(self, part: str) -> list[str]:
        shown = self._slurm.run("squeue", "-h", "-r", "-o", "%i %j %T").splitlines()
        split = (line.split() for line in shown)
        return [job for job, name, state in split if part in name and state == "RUNNING"]

    def _wait_for_master(self) -> None:
        self._wait(lambda: bool(self._jobs(".master")), "a master that runs")

    def all_preempted(self, what: str) -> None:
        say(f"preempted: {what}")
        script = self._study.home / "preemptor.sbatch"
        script.write_text(PREEMPTOR.format(15))
        high = [self._slurm.run("sbatch", "--parsable", str(script)).strip() for _ in range(3)]
        self._wait(
            lambda: not set(high) & {each.split()[0] for each in self._slurm.jobs()},
            "the end of the other user's jobs",
        )

    def requeued(self, part: str) -> None:
        self._wait(lambda: bool(self._jobs(part)), f"a job {part}")
        job = self._jobs(part)[0]
        say(f"scontrol requeue {job} ({part})")
        self._slurm.run("scontrol", "requeue", job)

    def interrupted(self) -> None:
        say("Ctrl-C")
        assert self._study.master is not None
        os.killpg(self._study.master.pid, signal.SIGINT)
        self._study.master.wait()
        say(f"the master has ended with {self._study.master.returncode}")
        self._study.master = None

    def cancelled(self) -> None:
        self._wait_for_master()
        job = self._jobs(".master")[0]
        say(f"scancel {job}, the master")
        self._slurm.run("scancel", job)
        self._wait(lambda: not self._jobs(".master"), "the end of the master")
        say("\n" + self._study.hptune("list", str(self._study.home)))

    def node(self, node: str, state: str) -> None:
        say(f"node {node}: {state}")
        self._slurm.run("scontrol", "update", f"NodeName={node}", f"State={state}", "Reason=test")
        self._wait_for_training()
        with contextlib.suppress(subprocess.CalledProcessError):  # it may have come back by itself
            self._slurm.run("scontrol", "update", f"NodeName={node}", "State=RESUME")

    def all_of_them(self) -> None:
        study = self._study
        self._wait_for_training()
        self.all_preempted("all jobs of the study")
        self._wait_for_training()
        self.requeued("workers")
        self._wait_for_training()
        self.interrupted()
        study.detach()
        self._wait_for_master()
        self._wait_for_training()
        self.node("g1", "DRAIN")
        self.all_preempted("all jobs with the master's")
        self._wait_for_training()
        self.cancelled()
        study.detach()
        self._wait_for_training()
        self.node("g2", "DOWN")
        self.requeued(".master")
        self._wait_for_training()
        self._wait(
            lambda: study.complete() == study.trials and not self._slurm.jobs(),
            "the end of the study",
            seconds=1800,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--trials", type=int, default=40)
    said = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # end the daemons, too
    # The shell has commands in the background ignore it, and masters would inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    home = Path(tempfile.mkdtemp(prefix="hp", dir=os.environ.get("TMPDIR", "/tmp")))
    say(f"in {home}")
    slurm = AccountingSlurm()
    try:
        slurm.start()
        disturbed = Study(home / "disturbed", slurm, trials=said.trials)
        idle = disturb(disturbed)
        quiet = Study(home / "quiet", slurm, trials=said.trials)
        quiet.start().wait()
    finally:
        slurm.stop()
    one, other = disturbed.results(), quiet.results()
    different = [number for number in other if one.get(number) != other[number]]
    attempts = disturbed.rows("SELECT outcome, cause, count(*) FROM attempts GROUP BY 1, 2")
    print(json.dumps({
        "trials": len(one), "complete": disturbed.complete(), "attempts": attempts,
        "different": different, "more than 20 s without a trial or a reason": idle,
    }, indent=2))  # fmt: skip
    say(f"kept: {home}")
    if different or len(other) != said.trials or disturbed.complete() != said.trials:
        raise SystemExit("the results differ")


def disturb(study: Study) -> list[str]:
    """Run a study and disturb it; returns which jobs ran without a trial or a reason."""
    study.start()
    watch = Watch(study)
    watch.start()
    try:
        Disturbance(study).all_of_them()
    finally:
        watch.end()
        columns = "--format=jobid%20,jobname%40,state%20,elapsed,nodelist"
        (study.home / "sacct.txt").write_text(study.slurm.run("sacct", "-D", "-X", "-P", columns))
    return watch.idle


if __name__ == "__main__":
    main()
