"""Programs and masters of one study at once: a table of who runs, and of what a program does."""

from __future__ import annotations

import itertools
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import pytest

import hptune
from asked_studies import SPACE, opened, states
from engine_driver import EngineDriver
from hptune.ask_tell.opening import MasterWaitsError
from hptune.ask_tell.session import Session
from hptune.ask_tell.study import AskedStudy, open_again
from hptune.ask_tell.trial import AskedTrial
from hptune.config.settings import StudySettings
from hptune.core.attempt import AttemptId, Cause
from hptune.core.clock import SystemClock
from hptune.core.messages import (
    AttemptEnded,
    AttemptStarted,
    Event,
    StudyClosed,
    StudyOpened,
    UserRequested,
    WorkerJoined,
)
from hptune.core.resources import Capacity, Resources
from hptune.core.space.space import SearchSpace
from hptune.core.trial import TrialState
from hptune.core.user_requests import UserAction
from hptune.errors import (
    NoTrialError,
    StudyError,
    StudyLockedError,
    StudyOverError,
    TrialOverError,
)
from hptune.master import run
from hptune.master.past import Past
from hptune.master.programs import follows
from hptune.master.replay import replay
from hptune.master.resume_plan import Changes
from hptune.master.user_requests import UserRequests
from hptune.storage.asking import new_request, send
from hptune.storage.directory import StudyDirectory
from hptune.storage.ledger import LedgerReader
from hptune.storage.ledger.codec import encode_event
from hptune.storage.turn import MasterRunsError
from hptune.user_code.source import ObjectiveSource, SourceKind
from in_process import InProcess
from stored_study import stored
from thread_masters import ThreadMaster, beside, result, until

COMPLETE, FAILED, WAITING = TrialState.COMPLETE, TrialState.FAILED, TrialState.WAITING


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "study"


def events(path: Path) -> list[Event]:
    return [*LedgerReader(StudyDirectory(path)).events()]


def ends(path: Path) -> Counter[AttemptId]:
    """Return how often each attempt has ended with a result or a failure."""
    attempts = LedgerReader(StudyDirectory(path)).attempts()
    told = (Cause.RETURNED, Cause.EXCEPTION, Cause.PRUNED)
    return Counter(each.id for each in attempts if each.cause in told)


def check_whole(path: Path) -> None:
    """Check that each attempt was begun and told once, and that the replay is equal."""
    starts = [each for each in events(path) if isinstance(each, AttemptStarted)]
    assert set(Counter(each.attempt for each in starts).values()) <= {1}
    assert {each.pid for each in starts} == {os.getpid()}
    told = Counter(each.trial for each in ends(path).elements())
    assert set(told.values()) <= {1}
    assert replay(StudyDirectory(path)).difference is None


# --- the table ------------------------------------------------------------------------------


def asks(study: AskedStudy, trial: AskedTrial) -> None:
    other = study.ask()
    assert (other.number, states(study)[1]) == (1, TrialState.RUNNING)


def reports(study: AskedStudy, trial: AskedTrial) -> None:
    trial.report(1, loss=0.5)
    assert [each.value for each in study.reports(0)] == [0.5]


def declares(study: AskedStudy, trial: AskedTrial) -> None:
    assert trial.hp.Float("y", 0.0, 1.0, default=0.25) == 0.25
    assert study.trials[0].params["y"] == 0.25


def tells(study: AskedStudy, trial: AskedTrial) -> None:
    assert trial.hp.Float("x", 0.0, 1.0) == trial.hp.get("x")
    assert study.tell(trial, loss=0.25).value == 0.25
    assert (study.trials[0].state, study.trials[0].unused) == (COMPLETE, ("kind",))
    with pytest.raises(TrialOverError, match="a trial is told once"):
        study.tell(trial, loss=1.0)


def fails(study: AskedStudy, trial: AskedTrial) -> None:
    study.tell(trial, failed="diverged")
    assert (study.trials[0].state, study.trials[0].reason) == (FAILED, "diverged")


def releases(study: AskedStudy, trial: AskedTrial) -> None:
    assert trial.release().state is WAITING
    assert str(study.ask().attempt) == "0.1"


def opens(study: AskedStudy, trial: AskedTrial) -> None:
    again = hptune.open_study(study.directory, SPACE, "loss:min")
    assert again.asked_trial(0).attempt == trial.attempt


CALLS = [asks, reports, declares, tells, fails, releases, opens]


def nobody(path: Path) -> Iterator[ThreadMaster | None]:
    yield None


def runs(path: Path) -> Iterator[ThreadMaster]:
    with beside(path) as master:
        yield master


def begins_in_the_middle(path: Path) -> Iterator[ThreadMaster]:
    """The call finds the lock of a master that has not opened the study yet."""
    master = ThreadMaster(path)
    lock = StudyDirectory(path).acquire()

    def begin() -> None:
        lock.release()
        master.start()

    start = threading.Timer(0.1, begin)
    start.start()
    yield master
    start.join()
    master.kill()


def killed_before(path: Path) -> Iterator[ThreadMaster]:
    """A master dies when it has read the call's request, before it has written the answer."""
    with beside(path) as master:
        master.dies("before")
        yield master


def killed_after(path: Path) -> Iterator[ThreadMaster]:
    """A master dies when it has written the answer, before it has carried anything out."""
    with beside(path) as master:
        master.dies("after")
        yield master


def followed_by_another(path: Path) -> Iterator[ThreadMaster]:
    """A master dies with the request, and another one runs before the program has noticed."""
    with beside(path) as first:
        first.suspend()
        masters = [first]

        def replace_it() -> None:
            until(lambda: (path / "requests").stat().st_size > size)
            first.kill()
            masters.append(ThreadMaster(path).start())

        size = (path / "requests").stat().st_size
        change = threading.Thread(target=replace_it)
        change.start()
        yield first
        with (path / "requests").open("a") as file:
            file.write("\n")  # a call that asked for nothing
        change.join()
        masters[-1].kill()


MASTERS = [
    nobody, runs, begins_in_the_middle, killed_before, killed_after, followed_by_another
]  # fmt: skip


@pytest.mark.parametrize("call", CALLS, ids=lambda each: str(each.__name__))
@pytest.mark.parametrize("master", MASTERS, ids=lambda each: str(each.__name__))
def test_each_call_beside_each_master(
    path: Path,
    master: Callable[[Path], Iterator[ThreadMaster]],
    call: Callable[[AskedStudy, AskedTrial], None],
) -> None:
    study = opened(path)
    trial = study.ask()
    for _ in master(path):
        call(study, trial)
    check_whole(path)
    for each in study.trials:
        if each.state is TrialState.RUNNING:
            study.tell(each.number, loss=1.0)
    for left in study.trials_to_run():
        left.tell(loss=1.0)
    assert {each.state for each in study.trials} <= {COMPLETE, FAILED}
    assert [each.name for each in study.space] == [*SPACE, *(["y"] if call is declares else [])]
    check_whole(path)


# --- what a master answers ------------------------------------------------------------------


def test_programs_and_a_masters_own_workers(path: Path) -> None:
    study = opened(path)
    with beside(path, ["a"]) as master:
        until(lambda: master.executor.running)
        mine = study.ask(9)
        assert len(mine) == 3, "the worker has one of four"
        with pytest.raises(
            NoTrialError, match="other programs have 3 trials, and the master's workers 1"
        ):
            study.ask()
        with pytest.raises(TrialOverError, match=r"0\.0 is over: it was never asked for; a worker"):
            study.tell(0, loss=1.0)
        master.executor.end(AttemptId(0, 0), result(0.5))
        until(
            lambda: (
                master.snapshot is not None
                and "waiting for programs" in master.snapshot.stall_reason
            )
        )
        assert not master.executor.running
        for trial in mine:
            trial.report(1, note=1.0)  # which lacks the objective
            trial.tell(loss=1.0)
        until(lambda: study.view().master is None)
    assert states(study) == [COMPLETE] * 4
    with pytest.raises(StudyOverError, match="4 trials are over"):
        study.ask()
    assert replay(StudyDirectory(path)).difference is None


def test_a_study_that_is_stopped_beside_a_master_stays_so(path: Path) -> None:
    study = opened(path)
    with beside(path) as master:
        trials = study.trials_to_run()
        trial = next(trials)
        master.stop()
        trial.report(1, loss=0.5)
        assert trial.should_stop()
        for step in (2, 3):
            trial.report(step, loss=0.5)
        trial.tell()
    with pytest.warns(UserWarning, match="the study in .* is over: stopped by a test"):
        assert not list(trials)
    assert sum(isinstance(each, StudyClosed) for each in events(path)) == 1
    assert hptune.open_study(path).ask().number == 0
    assert sum(isinstance(each, StudyOpened) for each in events(path)) == 3
    assert replay(StudyDirectory(path)).difference is None


@pytest.mark.parametrize(
    ("asked", "says"),
    [(UserAction.PAUSE, "is paused by"), (UserAction.STOP, "is over: stopped by")],
)
def test_what_a_user_asked_holds_when_its_master_is_killed_until_a_user_resumes(
    path: Path, asked: UserAction, says: str
) -> None:
    study = opened(path)
    with beside(path, workers=["w"]) as master:
        until(lambda: master.executor.running)
        master.executor.stop = lambda *_: None  # type: ignore[method-assign]  # it takes its time
        send(StudyDirectory(path), asked, tool="a test")
        until(lambda: master.snapshot and (master.snapshot.paused_by or master.snapshot.stopping))
    with pytest.raises(NoTrialError, match=says):
        study.ask()
    if asked is UserAction.STOP:
        with pytest.warns(UserWarning, match=says):
            assert not list(study.trials_to_run())
    assert "It is open" in open_again(StudyDirectory(path), Changes())
    assert study.ask().number == 0


def test_a_master_whose_clock_is_ahead_ends_no_lease(path: Path) -> None:
    class Ahead(SystemClock):
        def now(self) -> float:
            return super().now() + 2.0 * 3600.0

    trial = opened(path).ask()
    master = ThreadMaster(path, clock=Ahead()).start()
    trial.report(1, loss=0.5)
    assert trial.tell(loss=0.25).state is COMPLETE
    master.stop()


def test_a_master_that_leaves_a_program_its_trial_has_not_left_on_purpose(path: Path) -> None:
    """That of a requeued job has: workers that had to leave too often still count then."""
    study = opened(path)
    with beside(path) as master:
        study.ask()
        master.stop()
    hptune.open_study(path)
    last = [each for each in events(path) if isinstance(each, StudyOpened)][-1]
    assert (last.without_master, last.was_handed_over) == (True, False)


def test_programs_wait_for_the_next_job_of_a_master(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = opened(path)
    trial = study.ask()
    with beside(path):
        pass  # its job is over
    answers = iter([True, True, True, True, False])

    def refuse(directory: StudyDirectory) -> None:
        if next(answers):
            raise StudyLockedError(f"the master of {directory} is Slurm job 7")

    monkeypatch.setattr(run, "refuse_second_master", refuse)
    trial.report(1, loss=0.5)
    assert hptune.open_study(path).asked_trial(0).tell().state is COMPLETE
    with pytest.raises(MasterWaitsError, match="is Slurm job 7"):
        study.ask()
    with pytest.raises(MasterWaitsError, match="is Slurm job 7"):
        hptune.open_study(path, trials=9)
    assert next(study.trials_to_run()).number == 1
    assert next(answers, None) is None


def test_a_study_that_its_first_master_has_yet_to_open(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("hptune.ask_tell.study.open_session", lambda *_: None)
        opened(path)
    with StudyDirectory(path).acquire():
        assert [each.name for each in hptune.open_study(path, SPACE).space] == [*SPACE]
        for change in ({"trials": 9}, {"space": {"x": SPACE["x"]}, "accept_space": True}):
            with pytest.raises(MasterRunsError):
                hptune.open_study(path, **change)


def test_a_study_is_closed_once_by_any_number_of_programs(path: Path) -> None:
    study = opened(path)
    trial = study.ask()
    with beside(path):
        pass  # it is killed
    for step in range(1, 4):
        again = AskedStudy(Session(StudyDirectory(path))).asked_trial(0)
        again.report(step, loss=0.5)
    assert trial.tell(loss=0.5).value == 0.5
    assert sum(isinstance(each, StudyClosed) for each in events(path)) == 1


def test_a_lease_ends_while_other_programs_report(path: Path) -> None:
    study = opened(path)
    other = AskedStudy(study.session, lease_seconds=0.2)
    with beside(path) as master:
        lost, kept = other.ask(), study.ask()
        steps = itertools.count(1)

        def is_lost() -> bool:
            kept.report(next(steps), loss=0.5)
            return states(study)[0] is WAITING

        until(is_lost)
        for _ in range(2):  # three in a row on one host
            again = other.ask()
            assert again.number == 0
            until(lambda: states(study)[0] is WAITING)
        assert master.snapshot is not None
        assert not master.snapshot.unfit_nodes
        with pytest.raises(TrialOverError, match="not told within its lease"):
            lost.tell(loss=1.0)
        assert str(study.ask().attempt) == "0.3"
    check_whole(path)


# --- requests that are none -----------------------------------------------------------------


def request(path: Path, event: tuple[str, str] | None, master: str | None = None) -> str:
    """Ask a master as a program does; return the request's name."""
    directory = StudyDirectory(path)
    owner = directory.owner()
    assert owner is not None
    asked = new_request(UserAction.TRAIN, tool="a test")
    token = owner.token if master is None else master
    directory.requests.append(replace(asked, event=event, master=token))
    return asked.name


def answers(path: Path) -> dict[str, str]:
    return {each.request: each.refused for each in events(path) if isinstance(each, UserRequested)}


JOINS = WorkerJoined(0.0, "n-7-0123abcd", "n", Capacity(()), lease_seconds=60.0)
REPORT = '{"at":1.0,"attempt":[%s],"report":{"step":%s,"metrics":{"loss":1.0}}}'
END = '{"at":1.0,"attempt":[0,0],"ending":{"cause":"returned","metrics":{"loss":1.0},"step":%s}}'


@pytest.mark.parametrize(
    "event",
    [
        None,
        ("Nonsense", "{}"),
        ("WorkerJoined", "{}"),
        ("AttemptEnded", '{"at": 1.0, "attempt": [0, 0, 0, 0], "ending": {"cause": "returned"}}'),
        encode_event(replace(JOINS, worker="a")),
        encode_event(replace(JOINS, lease_seconds=-1.0)),
        encode_event(replace(JOINS, lease_seconds=float("inf"))),
        encode_event(replace(JOINS, lease_seconds=None)),
        encode_event(StudyClosed(0.0)),
        ("Reported", REPORT % ("0,0", 2**63)),
        ("Reported", REPORT % ("0,0", -1)),
        ("Reported", REPORT % ('"a",0', 1)),
        ("Reported", REPORT % ("0,[0]", 1)),
        ("AttemptEnded", END % 2**63),
    ],
)
def test_a_request_that_no_program_makes_is_refused_with_a_line(
    path: Path, event: tuple[str, str] | None, caplog: pytest.LogCaptureFixture
) -> None:
    study = opened(path)
    with beside(path) as master:
        study.ask()
        name = request(path, event)
        assert study.ask().number == 1, "the master goes on"
        (line,) = [each for each in caplog.records if each.name == "hptune.master.user_requests"]
        assert "is refused: programs ask for trials, report, declare and tell" in line.message
        assert line.message.endswith(answers(path)[name])
        assert master.error is None
    check_whole(path)


def test_a_request_to_another_master_is_not_answered(path: Path) -> None:
    study = opened(path)
    with beside(path):
        stale = request(path, encode_event(JOINS), "of another")
        study.ask().tell(loss=1.0)
        assert stale not in answers(path)
    assert not any(isinstance(each, WorkerJoined) and each.node == "n" for each in events(path))


def test_who_is_interrupted_before_a_master_reads_its_call_gets_no_trial(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study, other = opened(path), hptune.open_study(path)
    interrupted = Mock(wraps=time, sleep=Mock(side_effect=KeyboardInterrupt))
    with beside(path) as master:
        master.suspend()
        with monkeypatch.context() as patched:
            patched.setattr("hptune.ask_tell.session.time", interrupted)
            with pytest.raises(KeyboardInterrupt):
                other.ask()
        master.resumed()
        study.ask().tell(loss=1.0)
    assert [each.attempts for each in study.trials] == [1]


def test_a_program_that_dies_before_it_reads_its_answer(path: Path) -> None:
    study = opened(path, trials=1)
    with beside(path):
        request(path, encode_event(replace(JOINS, lease_seconds=0.1)))
        until(lambda: [each.attempts for each in study.trials] == [1])
        until(lambda: states(study) == [WAITING])
        trial = study.ask()
        assert str(trial.attempt) == "0.1"
        trial.tell(loss=1.0)


def test_two_results_at_once_are_one_result(path: Path) -> None:
    study, faults = opened(path), list[Exception]()
    trial = study.ask()
    with beside(path) as master:
        master.suspend()

        def tell(value: float) -> None:
            try:
                hptune.open_study(path).tell(0, loss=value)
            except TrialOverError as error:
                faults.append(error)

        tellers = [threading.Thread(target=tell, args=(value,)) for value in (1.0, 2.0)]
        for teller in tellers:
            teller.start()
        until(lambda: (path / "requests").read_text().count('"AttemptEnded"') == 2)
        master.resumed()
        for teller in tellers:
            teller.join()
    (fault,) = faults
    assert "a trial is told once" in str(fault)
    assert trial.number == 0
    check_whole(path)


def test_an_attempt_ends_once_while_the_engine_is_told_nothing(path: Path) -> None:
    """As while a master measures the steps by which it chooses the devices of a trial."""
    study = opened(path)
    study.ask()
    AskedStudy(study.session, lease_seconds=0.001).ask()
    directory = StudyDirectory(path)
    past = Past.begin(directory, LedgerReader(directory).facts())
    past.read(events(path))
    users = UserRequests(directory.requests, past.engine, SearchSpace, lambda _, new: new, "mine")
    ended = list[AttemptId]()
    for loss in (1.0, 2.0):
        told = encode_event(AttemptEnded(0.0, AttemptId(0, 0), result(loss)))
        asked = new_request(UserAction.TRAIN, tool="a test")
        directory.requests.append(replace(asked, event=told, master="mine"))
        new = users(time.time())
        ended += [each.attempt for each in new if isinstance(each, AttemptEnded)]
    assert sorted(ended) == [AttemptId(0, 0), AttemptId(1, 0)]
    assert [each.refused for each in new if isinstance(each, UserRequested)] == [
        "the trial is over"
    ]


def test_trials_of_several_nodes_are_for_a_masters_workers() -> None:
    driver = EngineDriver()
    driver.open(5, resources=Resources(processes=2, nodes=2))
    with pytest.raises(StudyError, match="its trials run on 2 nodes each, which a program cannot"):
        follows(driver.engine, JOINS, 1.0)


def test_wait_beside_a_master(path: Path, cli: InProcess) -> None:
    study = opened(path)
    with beside(path):
        trial = study.ask()
        teller = threading.Timer(0.5, trial.tell, kwargs={"loss": 0.5})
        teller.start()
        ended = cli("wait", path, "--until", "trial", "--timeout", "20s")
        teller.join()
    assert (ended.code, ended.out) == (0, "trial 0: complete 0.5\n")


def test_a_result_counts_if_its_program_has_not_learned_of_a_masters_stop(path: Path) -> None:
    study = opened(path, trials=9)
    for _ in range(2):
        study.ask().report(1, loss=0.5)
    with beside(path) as master:
        study.asked_trial(0).report(2, loss=0.5)
        master.stop()
        study.asked_trial(1).report(2, loss=0.4)
        other = AskedStudy(Session(StudyDirectory(path)))
        assert other.tell(0, loss=0.25).state is COMPLETE
        assert other.tell(1, loss=0.25).state is WAITING, "it has learned of the stop"
    check_whole(path)


def test_the_code_of_a_study_runs_on_where_it_did_whatever_program_opens_it(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may do so on a machine without that directory, and with variables of its own."""
    file = path.with_name("model.py")
    file.touch()
    source = ObjectiveSource(SourceKind.FILE, str(file))
    given = StudySettings(source=source, working_directory="/there", trials=10).to_json()
    stored(path, settings=given)
    monkeypatch.setenv("KERAS_BACKEND", "jax")
    hptune.open_study(path, trials=11)
    kept = LedgerReader(StudyDirectory(path)).facts()["settings"]
    names = ("source", "working_directory")
    assert kept["trials"] == 11
    assert {name: kept[name] for name in names} == {name: given[name] for name in names}
