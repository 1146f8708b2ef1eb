"""The loop over a simulated cluster: whole studies in moments."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from hptune.core.attempt import Outcome
from hptune.core.engine.engine import Engine
from hptune.core.messages import Event, Finish, FinishReason, StopRequested
from hptune.core.trial import TrialState
from hptune.master.loop import POLL_SECONDS
from masters import (
    SPACE,
    Observer,
    Recorder,
    SimulatedStudy,
    attempts_of,
    check_whole,
    new_ledger,
    old_ledger,
    results,
    undisturbed,
)
from simulated import SimulatedExecutor
from simulated_parts import Faults, SimulatedWorker


def test_a_study_is_repeated_event_by_event(tmp_path: Path) -> None:
    stories = []
    for name in ("one", "two"):
        with new_ledger(tmp_path / name) as ledger:
            faults = Faults(killed_attempts=0.3, stragglers=0.2, worker_life_seconds=9.0,
                            replaced_after_seconds=2.0)  # fmt: skip
            SimulatedStudy(trials=12, faults=faults).run(Recorder(ledger), Engine())
            stories.append([*ledger.events()])
    assert stories[0] == stories[1]
    assert len(stories[0]) > 50


def test_faults_change_no_result(tmp_path: Path) -> None:
    expected, _ = undisturbed(tmp_path / "whole", SimulatedStudy(trials=20))
    faults = Faults(killed_attempts=0.4, stragglers=0.2, worker_life_seconds=40.0,
                    replaced_after_seconds=1.0)  # fmt: skip
    study = SimulatedStudy(trials=20, faults=faults)
    with new_ledger(tmp_path / "study") as ledger:
        engine = Engine()
        study.run(Recorder(ledger), engine)
        events = [*ledger.events()]
    assert results(engine.trials) == expected
    lost = [each for each in attempts_of(engine, events) if each.outcome is Outcome.LOST]
    assert len(lost) >= 3, "the faults did not happen"


def test_a_grid_is_searched_to_its_end(tmp_path: Path) -> None:
    with new_ledger(tmp_path / "study") as ledger:
        engine = Engine()
        finish = SimulatedStudy("grid", trials=None).run(Recorder(ledger), engine)
    assert finish.finish_reason is FinishReason.EXHAUSTED
    seen = {SPACE.key(trial.params) for trial in engine.trials}
    assert len(seen) == len([*engine.trials]) == SPACE.grid(3).count


def test_workers_may_come_late_and_all_be_gone_for_a_while(tmp_path: Path) -> None:
    workers = [
        SimulatedWorker(name="early", joins_seconds=60.0, leaves_seconds=63.0),
        SimulatedWorker(name="late", joins_seconds=600.0),
    ]
    study = SimulatedStudy(trials=4, workers=workers)
    observer, engine = Observer(), Engine()
    with new_ledger(tmp_path / "study") as ledger:
        study.run(Recorder(ledger), engine, observer=observer)
    notices = {snapshot.stall_reason for snapshot in observer.snapshots}
    assert "waiting for a worker" in notices
    assert engine.active_seconds > 600.0
    assert len([*engine.trials]) == 4


def test_a_stop_lets_attempts_go_at_their_next_epoch(tmp_path: Path) -> None:
    study = SimulatedStudy(trials=50)

    def requests(executor: SimulatedExecutor) -> Sequence[Event]:
        now = executor.clock.now()
        if now % 1_000_000 < 10.0:
            return ()
        return [StopRequested(now, FinishReason.INTERRUPTED, "Ctrl-C")]

    with new_ledger(tmp_path / "study") as ledger:
        engine = Engine()
        finish = study.run(Recorder(ledger), engine, requests=requests)
        assert finish == Finish(FinishReason.INTERRUPTED, "Ctrl-C")
        assert 10.0 <= engine.active_seconds < 12.0
    with old_ledger(tmp_path / "study") as (ledger, engine):
        assert not any(trial.state is TrialState.RUNNING for trial in engine.trials)
        study.run(Recorder(ledger), engine)
        check_whole(ledger, engine, study)
        assert len([*engine.trials]) == 50


def test_the_display_is_told_every_end_once(tmp_path: Path) -> None:
    workers = [SimulatedWorker(name=f"w{number}", cores=64) for number in range(8)]
    observer = Observer()
    with new_ledger(tmp_path / "study") as ledger:
        study = SimulatedStudy(trials=55, workers=workers)
        recorder = Recorder(ledger)
        study.run(recorder, Engine(), observer=observer)
    assert sorted(trial.number for trial in observer.ended) == [*range(55)]
    last = observer.snapshots[-1]
    assert (last.ended, last.running) == (55, ())


def test_nothing_is_polled_more_often_than_needed(tmp_path: Path) -> None:
    asked = 0

    def requests(executor: SimulatedExecutor) -> Sequence[Event]:
        nonlocal asked
        asked += 1
        return ()

    with new_ledger(tmp_path / "study") as ledger:
        engine = Engine()
        recorder = Recorder(ledger)
        SimulatedStudy(trials=4).run(recorder, engine, requests=requests)
    assert asked <= engine.active_seconds / POLL_SECONDS + recorder.writes
