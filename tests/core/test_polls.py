"""How long things are awaited, also by a process that stalls."""

from __future__ import annotations

import time

import pytest

from hptune.core.clock import polls


class FakeTime:
    """A clock on which only sleeping takes time, and stalling."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        monkeypatch.setattr(time, "monotonic", lambda: self.now)
        monkeypatch.setattr(time, "sleep", self.pass_by)

    def pass_by(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeTime:
    return FakeTime(monkeypatch)


def looked_at(fake: FakeTime, seconds: float) -> list[tuple[float, bool]]:
    return [(fake.now - 100.0, is_last) for is_last in polls(seconds, 0.5)]


def test_there_are_looks_at_the_beginning_and_at_the_end(fake: FakeTime) -> None:
    assert looked_at(fake, 1.0) == [(0.0, False), (0.5, False), (1.0, True)]
    assert fake.now == 101.0  # the last look is followed by no pause


def test_no_time_is_time_for_one_look(fake: FakeTime) -> None:
    assert looked_at(fake, 0.0) == [(0.0, True)]


def test_a_process_that_stalled_while_it_looked_looks_once_more(fake: FakeTime) -> None:
    looks = polls(1.0, 0.5)
    assert not next(looks)
    fake.pass_by(600.0)
    assert next(looks)
    assert next(looks, None) is None
