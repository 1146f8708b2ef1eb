"""RESOURCES as a function of the hyperparameters: each configuration gets what it asks for."""

from __future__ import annotations

import contextlib
import json
import subprocess
import tempfile
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from hptune.core.trial import Params
from hptune.errors import ModelFileError, StudyError
from hptune.user_code.model_file import check_path
from hptune.user_code.source import OF_EACH_TRIAL
from hptune.worker.forkserver.client import ForkServer
from hptune.worker.orders import ModelOrder, ProbeOrder, SizeOrder
from in_process import InProcess, refused
from real_runs import Hptune, trials

MODEL = """\
import os
from hptune import Resources

OBJECTIVE = "score:max"
RESOURCES = lambda hp: Resources(gpus=2 if hp["width"] > 512 else 0.5)

def objective(hp, trial):
    width = hp.Int("width", 1, 1000)
    gpus = os.environ["CUDA_VISIBLE_DEVICES"]
    return {"score": width, "gpus": len(gpus.split(",")) if gpus else 0}
"""


@pytest.fixture
def ask(warm: ForkServer, tmp_path: Path) -> Any:
    def sizes(resources: str, *configurations: Params) -> Any:
        model = tmp_path / "model.py"
        model.write_text(textwrap.dedent(f"RESOURCES = {resources}\n" + GOOD))
        source = check_path(model)
        found = warm.probe(ProbeOrder(source, str(tmp_path)))
        assert found.constants["RESOURCES"] == OF_EACH_TRIAL
        return warm.sizes(SizeOrder(source, tuple(found.space), configurations))

    return sizes


GOOD = """\
def objective(hp, trial):
    return hp.Int("width", 1, 1000)
"""


def seen(trial: Mapping[str, Any]) -> int:
    """Return how many GPUs the trial saw."""
    gpus: int = json.loads(trial["metrics"])["gpus"]
    return gpus


def test_a_function_is_asked_for_each_configuration(ask: Any) -> None:
    sizes = ask("lambda hp: {'cpus': 1 + hp.get('width') // 500}", {"width": 2}, {"width": 999})
    assert sizes == [{"cpus": 1}, {"cpus": 2}]


@pytest.mark.parametrize(
    ("resources", "words"),
    [
        ("lambda hp: hp['depth']", ["failed with width=7", "depth does not exist"]),
        ("lambda hp: 3", ["RESOURCES(hp) returned 3", "hptune.Resources(cpus="]),
        ("lambda: 3", ["failed with width=7", "positional argument"]),
        ("lambda hp: {'cpus': lambda: 2}", ["failed with width=7", "local object"]),
    ],
)
def test_a_function_that_fails_is_told(ask: Any, resources: str, words: list[str]) -> None:
    with pytest.raises(ModelFileError) as caught:
        ask(resources, {"width": 7})
    for word in words:
        assert word in caught.value.message


def test_large_configurations_get_more(hptune: Hptune) -> None:
    model = hptune.file("model.py", MODEL)
    arguments = ("--search", "random", "--seed", 1, "--trials", 6, "--study", hptune.study())
    node = str(hptune.directory)  # a machine that no other test uses
    ended = hptune("run", model, *arguments, CUDA_VISIBLE_DEVICES="0,1", SLURMD_NODENAME=node)
    assert ended.code == 0, ended.err
    found = {trial["params"]["width"]: seen(trial) for trial in trials(hptune.study())}
    assert found == {width: 2 if width > 512 else 1 for width in found}
    assert set(found.values()) == {1, 2}, "all of one size"


@pytest.mark.parametrize(
    ("gpus", "arguments", "words"),
    [
        ("hp['depth']", (), "RESOURCES(hp) failed with width="),
        ("9", (), "a trial asks for 9 GPUs, but this machine's are: 0, 1"),
        ("1", ("--executor", "joblib"), "RESOURCES is a function"),
        ("1", ("--gpus-per-trial", "auto"), "but --gpus-per-trial is auto, which chooses it"),
    ],
)
def test_what_can_never_run_makes_no_study(
    cli: InProcess,
    monkeypatch: pytest.MonkeyPatch,
    gpus: str,
    arguments: tuple[str, ...],
    words: str,
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    model = cli.file("model.py", MODEL.replace('2 if hp["width"] > 512 else 0.5', gpus))
    refused(cli("run", model, "--study", cli.study(), *arguments), cli.directory, words)


def test_resources_as_a_value_are_taken_as_they_are(
    cli: InProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    monkeypatch.setenv("SLURMD_NODENAME", str(cli.directory))
    model = cli.file(
        "model.py",
        MODEL.replace(
            'lambda hp: Resources(gpus=2 if hp["width"] > 512 else 0.5)', "Resources(gpus=2)"
        ),
    )
    ended = cli("run", model, "--executor", "joblib", "--trials", 1, "--study", cli.study())
    assert ended.code == 0, ended.err
    assert [seen(trial) for trial in trials(cli.study())] == [2]


def test_a_suspended_server_keeps_no_process_and_answers_again(tmp_path: Path) -> None:
    model = tmp_path / "model.py"
    model.write_text(f"RESOURCES = lambda hp: {{'cpus': hp['width']}}\n{GOOD}")
    source = check_path(model)
    with contextlib.closing(ForkServer(source)) as server:
        found = server.probe(ProbeOrder(source, str(tmp_path)))
        assert servers(server.address)
        server.suspend()
        assert not servers(server.address)
        for width in (3, 4):
            order = SizeOrder(source, tuple(found.space), ({"width": width},))
            assert server.sizes(order) == [{"cpus": width}]
        assert servers(server.address)
        server.suspend()
    assert not Path(server.address).parent.exists()


def test_a_suspended_server_that_cannot_start_again_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (model := tmp_path / "model.py").write_text(GOOD)
    source, here = check_path(model), str(tmp_path)
    with contextlib.closing(ForkServer(source)) as server:
        found = server.probe(ProbeOrder(source, here))
        server.suspend()
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "gone"))
        order = ModelOrder(source, model, tuple(found.space), {"width": 3})
        assert server.try_model(order) == "", "a study that is over ends without an error"
        with pytest.raises(StudyError, match="ended without an answer"):
            server.sizes(SizeOrder(source, tuple(found.space), ({"width": 3},)))


def servers(address: str) -> list[int]:
    """Return the processes that serve an address."""
    shown = subprocess.run(["pgrep", "-f", address], capture_output=True, text=True, check=False)
    return [int(line) for line in shown.stdout.split()]
