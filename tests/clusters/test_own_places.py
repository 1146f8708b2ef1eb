"""Executors and clusters of one's own: named, given in Python, and found again by `resume`."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import pytest

from hptune.core.messages import Suggested, UserRequested
from hptune.core.user_requests import UserAction
from hptune.storage.directory import StudyDirectory
from hptune.storage.ledger import Ledger, LedgerReader
from in_process import InProcess
from real_runs import Hptune, wait_for

PLUGIN = Path(__file__).parents[2] / "examples/plugin/hptune_evolution/workers.py"

MODEL = """
import os, pathlib, time

HERE = pathlib.Path({here!r})

def objective(hp, trial):
    x = hp.Float("x", 0.0, 1.0)
    (HERE / f"ran-{{trial.number}}").touch()
    trial.report(1, score=x)
    while trial.number == 1 and not (HERE / "go").exists():
        if trial.should_stop():
            return None
        time.sleep(0.02)
    return {{"score": x}}
"""

EXECUTOR = """
from hptune.clusters.local import LocalWorkers
from hptune.config.places import ClusterRow
from hptune.core.kinds import whole_number
from hptune.core.table import option
from hptune.executors.joblib import JoblibExecutor

def few(run, cores, gpus, *, most=1):
    return JoblibExecutor(run, cores[:most], gpus) if hasattr(run, "clock") else None

def broken(settings, study):
    return 1 / 0

NODES = (option("nodes", whole_number(1), "the number of nodes"),)
HERE = ClusterRow(
    name="here", summary="here", factory="hptune.clusters.local:LocalWorkers", is_local=True
)
class Again(LocalWorkers):
    was_requeued = True

FAR = ClusterRow(name="far", summary="far", factory=broken, chosen_by="nodes", options=NODES)
"""

CLUSTER = """
from dataclasses import replace
from hptune.clusters.local import LocalWorkers

class Near(LocalWorkers):
    def __init__(self, settings, study, *, metres=1):
        super().__init__(replace(settings, executor="joblib"), study)
        self._metres = metres

    def text(self, layout):
        return f"{self._metres} metres away"
"""


def test_a_cluster_is_named_and_found_again_after_ctrl_c(hptune: Hptune) -> None:
    shutil.copy(PLUGIN, hptune.directory / "worker_processes.py")
    model = hptune.file("model.py", MODEL.format(here=str(hptune.directory)))
    arguments = ("--objective", "score:max", "--trials", 3, "--seed", 1, "--search", "random")
    cluster = ("--cluster", "worker_processes:WorkerProcesses", "--option", "cluster.cores=2")
    run = hptune.start("run", model, *arguments, *cluster, "--study", hptune.study())
    wait_for((hptune.directory / "ran-1").exists, "the second trial to run")
    run.interrupt()
    ended = run.wait()
    assert ended.code == 130, ended
    assert "on at most 1 workers of 2 cores" in ended.err
    wait_for(lambda: not hptune.processes(), "all processes to end")
    (hptune.directory / "go").touch()
    again = hptune("resume", hptune.study())
    assert again.code == 0, again
    assert "on at most 1 workers of 2 cores" in again.err
    assert (hptune.directory / "ran-2").exists()
    wait_for(lambda: not hptune.processes(), "all processes to end")


def test_a_cluster_is_given_in_python_and_stored_with_the_study(
    cli: InProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    cli.file("given_in_python.py", CLUSTER)
    monkeypatch.syspath_prepend(cli.directory)
    ended = cli.script(
        """
        import hptune
        from given_in_python import Near

        def objective(hp, trial):
            return hp.Float("x", 0.0, 1.0)

        own = {"cluster": Near, "options": {"cluster.metres": 2}}
        hptune.Tuner(objective, trials=1, directory="study", seed=1, **own).fit()
        again = hptune.Tuner(objective, trials=2, directory="study", resume=True).fit()
        print(len(again.trials))
        """
    )
    assert ended.code == 0, ended
    assert ended.out.splitlines()[-1] == "2"
    assert ended.err.count("2 metres away") == 2


def test_a_pause_lasts_when_a_batch_system_starts_the_master_again(hptune: Hptune) -> None:
    hptune.file("mine.py", EXECUTOR)
    model = hptune.file("model.py", MODEL.format(here=str(hptune.directory)))
    where = ("--cluster", "mine:Again", "--study", hptune.study())
    assert hptune("run", model, "--objective", "score:max", "--trials", 1, *where).code == 0
    paused = UserRequested(time.time(), "p", UserAction.PAUSE, "ada")
    with Ledger.open(StudyDirectory(hptune.study())) as ledger:
        ledger.append([paused], facts={"ended": None})  # and then its node failed
    (hptune.directory / "go").touch()
    run = hptune.start("resume", hptune.study(), "--trials", 2)
    by = "; paused by ada: no trial starts until hptune resume "
    wait_for(lambda: by in hptune("status", hptune.study()).out, "the next master")
    assert "new trials start again" in hptune("resume", hptune.study()).out
    assert run.wait().code == 0
    kinds = [type(each) for each in LedgerReader(StudyDirectory(hptune.study())).events()]
    assert kinds[::-1].index(Suggested) < kinds[::-1].index(UserRequested), "none before that"


def test_an_executor_of_ones_own_runs_the_trials(cli: InProcess) -> None:
    cli.file("mine.py", EXECUTOR)
    model = cli.file("model.py", MODEL.format(here=str(cli.directory)))
    (cli.directory / "go").touch()
    executor = ("--executor", "mine:few", "--option", "executor.most=1")
    ended = cli("run", model, "--objective", "score:max", "--trials", 2, *executor)
    assert ended.code == 0, ended
    assert "(mine:few)" in ended.err


def test_a_local_cluster_of_ones_own_takes_local_options(cli: InProcess) -> None:
    cli.file("mine.py", EXECUTOR)
    model = cli.file("model.py", MODEL.format(here=str(cli.directory)))
    (cli.directory / "go").touch()
    place = ("--cluster", "mine:HERE", "--workers", 2, "--executor", "joblib")
    study = ("--study", cli.study())
    ended = cli("run", model, "--objective", "score:max", "--trials", 2, *place, *study)
    assert ended.code == 0, ended
    ended = cli("resume", cli.study(), "--trials", 3, "--workers", 1)
    assert ended.code == 0, ended
    said = "--cluster mine:HERE is not used any more, since other workers are asked for"
    assert said in " ".join(ended.err.split())


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--executor", "mine:few", "--option", "executor.mots=1"), "Did you mean most?"),
        (("--executor", "mine:few", "--connect", "tls://a:1"), "give one of them"),
        (("--executor", "mine:few", "--cpus-per-trial", "0.5"), "have whole ones"),
        (("--cluster", "mine:nothing"), "mine has no 'nothing'"),
        (("--cluster", "mine:FAR"), "which needs --option cluster.nodes"),
        (("--cluster", "mine:FAR", "--workers", "2"), "--cluster is 'mine:FAR' and --workers is 2"),
        (("--cluster", "mine:few", "--option", "cluster.nodes=2"), "its options are gpus and most"),
        (("--cluster", "mine:few", "--option", "cluster.gpus=1"), "which is no Cluster"),
        (("--cluster", "mine:broken"), "which failed: ZeroDivisionError"),
        (("--cluster", "allocation"), "--cluster is allocation, but"),
        (
            ("--cluster", "local", "--detach"),
            "--cluster is local; give --slurm, or leave --detach out",
        ),
    ],
)
def test_what_does_not_fit_is_refused_before_anything_is_made(
    cli: InProcess, arguments: tuple[str, ...], words: str
) -> None:
    cli.file("mine.py", EXECUTOR)
    model = cli.file("model.py", MODEL.format(here=str(cli.directory)))
    ended = cli("run", model, *arguments)
    assert ended.code == 2, ended
    assert words in " ".join(ended.err.split())
    assert not (cli.directory / "studies").exists()
