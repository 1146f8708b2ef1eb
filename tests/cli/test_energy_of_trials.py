"""The energy of trials in whole studies, by counters that the trials themselves serve."""

from __future__ import annotations

import csv
import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from energy_counters import EnergyCounters
from hptune.master import workforce
from hptune.worker.gpus import vendor
from hptune.worker.monitoring.energy import EnergyMeter
from in_process import InProcess, refused

MODEL = """
    import os, pathlib, signal, time

    NODE = pathlib.Path({root!r})

    def use(joules):
        file = NODE / "sys/class/powercap/intel-rapl:0/energy_uj"
        file.write_text(str(int(file.read_text()) + int(joules * 1e6)))
        stat = NODE / "proc/stat"
        name, user, *others = stat.read_text().split()
        stat.write_text(" ".join([name, str(int(user) + 1), *others]))

    def wait(name):
        while not (NODE / name).exists():
            time.sleep(0.01)
        (NODE / name).unlink()

    def objective(hp, trial):
        x = hp.Int("x", 0, 9)
        trial.report(1, value=x)
        wait("begun")
        end = time.process_time() + 0.1
        while time.process_time() < end:
            pass
        first = NODE / f"first-{{trial.number}}"
        (NODE / "measured").unlink(missing_ok=True)  # of the attempt before
        use(36.0 * (trial.number + 1))
        if {dies} and not first.exists():
            first.touch()
            wait("measured")
            os.kill(os.getpid(), signal.SIGKILL)
        return x
    """

RUN = ("run", "model.py", "--executor", "joblib", "--workers", 1, "--seed", 1, "--study", "study")


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> EnergyCounters:
    """A node whose trials learn by a file that they are measured, and that it showed something."""
    made = EnergyCounters(tmp_path / "node")
    monkeypatch.setattr(vendor, "ROOT", made.root)
    monkeypatch.setitem(sys.modules, "pynvml", None)
    take, seen = EnergyMeter.take_processors, dict[EnergyMeter, bool]()

    def taken(self: EnergyMeter, cpu_seconds: float) -> None:
        take(self, cpu_seconds)
        if self not in seen:
            (made.root / "begun").touch()
        elif self.processor_joules and not seen[self]:
            (made.root / "measured").touch()
        seen[self] = bool(self.processor_joules)

    monkeypatch.setattr(EnergyMeter, "take_processors", taken)
    return made


def study_of(cli: InProcess, node: EnergyCounters, *options: object, dies: bool = False) -> str:
    cli.file("model.py", MODEL.format(root=str(node.root), dies=dies))
    ended = cli(*RUN, "--trials", 3, *options)
    assert ended.code == 0, ended.err
    return ended.out + ended.err


def trials_of(cli: InProcess) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(cli("trials", "study", "--json").out)["trials"]
    return sorted(found, key=lambda each: int(each["trial"]))


def test_energy_is_a_column_and_a_sum(cli: InProcess, node: EnergyCounters) -> None:
    study_of(cli, node)
    found = [each["energy_kwh"] for each in trials_of(cli)]
    assert found == pytest.approx([1e-5, 2e-5, 3e-5])
    assert "energy 0.06 Wh" in cli("status", "study").out
    status = json.loads(cli("status", "study", "--json").out)
    assert status["energy_kwh"] == pytest.approx(6e-5)
    assert status["processor_energy_kwh"] == pytest.approx(6e-5)
    assert status["gpu_energy_kwh"] is None
    head, *lines = cli("trials", "study").out.splitlines()
    assert "energy" in head
    assert sorted(line.split("Wh")[0].split()[-1] for line in lines[:3]) == ["0.01", "0.02", "0.03"]
    assert "\nenergy   0.02 Wh\n" in cli("show", "study", 1).out
    table = csv.DictReader(io.StringIO(cli("export", "study", "--format", "csv").out))
    assert [float(row["energy_kwh"]) for row in table] == pytest.approx([1e-5, 2e-5, 3e-5])
    assert cli("replay", "study").code == 0


def test_energy_is_in_every_report(cli: InProcess, node: EnergyCounters) -> None:
    study_of(cli, node)
    for kind, words in (
        ("md", "Measured energy: 0.06 Wh."),
        ("html", "Measured energy: 0.06 Wh."),
        ("methods", "; energy 0.06 Wh."),
    ):
        file = cli.directory / kind
        assert cli("report", "study", "--format", kind, "--output", file).code == 0
        assert words in file.read_text(), kind


def test_attempts_that_were_killed_count(cli: InProcess, node: EnergyCounters) -> None:
    study_of(cli, node, dies=True)
    found = trials_of(cli)
    assert [len(each["attempts"]) for each in found] == [2, 2, 2]
    assert [each["energy_kwh"] for each in found] == pytest.approx([2e-5, 4e-5, 6e-5])
    parts = [one["energy_kwh"] for one in found[2]["attempts"]]
    assert parts == pytest.approx([3e-5, 3e-5])


def test_a_limit_on_energy_is_a_constraint(cli: InProcess, node: EnergyCounters) -> None:
    study_of(cli, node, "--constraint", "energy_kwh<0.000025")
    found = trials_of(cli)
    assert [each["metrics"]["energy_kwh"] for each in found] == pytest.approx([1e-5, 2e-5, 3e-5])
    assert [each["violation"] > 0.0 for each in found] == [False, False, True]
    assert cli("replay", "study").code == 0


def test_energy_is_an_objective_after_another(cli: InProcess, node: EnergyCounters) -> None:
    study_of(cli, node, "--objective", "value:min", "--objective", "energy_kwh")
    best = json.loads(cli("best", "study", "--json").out)
    assert best["objectives"][1] == {"metric": "energy_kwh", "direction": "min"}
    assert 0 in best["front"]  # which used the least
    assert trials_of(cli)[0]["metrics"]["energy_kwh"] == pytest.approx(1e-5)


def test_energy_cannot_be_the_first_objective(cli: InProcess, node: EnergyCounters) -> None:
    cli.file("model.py", MODEL.format(root=str(node.root), dies=False))
    ended = cli(*RUN, "--objective", "energy_kwh:min")
    refused(ended, cli.directory, "energy_kwh is known when a trial ends", "--objective val_loss")


@pytest.mark.parametrize("goal", ["--constraint=energy_kwh<1", "--objective=energy_kwh:min"])
def test_a_machine_that_tells_no_energy_is_refused(
    cli: InProcess, node: EnergyCounters, goal: str
) -> None:
    node.forbid()
    cli.file("model.py", MODEL.format(root=str(node.root), dies=False))
    ended = cli(*RUN, "--objective", "value:min", goal)
    refused(ended, cli.directory, "energy_kwh is unknown", "energy_uj", "leave energy_kwh out")


def test_a_trial_whose_worker_tells_no_energy_fails(
    cli: InProcess, node: EnergyCounters, monkeypatch: pytest.MonkeyPatch
) -> None:
    node.forbid()
    monkeypatch.setattr(workforce, "can_be_read", lambda _: True)  # as where workers join later
    cli.file("model.py", 'def objective(hp, trial):\n    return hp.Float("x", 0, 1)\n')
    ended = cli(*RUN, "--trials", 3, "--constraint", "energy_kwh<1")
    assert ended.code == 2
    assert "energy_kwh is unknown, as no energy counter can be read where trials run" in ended.err


def test_without_counters_energy_is_nowhere(cli: InProcess, node: EnergyCounters) -> None:
    node.forbid()
    cli.file("model.py", 'def objective(hp, trial):\n    return hp.Float("x", 0, 1)\n')
    assert cli(*RUN, "--trials", 2).code == 0
    for command in ("status", "trials", "show", "export"):
        text = cli(command, "study", *(["0"] if command == "show" else [])).out
        assert "energy" not in text, command
    assert trials_of(cli)[0]["energy_kwh"] is None
