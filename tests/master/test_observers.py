"""What a run tells its display and its cluster."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fake_study import running, snapshot, trial
from hptune.clusters.base import Cluster
from hptune.clusters.layout import WorkerLayout
from hptune.config.asked import asked
from hptune.config.settings import StudySettings
from hptune.core.goals import Goals
from hptune.core.notice import Notice, Subject
from hptune.core.resources import Resources
from hptune.core.snapshot import StudySnapshot
from hptune.core.trial import Trial
from hptune.core.workers import Workers
from hptune.executors.base import Executor, RunContext
from hptune.master.notify import Notifier
from hptune.master.observers import RunDisplay, RunObservers
from hptune.master.workforce import Workforce, runnable
from hptune.reporting.terminal.notifications import Notifications
from hptune.reporting.terminal.progress import RunHeader
from hptune.reporting.terminal.report_checks import ReportChecks
from hptune.user_code.source import ObjectiveSource, SourceKind
from hptune.worker.dask.study_access import StudyAccess


class Jobs(Cluster):
    """Jobs that are never there; remembers how many trials they were wanted for."""

    def __init__(self) -> None:
        self.wanted: list[Mapping[Resources, int]] = []
        self.news: list[Notice] = []

    def open(self, run: RunContext) -> None: ...

    def executor(self, layout: WorkerLayout, access: StudyAccess | None) -> Executor:
        raise NotImplementedError

    def trials_at_once(self, layout: WorkerLayout) -> int:
        return 0

    def text(self, layout: WorkerLayout) -> str:
        return "in jobs"

    def scale_to(self, sizes: Mapping[Resources, int], workers: Mapping[str, str]) -> None:
        self.wanted.append(sizes)
        self.news += [
            Notice("Slurm: 3 pending in gpu: Priority", Subject.JOBS),
            Notice("job 7 is gone"),
        ]

    def notices(self) -> Sequence[Notice]:
        news, self.news = self.news, []
        return news

    def jobs_text(self, now: float) -> str:
        return "3 pending in gpu: Priority"

    def close(self, *, force: bool = False) -> None: ...


class Screen:
    def __init__(self) -> None:
        self.notes: list[Notice] = []
        self.jobs: list[str] = []
        self.reasons: list[str] = []

    def busy(self, words: str) -> None: ...

    def start(self, header: RunHeader) -> None: ...

    def update(self, snapshot: StudySnapshot, ended: Sequence[Trial], now: float) -> None:
        self.jobs.append(snapshot.jobs)
        self.reasons.append(snapshot.stall_reason)

    def note(self, notice: Notice) -> None:
        self.notes.append(notice)

    def stop(self) -> None: ...


class NoWorkers:
    workers: Mapping[str, str] = {}

    def notices(self) -> Sequence[Notice]:
        return ()


def observers(path: Path, jobs: Jobs, screen: Screen) -> RunObservers:
    model = path / "model.py"
    model.write_text("def objective(hp, trial): return 1.0")
    source = ObjectiveSource(SourceKind.FILE, str(model))
    settings = StudySettings(source=source, working_directory=str(path))
    executor: Any = NoWorkers()
    workers = Workforce(asked(settings), jobs)
    notifier = Notifier(settings, str(path), print)
    reports = ReportChecks("none", Goals(()), None, has_own_epochs=False)
    lines = Notifications(Workers(), reports)
    return RunObservers(RunDisplay(screen), lines, workers, executor, notifier)


@pytest.mark.parametrize(
    ("others", "wanted"),
    [
        ({}, {Resources(): 7}),
        ({"sizes": {Resources(cpus=2): 2}}, {Resources(cpus=2): 2, Resources(): 5}),
        ({"is_first": True}, {Resources(): 1}),
        ({"is_first": True, "sizes": {Resources(cpus=2): 2}}, {Resources(cpus=2): 1}),
        ({"is_first": True, "paused_by": "ada"}, {}),
        ({"is_first": True, "stopping": "Ctrl-C"}, {}),
    ],
)
def test_workers_are_found_for_the_trials_that_may_begin(
    others: dict[str, Any], wanted: dict[Resources, int]
) -> None:
    assert runnable(replace(snapshot(budget=7), **others)) == wanted


def test_while_a_study_is_paused_its_jobs_are_wanted_for_running_trials_only(
    tmp_path: Path,
) -> None:
    jobs = Jobs()
    observer = observers(tmp_path, jobs, Screen())
    large = Resources(cpus=4)
    study = replace(snapshot(trial(0, value=0.5), runs=(running(1),)), sizes={large: 1})
    paused = replace(study, paused_by="ada")
    for each in (study, paused, replace(paused, running=(), sizes={}), study):
        observer.update(each, (), 1.0)
    # No other size is asked for: it could need a job of its own.
    wanted = {large: 1, study.usual: 8}
    assert jobs.wanted == [wanted, {large: 1}, {}, wanted]


@pytest.mark.parametrize(
    ("is_local", "after", "reason"),
    [(True, 1.0, ""), (True, 9.0, "waiting for a worker"), (False, 1.0, "waiting for a worker")],
)
def test_workers_of_this_machine_have_a_moment_to_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_local: bool, after: float, reason: str
) -> None:
    jobs, screen = Jobs(), Screen()
    monkeypatch.setattr(Jobs, "is_local", is_local)
    observer = observers(tmp_path, jobs, screen)
    waits = replace(snapshot(stall_reason="waiting for a worker"), workers=0)
    observer.update(waits, (), observer.began_at + after)
    assert screen.reasons == [reason]


def test_packing_that_grows_in_steps_takes_one_line(tmp_path: Path) -> None:
    screen = Screen()
    observer = observers(tmp_path, Jobs(), screen)

    def lines() -> list[str]:
        return [each.text for each in screen.notes if each.subject is Subject.PACKING]

    steps = ["", *(f"up to {most} trials share a core" for most in (2, 4, 8))]
    for second, packing in enumerate(steps):
        observer.update(replace(snapshot(), packing=packing), (), float(second))
    assert lines() == []
    for at in (5.0, 20.0, 30.0):
        observer.update(replace(snapshot(), packing=steps[-1]), (), at)
    assert lines() == steps[-1:]
    with observer.until_stopped():
        observer.update(replace(snapshot(), packing="1 trial per core"), (), 31.0)
    assert lines() == [steps[-1], "1 trial per core"], "at the end of the run"


def test_the_jobs_are_part_of_the_state_and_lines_on_them_say_so(tmp_path: Path) -> None:
    screen = Screen()
    observers(tmp_path, Jobs(), screen).update(snapshot(), (), 1.0)
    assert screen.jobs == ["3 pending in gpu: Priority"]
    assert [notice.subject for notice in screen.notes] == [Subject.JOBS, Subject.OTHER]


def test_what_became_of_jobs_since_the_last_update_is_shown_at_the_end(tmp_path: Path) -> None:
    jobs, screen = Jobs(), Screen()
    observer = observers(tmp_path, jobs, screen)
    with observer.until_stopped():
        observer.update(snapshot(), (), 1.0)
        jobs.news.append(Notice("job 8 is gone"))
    assert [notice.text for notice in screen.notes][-2:] == ["job 7 is gone", "job 8 is gone"]


def test_each_update_looks_for_a_failure_of_the_mirror(tmp_path: Path) -> None:
    looks: list[str] = []
    observer = replace(
        observers(tmp_path, Jobs(), Screen()), mirror=lambda: looks.append("at its log")
    )
    observer.update(snapshot(), (), 1.0)
    assert looks == ["at its log"]
