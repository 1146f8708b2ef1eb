"""A multirun of an application of Hydra with `hydra/sweeper=hptune`."""

from __future__ import annotations

import runpy
import sys
import textwrap
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from hydra.core.config_store import ConfigStore
from hydra.core.singleton import Singleton

from hptune.config.tuner_settings import TunerSettings
from hptune.hydra import lightning_callback, report
from hptune.study.study import Study
from hydra_plugins.hptune_sweeper import OWN, SETTINGS
from in_process import InProcess, signals_kept
from real_runs import Ended, states

APP = """
    import dataclasses
    import logging
    import os
    import hydra
    from hydra.core.config_store import ConfigStore
    from hydra.core.hydra_config import HydraConfig
    from omegaconf import MISSING, OmegaConf
    from hptune.core.attempt import Halt
    from hptune.hydra import report
    from hptune.training import context

    @dataclasses.dataclass
    class Database:
        port: int = 0

    @dataclasses.dataclass
    class Config:
        defaults: list = dataclasses.field(default_factory=lambda: ["_self_", {"db": MISSING}])
        db: Database = MISSING
        lr: float = 0.25
        layers: list[int] = dataclasses.field(default_factory=lambda: [8])
        fails: bool = False
        several: bool = False
        returns_nothing: bool = False
        is_told: bool = False
        where: str = "${twice:ab}"

    store = ConfigStore.instance()
    store.store(name="config", node=Config)
    for name, port in ("here", 1), ("there", 2):
        store.store(group="db", name=name, node=Database(port))
    OmegaConf.register_new_resolver("twice", lambda text: text * 2, replace=True)

    @hydra.main(version_base=None, config_name="config")
    def app(config):
        assert OmegaConf.get_type(config.db) is Database
        assert config.where == "abab"
        assert HydraConfig.get().runtime.output_dir == os.getcwd()
        assert os.environ.get("OF_THE_APP") == "root", "the trials' fork server is older"
        logging.getLogger("app").info("at %s", config.lr)
        if config.fails and config.db.port == 2:
            raise ValueError("no database")
        for epoch in 1, 2, 3:
            if config.is_told and epoch == 3:
                context.current().request_stop(Halt.PRUNE)
            report(epoch, value=config.lr + config.db.port + 1 / epoch, loss=config.lr)
        if config.returns_nothing:
            return None
        return [config.lr, config.db.port] if config.several else config.lr + config.db.port

    if __name__ == "__main__":
        os.environ["OF_THE_APP"] = "root"
        app()
"""

Multirun = Callable[..., Ended]


@pytest.fixture
def multirun(
    cli: InProcess, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Multirun:
    """Return a function that runs the application in this process, and its trials in others."""
    if sys.version_info >= (3, 14):
        pytest.skip("no application of Hydra 1.3 starts in Python 3.14: its help text is refused")
    path = cli.file("app.py", APP)
    monkeypatch.setenv("OF_THE_APP", "")  # and it is removed again
    monkeypatch.setattr(Singleton, "_instances", {**Singleton._instances})
    common = ("-m", "hydra/sweeper=hptune", "hydra/hydra_logging=none", "hydra.job.chdir=true",
              "hydra.sweep.dir=sweep", "hydra.sweeper.executor=joblib",
              "hydra.job.env_copy=[OF_THE_APP]")  # fmt: skip

    def run(*overrides: str) -> Ended:
        monkeypatch.setattr(sys, "argv", [str(path), *common, *overrides])
        code: Any = 0
        try:
            with signals_kept():
                runpy.run_path(str(path), run_name="__main__")
        except SystemExit as end:
            code = end.code or 0
        return Ended(code, *capfd.readouterr())

    return run


def test_the_options_are_those_of_a_study() -> None:
    assert set(SETTINGS) == TunerSettings.__annotations__.keys()
    node = ConfigStore.instance().load("hydra/sweeper/hptune.yaml").node
    assert [*node] == ["_target_", *OWN, *SETTINGS]


def test_a_multirun_is_a_study_that_commands_continue(multirun: Multirun, cli: InProcess) -> None:
    searched = ("db=glob(*)", "lr=tag(log, interval(0.01, 1))", "layers=[8],[16,32]")
    fixed = ("hydra.sweeper.seed=1", "fails=true", "hydra.sweeper.max_failures=9")
    ended = multirun(*searched, *fixed, "hydra.sweeper.trials=3")
    assert ended.code == 0, ended.err
    study = Study("sweep/hptune")
    assert study.trial(0).params == {"db": "here", "lr": 0.25, "layers": "[8]"}, "its own values"
    failed = {each.number for each in study.trials if each.params["db"] == "there"}
    assert {each.number for each in study.trials if each.reason} == failed != set()
    assert "--multirun … hydra.sweep.dir=sweep hydra.sweeper.trials=6" in ended.err

    for trial in study.trials:
        folder = Path("sweep", str(trial.number))
        overrides = yaml.safe_load((folder / ".hydra/overrides.yaml").read_text())
        values = [f"{name}={value}" for name, value in trial.params.items()]
        assert overrides == ["fails=true", *values]
        assert f"at {trial.params['lr']}" in (folder / "app.log").read_text()
    best = yaml.safe_load(Path("sweep/optimization_results.yaml").read_text())
    assert best == {
        "name": "hptune",
        "best_params": dict(study.best_trial.params),
        "best_value": study.best_trial.value,
    }
    assert (
        yaml.safe_load(Path("sweep/multirun.yaml").read_text())["hydra"]["sweeper"]["trials"] == 3
    )

    ended = multirun(*searched, *fixed, "hydra.sweeper.trials=4")
    assert ended.code == 0, ended.err
    assert len(study.trials) == 4
    assert "resumed" in ended.err

    better = ("--try", "db=here,lr=0.01,layers=[8]", "--trials", 5)
    assert cli("resume", "sweep/hptune", *better).code == 0
    best = yaml.safe_load(Path("sweep/optimization_results.yaml").read_text())
    assert (best["best_params"]["lr"], best["best_value"]) == (0.01, 1.01)


def test_a_study_in_a_directory_of_its_own_knows_its_multirun(
    multirun: Multirun, cli: InProcess
) -> None:
    assert multirun("db=here", "lr=0.1,0.5", "hydra.sweeper.directory=mine").code == 0
    results = Path("sweep/optimization_results.yaml")
    results.unlink()
    assert cli("resume", "mine").code == 0
    assert yaml.safe_load(results.read_text())["best_params"] == {"lr": 0.1}


def test_a_poor_trial_stops_at_its_report(multirun: Multirun) -> None:
    grid = ("db=there", "lr=range(0, 0.75, 0.25)", "hydra.sweeper.search=grid")
    pruner = ("pruner=asha", "min_epochs=1", "epochs=3", "workers=1", "pack=off")
    ended = multirun(*grid, *(f"hydra.sweeper.{each}" for each in pruner))
    assert ended.code == 0, ended.err
    assert states(Path("sweep/hptune").absolute()) == {"COMPLETE": 1, "PRUNED": 2}, ended.err


@pytest.mark.parametrize("more", [(), ("is_told=true", "hydra.sweeper.epochs=3")])
def test_what_is_reported_counts_if_nothing_is_returned(
    multirun: Multirun, more: Sequence[str]
) -> None:
    """An order that comes with the report of the last epoch comes too late."""
    fixed = ("db=here", "returns_nothing=true", "hydra.sweeper.objective=loss")
    ended = multirun("lr=0.1,0.5", *fixed, *more)
    assert ended.code == 0, ended.err
    assert [each.value for each in Study("sweep/hptune").complete_trials] == [0.1, 0.5]


def test_several_objectives_are_a_list(multirun: Multirun) -> None:
    directions = "hydra.sweeper.direction=[minimize, maximize]"
    params = "hydra.sweeper.params={lr: 'choice(0.1, 0.5)', db: there, several: true}"
    ended = multirun(params, directions)
    assert ended.code == 0, ended.err
    found = yaml.safe_load(Path("sweep/optimization_results.yaml").read_text())
    assert found["solutions"] == [{"params": {"lr": 0.1}, "values": [0.1, 2.0]}]


@pytest.mark.parametrize(
    ("overrides", "code", "words"),
    [
        (["hydra.sweeper.n_trials=9"], 2, "sweeper has no option 'n_trials'; did you mean trials?"),
        (["hydra.sweeper.model_fn=9"], 2, "hydra.sweeper has no option 'model_fn'"),
        (["hydra.sweeper.python=sh"], 2, "hydra.sweeper has no option 'python'"),
        (["hydra.sweeper.client=9"], 2, "hydra.sweeper has no option 'client'"),
        (["hydra.sweeper.params=9"], 2, "hydra.sweeper.params is 9; allowed are overrides"),
        (["hydra.sweeper.direction=9", "hydra.sweeper.objective=9"], 2, "each objective (9)"),
        (["hydra.sweep.dir=app.py/sweep"], 2, "app.py/sweep is not a directory; choose another"),
        (["hydra.sweeper.direction=max"], 2, "allowed are minimize and maximize"),
        (["hydra.sweeper.direction=[minimize]", "hydra.sweeper.objective=[a,b]"], 2, "(a, b)"),
        (["hydra.launcher._target_=some.Launcher"], 2, "hptune itself runs the trials"),
        (["hydra.sweeper.mirror=wanddb"], 2, "unknown mirror 'wanddb'"),
        (["lr=interval(1, 0)"], 2, "Error: lr: the lower bound"),
        (["unknown=1,2"], 1, "Could not override 'unknown'"),
    ],
)
def test_what_is_wrong_is_said_before_a_study_begins(
    multirun: Multirun, overrides: list[str], code: int, words: str
) -> None:
    ended = multirun("db=here", *overrides)
    assert (ended.code, words in ended.err) == (code, True), ended.err
    assert "Traceback" not in ended.err
    assert not Path("sweep").exists()


CALLBACK = """
import threading
from hydra.experimental.callback import Callback

class Locked(Callback):
    def __init__(self):
        self.lock = threading.Lock()
"""


def test_what_cannot_be_sent_to_trials_is_named(
    multirun: Multirun, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = Path("app.py")
    locked = app.read_text().replace("store = ", "LOCK = threading.Lock()\nstore = ")
    locked = locked.replace("import os", "import os, threading").replace(
        "for epoch", "LOCK\n    for epoch"
    )
    app.write_text(locked)
    ended = multirun("db=here", "lr=1,2")
    assert (ended.code, "it uses 'LOCK' (" in ended.err) == (2, True), ended.err

    app.write_text(textwrap.dedent(APP))
    Path("callbacks_of_mine.py").write_text(CALLBACK)
    monkeypatch.syspath_prepend(".")
    ended = multirun("db=here", "lr=1,2", "+hydra.callbacks.a._target_=callbacks_of_mine.Locked")
    assert ended.code == 2
    assert "it uses 'Locked of hydra.callbacks' (" in ended.err


def test_a_failure_ends_in_one_error_with_what_to_do(multirun: Multirun) -> None:
    ended = multirun("db=there", "fails=true", "hydra.sweeper.max_failures=1")
    assert ended.code == 1
    assert "ValueError: no database" in ended.err
    assert "`--multirun … hydra.sweep.dir=sweep hydra.sweeper.retry_failed=True`" in ended.err
    assert "tuner/hptune" not in ended.err, "a traceback of ours"


def test_reports_of_an_application_that_runs_by_itself_do_nothing() -> None:
    report(1, value=0.5)
    with pytest.raises(TypeError, match=r"write hptune\.hydra\.report\(epoch, loss=0\.5\)"):
        report(value=0.5)  # type: ignore[call-arg]
    assert callable(lightning_callback)
