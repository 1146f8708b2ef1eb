"""Masters that die at any write: nothing is done before it is written."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest

from hptune.core.attempt import Attempt, AttemptId
from hptune.core.engine.engine import Engine
from hptune.core.messages import Event, FinishReason, PackingDecided
from hptune.core.trial import Params, Trial
from hptune.errors import StorageFullError
from hptune.storage.ledger import Ledger
from hptune.worker.orders import AttemptOrder
from masters import (
    Files,
    MasterKilled,
    Recorder,
    SimulatedStudy,
    check_whole,
    new_ledger,
    old_ledger,
    results,
    undisturbed,
)
from simulated import SimulatedExecutor
from simulated_parts import Needs, SimulatedWorker


@pytest.mark.parametrize("search", ["random", "grid"])
def test_a_master_may_die_at_any_write(tmp_path: Path, search: str) -> None:
    expected, writes = undisturbed(tmp_path / "whole", SimulatedStudy(search))
    assert writes > 20
    for when in ("die_before", "die_after"):
        for number in range(1, writes + 1):
            path = tmp_path / f"{when}-{number}"
            study = SimulatedStudy(search)
            with new_ledger(path) as ledger, pytest.raises(MasterKilled):
                study.run(Recorder(ledger, **{when: number}), Engine())
            with old_ledger(path) as (ledger, engine):
                finish = study.run(Recorder(ledger), engine)
                assert finish.finish_reason is FinishReason.DONE
                assert results(engine.trials) == expected
                check_whole(ledger, engine, study)


@pytest.mark.parametrize("search", ["random", "grid"])
def test_every_master_may_die_again_and_again(tmp_path: Path, search: str) -> None:
    expected, _ = undisturbed(tmp_path / "whole", SimulatedStudy(search))
    path = tmp_path / "study"
    study = SimulatedStudy(search)
    with new_ledger(path) as ledger, pytest.raises(MasterKilled):
        study.run(Recorder(ledger, die_after=3), Engine())
    for life in range(4, 100):
        with old_ledger(path) as (ledger, engine):
            try:
                study.run(Recorder(ledger, die_after=life), engine)
            except MasterKilled:
                continue
            assert results(engine.trials) == expected
            check_whole(ledger, engine, study)
            break
    assert study.masters > 3


def idle(params: Params) -> Needs:
    return Needs(memory_bytes=10**8 * (1 + int(params["layers"] or 0)), busy=0.2)


def test_a_packed_study_may_lose_its_master_at_any_write(tmp_path: Path) -> None:
    workers = [SimulatedWorker(name="a", cores=2, memory_bytes=10**10)]

    def study() -> SimulatedStudy:
        return SimulatedStudy(trials=12, workers=workers, needs=idle)

    expected, writes = undisturbed(tmp_path / "whole", study())
    for number in range(3, writes + 1, 2):
        path = tmp_path / str(number)
        with new_ledger(path) as ledger, pytest.raises(MasterKilled):
            study().run(Recorder(ledger, die_after=number), Engine())
        with old_ledger(path) as (ledger, engine):
            others = study()
            others.masters = 1
            assert others.run(Recorder(ledger), engine).finish_reason is FinishReason.DONE
            assert results(engine.trials) == expected
            check_whole(ledger, engine, others)
            plans = [e.plan for e in ledger.events() if isinstance(e, PackingDecided)]
            assert plans[-1].cores.most > 1


def test_a_full_disk_ends_the_study_and_loses_nothing(tmp_path: Path) -> None:
    class FullDisk(Recorder):
        def append(
            self,
            events: Sequence[Event],
            *,
            trials: Iterable[Trial],
            attempts: Iterable[Attempt],
        ) -> None:
            if self.writes == 12:
                raise StorageFullError("no room")
            super().append(events, trials=trials, attempts=attempts)

    expected, _ = undisturbed(tmp_path / "whole", SimulatedStudy())
    study = SimulatedStudy()
    with new_ledger(tmp_path / "study") as ledger, pytest.raises(StorageFullError):
        study.run(FullDisk(ledger), Engine())
    with old_ledger(tmp_path / "study") as (ledger, engine):
        study.run(Recorder(ledger), engine)
        assert results(engine.trials) == expected


def test_nothing_is_done_before_it_is_written(tmp_path: Path) -> None:
    started: set[AttemptId] = set()
    kept: set[int] = set()

    class Written(Recorder):
        def __init__(self, ledger: Ledger) -> None:
            super().__init__(ledger)
            self.over: set[int] = set()

        def append(
            self,
            events: Sequence[Event],
            *,
            trials: Iterable[Trial],
            attempts: Iterable[Attempt],
        ) -> None:
            trials = [*trials]
            super().append(events, trials=trials, attempts=attempts)
            self.over.update(trial.number for trial in trials if trial.state.is_final)

    class Watched(SimulatedExecutor):
        def start(self, order: AttemptOrder) -> None:
            assert order.attempt in recorder.attempts, f"{order.attempt} is not written down"
            started.add(order.attempt)
            super().start(order)

    class WatchedFiles(Files):
        def keep_best(self, trials: Sequence[Trial]) -> None:
            for trial in trials:
                assert trial.number in recorder.over, f"trial {trial.number} is not written down"
                kept.add(trial.number)

    with new_ledger(tmp_path / "study") as ledger:
        recorder = Written(ledger)
        study = SimulatedStudy()
        study.executor = Watched
        study.files = WatchedFiles()
        study.run(recorder, Engine())
    assert {name.trial for name in started} == {0, 1, 2, 3, 4}
    assert kept
