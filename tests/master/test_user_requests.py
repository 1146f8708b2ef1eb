"""The master's answers to users' requests, without a run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from engine_driver import EngineDriver
from hptune.config.asked import asked as asked_for
from hptune.config.settings import StudySettings
from hptune.core.attempt import AttemptId, Cause, Ending
from hptune.core.engine.engine import Engine
from hptune.core.messages import Event, UserRequested
from hptune.core.space.space import FloatParameter, SearchSpace
from hptune.core.user_requests import UserAction, UserRequest
from hptune.master.resume_plan import Changes, ResumeRequest
from hptune.master.user_requests import UserRequests
from hptune.storage.requests import RequestFile
from hptune.user_code.model_file import check_path

SPACE = SearchSpace((FloatParameter("x", 0.0, 10.0),))
BEGIN = b'{"name":"a","action":"stop a trial","by":"ada","points":[],"note":null,"trial":'


class Asked:
    """A file of requests, and the master that answers them."""

    def __init__(self, path: Path, engine: Engine) -> None:
        self.path = path
        self.file = RequestFile(path, locks_work=True)
        read = RequestFile(path, locks_work=True)
        read.skip()
        self.answers = UserRequests(read, engine, lambda: SPACE, lambda _, added: added)

    def add(self, *points: Mapping[str, object]) -> None:
        self.file.append(UserRequest("name", UserAction.ENQUEUE, "ada", points=points))

    def refused(self) -> list[str]:
        """Return why each request since the last call was refused; empty for one that was not."""
        return [_refusal(each) for each in self.answers(1.0)]


def _refusal(answer: Event) -> str:
    assert isinstance(answer, UserRequested)
    return answer.refused


def test_a_configuration_is_added_once_even_if_it_is_no_trial_yet(tmp_path: Path) -> None:
    driver = EngineDriver()
    driver.open(5)
    driver.join()  # the sampler's answer has the next numbers, so what is added waits
    asked = Asked(tmp_path / "requests", driver.engine)
    asked.add({"x": 1.0})
    asked.add({"x": 1.0})
    assert asked.refused() == ["", "x=1 was added already"]
    asked.add({"x": 1.0})
    asked.add({"x": 2.0}, {"x": 2.0})
    assert asked.refused() == ["x=1 was added already", "x=2 is given twice"]
    asked.add({"x": 2.0}, {"x": 3.0})
    assert asked.refused() == [""]


def test_a_trial_that_failed_is_named_with_what_runs_it_again(tmp_path: Path) -> None:
    driver = EngineDriver()
    driver.open(5)
    driver.join()
    driver.suggest([{"x": 1.0}])
    driver.end(AttemptId(0, 0), Ending(Cause.GIVEN_UP))
    asked = Asked(tmp_path / "requests", driver.engine)
    asked.add({"x": 1.0})
    (refused,) = asked.refused()
    assert refused.startswith("x=1 is trial 0 already, which failed; ")
    assert "`hptune resume DIR --retry-failed`" in refused


def test_what_a_dead_master_accepted_is_tried_once(tmp_path: Path) -> None:
    driver = EngineDriver()
    driver.open(5)
    driver.join()  # as above, and the master dies before the sampler answers
    asked = Asked(tmp_path / "requests", driver.engine)
    asked.add({"x": 1.0})
    for event in asked.answers(driver.at):
        driver.feed(event)
    engine = driver.engine
    model = tmp_path / "model.py"
    model.touch()
    settings = StudySettings(source=check_path(model), working_directory=str(tmp_path))
    request = ResumeRequest(
        asked=asked_for(settings),
        epochs=None,
        tries=[{"x": 1.0}, {"x": 2.0}],
        changes=Changes(),
    )
    found, notes = request.new_points(SPACE, tuple(engine.trials), engine.added)
    assert [dict(each.params) for each in found] == [{"x": 2.0}]
    assert notes == ["start point 1 was added already"]
    asked = Asked(tmp_path / "requests", engine)
    asked.add({"x": 1.0})
    assert asked.refused() == ["x=1 was added already"]


def test_a_study_that_is_not_open_yet_takes_requests(tmp_path: Path) -> None:
    asked = Asked(tmp_path / "requests", Engine())
    asked.add({"x": 1.0})
    asked.file.append(UserRequest("name", UserAction.PAUSE, "ada"))
    asked.file.append(UserRequest("name", UserAction.STOP_TRIAL, "ada", trial=0))
    assert asked.refused() == ["", "", "there is no trial 0; there is none yet"]


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"{",
        b"[]",
        b"7",
        b"\xff",
        b"[" * 100_000,
        BEGIN + b"Infinity}",
        BEGIN + b"1" * 400 + b"}",
        BEGIN,
    ],
)
def test_a_line_that_is_no_request_is_passed(tmp_path: Path, line: bytes) -> None:
    asked = Asked(tmp_path / "requests", Engine())
    with asked.path.open("ab") as file:
        file.write(line)
    asked.add({"x": 1.0})
    assert asked.refused() == [""]
