"""The setting `connect`: checks before anything is started."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from distributed import Client, LocalCluster

from hptune.clusters.base import SchedulerCluster
from hptune.clusters.choice import choose_cluster
from hptune.clusters.existing import ClientWorkers, ExistingScheduler
from hptune.clusters.layout import WorkerLayout
from hptune.clusters.running_studies import study_at
from hptune.clusters.scheduler import check_file, serve
from hptune.config.asked import asked
from hptune.config.settings import StudySettings
from hptune.core.clock import SystemClock
from hptune.core.resources import Resources
from hptune.errors import NoStudyError, StudyError, UsageError
from hptune.executors.base import RunContext
from hptune.executors.dask import DaskExecutor
from hptune.master.workforce import Workforce
from hptune.user_code.source import ObjectiveSource, SourceKind
from hptune.worker.dask.study_access import StudyAccess

ADDRESS = "tls://node1:8786"


def settings(**said: Any) -> StudySettings:
    return StudySettings(
        source=ObjectiveSource(SourceKind.PICKLE, "objective.pkl"), working_directory="/", **said
    )


def test_asking_for_other_workers_takes_back_what_was_asked_for_before() -> None:
    here = settings(workers=2)
    elsewhere = here.changed({"connect": ADDRESS, "trials": 9})
    assert (elsewhere.connect, elsewhere.workers, elsewhere.trials) == (ADDRESS, None, 9)
    assert elsewhere.changed({"trials": 10}).connect == ADDRESS, "it is not remembered"
    assert elsewhere.changed({"workers": 3}).connect is None
    assert elsewhere.changed({"connect": "none"}).connect is None
    assert settings(executor="joblib").changed({"connect": ADDRESS}).executor == "dask"


def test_a_scheduler_file_is_found_from_everywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert settings(connect="here.json").connect == str(tmp_path / "here.json")


def test_a_file_that_tells_no_address_is_said(tmp_path: Path) -> None:
    file = tmp_path / "scheduler.json"
    with pytest.raises(StudyError, match="holds no scheduler's address"):
        ExistingScheduler(str(file))
    file.write_text(f'{{"address": "{ADDRESS}"}}')
    assert ExistingScheduler(str(file)).address == ADDRESS
    assert ADDRESS in ExistingScheduler(ADDRESS).text(WorkerLayout([], Resources()))


def test_a_scheduler_that_ends_removes_its_own_file_only(tmp_path: Path) -> None:
    file = tmp_path / "scheduler.json"

    def listen(successor: str) -> None:
        def opened(address: str) -> None:
            assert json.loads(file.read_text())["address"] == address
            if successor:
                file.write_text(successor)
            os.kill(os.getpid(), signal.SIGTERM)

        serve(host="127.0.0.1", port=0, scheduler_file=file, identity=None, opened=opened)

    listen("")
    assert not file.exists()
    listen("of a successor")
    assert [each.read_text() for each in tmp_path.iterdir()] == ["of a successor"]
    check_file(tmp_path / "none.json")
    for contents in ("", '{"address": ""}', f'{{"address": "{ADDRESS}"}}'):
        file.write_text(contents)
        check_file(file)
    with pytest.raises(
        StudyError, match=r"--scheduler-file is .* cannot be written: .*; name anot"
    ):
        serve(host="127.0.0.1", port=0, scheduler_file=tmp_path, identity=None, opened=print)


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({"connect": "node1"}, "allowed are an address such as"),
        ({"connect": ADDRESS, "executor": "joblib"}, "executor is 'joblib'"),
        ({"connect": ADDRESS, "workers": 1}, "workers is 1"),
    ],
)
def test_two_answers_to_one_question_are_refused(said: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        asked(settings(**said))


def test_a_client_replaces_the_workers_of_a_study_begun_elsewhere() -> None:
    chosen = choose_cluster(asked(settings(connect=ADDRESS)), Path("study"), client=object())
    assert isinstance(chosen, ClientWorkers)


class Remembering(SchedulerCluster):
    """Workers of a scheduler; remembers whether the run was still connected when they stopped.

    Args:
        dask: The scheduler, a `LocalCluster`.

    Attributes:
        connected: What was called, and the state of the run's client then.
    """

    def __init__(self, dask: Any) -> None:
        super().__init__()
        self._dask = dask
        self.connected: list[tuple[str, str]] = []

    @property
    def address(self) -> str:
        return str(self._dask.scheduler_address)

    def text(self, layout: WorkerLayout) -> str:
        return "here and there"

    def scale_down(self) -> None:
        self._note("scale_down")

    def close(self, *, force: bool = False) -> None:
        super().close(force=force)
        self._note("close")

    def _note(self, word: str) -> None:
        self.connected.append((word, self._client.status))


def test_workers_stop_before_anything_that_may_hang() -> None:
    with LocalCluster(n_workers=0, host="127.0.0.1", dashboard_address="127.0.0.1:0") as dask:
        cluster = Remembering(dask)
        with Workforce(asked(settings()), cluster) as workers:
            cluster.executor(workers.layout({}), None)
    assert cluster.connected[0] == ("scale_down", "running")
    assert cluster.connected[-1] == ("close", "closed")


def test_the_study_of_a_scheduler_is_found(tmp_path: Path) -> None:
    source = ObjectiveSource(SourceKind.FILE, "model.py")
    with (
        LocalCluster(n_workers=0, host="127.0.0.1", dashboard_address="127.0.0.1:0") as dask,
        Client(dask, set_as_default=False) as client,
    ):
        place = str(dask.scheduler_address)

        def running(directory: Path) -> DaskExecutor:
            access = StudyAccess(str(directory), "token", source)
            run = RunContext(
                name=f"hptune-{directory.name}", source=source, clock=SystemClock(), fork_server=""
            )
            return DaskExecutor(run, client=client, access=access)

        with pytest.raises(NoStudyError, match="no study runs on the scheduler at tcp://127"):
            study_at(place, insecure=True)
        first, second = running(tmp_path / "one"), running(tmp_path / "two")
        first.open()
        with pytest.raises(NoStudyError, match=r"is in .*/one, which this machine does not see"):
            study_at(place, insecure=True)
        (tmp_path / "one").mkdir()
        (tmp_path / "one/study.db").touch()
        assert study_at(place, insecure=True) == tmp_path / "one"
        second.open()
        with pytest.raises(StudyError, match=r"2 studies run .*one, .*two"):
            study_at(place, insecure=True)
        second.close()
        assert study_at(place, insecure=True) == tmp_path / "one"
        first.close()
