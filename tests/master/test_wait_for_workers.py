"""Workers are held back until there are enough of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from hptune.clusters.slurm_jobs import SlurmWorkers
from hptune.config.settings import StudySettings
from hptune.core.messages import (
    Event,
    FinishReason,
    StopRequested,
    WorkerJoined,
    WorkerLeaving,
    WorkerLeft,
)
from hptune.core.resources import Capacity
from hptune.errors import UsageError
from hptune.master.wait_for_workers import WorkerGate
from hptune.user_code.source import ObjectiveSource, SourceKind
from simulated_parts import VirtualClock


def joined(name: str, at: float = 0.0) -> WorkerJoined:
    return WorkerJoined(at, name, "node", Capacity(cpus=(0,)))


STOP = StopRequested(1.0, FinishReason.INTERRUPTED, "")


def test_workers_are_held_back_until_there_are_enough_and_nothing_else_is() -> None:
    clock = VirtualClock(7.0)
    gate = WorkerGate(lambda: 2, clock)
    assert gate([joined("a"), STOP]) == [STOP]
    assert gate([WorkerLeft(2.0, "a", ""), joined("b")]) == []
    assert gate([WorkerLeaving(3.0, "b", ""), joined("c")]) == []
    assert gate([joined("d")]) == [joined("c", at=7.0), joined("d", at=7.0)]
    later: list[Event] = [WorkerLeft(4.0, "d", ""), joined("e", at=5.0)]
    assert gate(later) == later


def test_when_fewer_are_enough_the_waiting_is_over() -> None:
    least = [2]
    gate = WorkerGate(lambda: least[0], VirtualClock(7.0))
    assert gate([joined("a")]) == []
    least[0] = 1
    assert gate([]) == [joined("a", at=7.0)]


@pytest.mark.parametrize(("shapes", "most"), [("", 3), ("max_jobs = 2", 2), ("max_jobs = 5", 3)])
def test_more_workers_than_there_can_be_are_refused(tmp_path: Path, shapes: str, most: int) -> None:
    config = tmp_path / "slurm.toml"
    config.write_text(f'partition = "gpu"\nwalltime = "10"\n{shapes}')
    source = ObjectiveSource(SourceKind.FILE, "/model.py")
    given = StudySettings(source=source, working_directory="/")
    with pytest.raises(UsageError, match=f"--min-workers is 4, but there are {most} workers at"):
        SlurmWorkers(given, tmp_path / "study", slurm=str(config), max_jobs=3, min_workers=4)
