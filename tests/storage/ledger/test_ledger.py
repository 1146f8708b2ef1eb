"""The ledger: every reader finds what was written, unchanged."""

from __future__ import annotations

import dataclasses
import math
import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from batches import append_batch, complete, reported, whole_batches
from fake_study import GOALS
from hptune.config.objectives import goals_to_json
from hptune.core.attempt import Attempt, AttemptId, HeldBefore, Outcome, ReportedValue, Usage
from hptune.core.engine.engine import Engine
from hptune.core.messages import (
    Event,
    FinishReason,
    StopRequested,
    StudyClosed,
    StudyOpened,
    UserRequested,
    WorkerJoined,
)
from hptune.core.resources import Capacity, Placement
from hptune.core.study_config import StudyConfig
from hptune.core.trial import Params, Trial, TrialState
from hptune.core.user_requests import Note, UserAction
from hptune.errors import NoStudyError, StudyExistsError
from hptune.pruners.registry import make_pruner
from hptune.storage.directory import StudyDirectory
from hptune.storage.ledger import Ledger, LedgerReader
from hptune.storage.ledger.database import FORMAT


def test_what_was_appended_is_there_when_opened_again(directory: StudyDirectory) -> None:
    first, second = reported(1.0, loss=0.5), StopRequested(2.0, FinishReason.INTERRUPTED, "Ctrl-C")
    facts: dict[str, object] = {
        **{key: [] for key in ("space", "declared_space", "warm_start")},
        **dict.fromkeys(("epochs", "ended")),
        "hptune_version": "0.1",
        "created_at": 1.0,
        "is_keras": False,
        "seed": 1,
        "goals": goals_to_json(GOALS),
    }
    with Ledger.create(directory, facts | {"settings": {"seed": 1}}) as ledger:
        ledger.append([first])
        ledger.set_facts({"settings": {"seed": 1, "trials": 9}})
    with Ledger.open(directory) as ledger:
        ledger.append([second])
        ledger.append([])
        assert list(ledger.events()) == [first, second]
        assert ledger.facts == {
            **facts,
            "format": FORMAT,
            "settings": {"seed": 1, "trials": 9},
        }
    reader = LedgerReader(directory)
    assert list(reader.events()) == [first, second]
    assert reader.facts()["settings"] == {"seed": 1, "trials": 9}
    assert sorted(path.name for path in directory.path.iterdir()) == [
        "best",
        "lock",
        "requests",
        "study.db",
        "trials",
    ]


def test_trials_and_attempts_are_as_they_were_last(
    directory: StudyDirectory, ledger: Ledger
) -> None:
    params: Params = {"units": 1, "rate": 1.0, "bias": True, "name": "ü", "none": None}
    waiting = Trial(0, params, "tpe", TrialState.WAITING)
    ended = dataclasses.replace(
        waiting,
        state=TrialState.FAILED,
        step=3,
        metrics={"loss": math.inf},
        attempts=2,
        reason="ValueError: no",
        detail="Traceback …",
    )
    running = Attempt(AttemptId(0, 1), Placement("w1", (0, 1), ("GPU-a",), 4), "n1", 10.0)
    usage = Usage(
        peak_memory_bytes=10**10,
        cpu_seconds=1.5,
        seconds=2.0,
        seconds_per_step=0.5,
        starved_seconds=0.25,
        gpu_joules=3.5,
    )
    lost = dataclasses.replace(
        running, started_at=11.0, ended_at=12.5, outcome=Outcome.LOST, usage=usage
    )
    shared = Placement("w2", (3,), ("0",), gpu_share=0.25, gpu_memory_bytes=7)
    before = HeldBefore(11.5, 0.5, 0.25)
    other = Attempt(AttemptId(1, 0), shared, "n2", 11.0, reason="why not", before=before)
    other = dataclasses.replace(other, usage=dataclasses.replace(usage, gpu_joules=None))
    ranks = Placement("w1", (0,), peers=(Placement("w1", (1,), ("0",)), Placement("w2", (5,))))
    parallel = Attempt(AttemptId(1, 1), ranks, "n1", 12.0, peer_nodes=("n1", "n2"))
    ledger.append([], trials=[waiting, complete(1, 0.5)], attempts=[running, other, parallel])
    ledger.append([], trials=[ended], attempts=[lost])

    reader = LedgerReader(directory)
    assert reader.trial(0) == ended
    assert repr(reader.trial(0)) == repr(ended)
    assert reader.trial(7) is None
    assert reader.trials() == [ended, complete(1, 0.5)]
    assert reader.attempts() == [lost, other, parallel]
    assert [each for each in reader.attempts() if each.id.trial == 1] == [other, parallel]


def test_reports_follow_from_the_events(directory: StudyDirectory, ledger: Ledger) -> None:
    ledger.append([reported(5.0, trial=2, loss=0.5, accuracy=math.nan), reported(6.0, loss=1.0)])
    reader = LedgerReader(directory)
    first, missing, last = reader.reports()
    assert first == ReportedValue(2, 0, 1, "loss", 0.5, 5.0)
    assert (missing.metric, math.isnan(missing.value)) == ("accuracy", True)
    assert last == ReportedValue(0, 0, 1, "loss", 1.0, 6.0)
    assert reader.reports(0) == [last]


def test_text_that_is_not_unicode_reaches_the_tables(
    directory: StudyDirectory, ledger: Ledger
) -> None:
    trial = dataclasses.replace(complete(0, 1.0), reason="no such file: \udcff")
    ledger.append([], trials=[trial])
    (read,) = LedgerReader(directory).trials()
    assert read.reason == r"no such file: \udcff"


def test_several_pages_of_events(directory: StudyDirectory, ledger: Ledger) -> None:
    events = [reported(float(n)) for n in range(4_001)]
    ledger.append(events)
    assert list(LedgerReader(directory).events()) == events


@pytest.mark.parametrize(
    "name",
    ['it\'s "odd" 100%41 #1?mode=ro&\nÄrger 日本', os.fsdecode(b"\xff not Unicode")],
    ids=ascii,
)
def test_directories_with_odd_names(tmp_path: Path, name: str) -> None:
    directory = StudyDirectory(tmp_path / name).create()
    with directory.acquire(), Ledger.create(directory, {}) as ledger:
        append_batch(ledger, 0)
        assert whole_batches(directory) == 1
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_a_second_ledger_is_not_created_over_the_first(
    directory: StudyDirectory, ledger: Ledger
) -> None:
    append_batch(ledger, 0)
    with pytest.raises(StudyExistsError, match="hptune resume"):
        Ledger.create(directory, {})
    assert whole_batches(directory) == 1


def test_no_ledger(directory: StudyDirectory) -> None:
    for door in (Ledger.open, LedgerReader):
        with pytest.raises(NoStudyError, match="ended before its first trial"):
            door(directory)


def test_a_ledger_that_was_deleted_is_told_from_a_run_without_trials(
    directory: StudyDirectory, ledger: Ledger
) -> None:
    append_batch(ledger, 0)
    ledger.close()
    directory.trial(0).mkdir(parents=True)
    directory.database.unlink()
    with pytest.raises(NoStudyError, match=r"study.db is gone; put that file back"):
        LedgerReader(directory)


def test_the_leftovers_of_a_killed_creation_do_no_harm(directory: StudyDirectory) -> None:
    (directory.path / "study.db.new").write_bytes(b"half")
    (directory.path / "study.db.new-journal").write_bytes(b"half")
    with Ledger.create(directory, {}) as ledger:
        append_batch(ledger, 0)
    assert whole_batches(directory) == 1


@pytest.mark.parametrize(
    "value", [np.int64(1), {1: 2}, [object()], b"bytes"], ids=["numpy", "key", "object", "bytes"]
)
def test_what_is_no_plain_data_is_refused(ledger: Ledger, value: object) -> None:
    with pytest.raises(TypeError):
        ledger.set_facts({"key": value})
    with pytest.raises(TypeError):
        ledger.append([reported(0)], trials=[complete(0, 1.0, lr=value)])
    assert list(ledger.events()) == []


@given(
    runs=st.lists(st.lists(st.integers(0, 40), max_size=6), min_size=1, max_size=4),
    is_open=st.booleans(),
)
def test_readers_know_the_time_of_each_run_as_the_engine_does(
    tmp_path_factory: pytest.TempPathFactory, runs: list[list[int]], *, is_open: bool
) -> None:
    """Events may be written late; the time between runs does not count."""
    config = StudyConfig(trials=1, goals=GOALS, seed=0)
    events: list[Event] = []
    for number, times in enumerate(runs):
        began = 1000.0 * (number + 1)
        events += [StudyOpened(began, config)]
        events += [
            WorkerJoined(began + at, f"w{number}-{i}", "n", Capacity((0,)))
            for i, at in enumerate(times)
        ]
        note = Note("written a week later, while no master ran")
        events += [UserRequested(began + 604_800.0, "n", UserAction.NOTE, "ada", note=note)]
    if not is_open:
        closed_at = 1000.0 * len(runs) + 500.0
        late = WorkerJoined(closed_at + 7200.0, "w", "n", Capacity((0,)))
        events += [StudyClosed(closed_at), late]  # what programs tell while no master runs
    engine = Engine(make_pruner)
    for event in events:
        engine.handle(event)
    directory = StudyDirectory(tmp_path_factory.mktemp("run") / "study").create()
    with Ledger.create(directory, {"format": FORMAT}) as ledger:
        ledger.append(events)
    state = LedgerReader(directory).run_state()
    assert sum(state.run_seconds) == pytest.approx(engine.active_seconds)
    assert list(state.run_seconds) == [float(max(times)) for times in runs if any(times)]


def test_a_run_whose_clock_was_put_back_takes_no_negative_time(directory: StudyDirectory) -> None:
    late = [WorkerJoined(400.0, f"w{n}", "n", Capacity((0,))) for n in range(200)]
    with Ledger.create(directory, {"format": FORMAT}) as ledger:
        ledger.append([StudyOpened(1000.0, StudyConfig(trials=1, goals=GOALS, seed=0)), *late])
    assert list(LedgerReader(directory).run_state().run_seconds) == []
