"""How the trials of programs end: blocks, loops, errors, and other processes that tell."""

from __future__ import annotations

import errno
import itertools
import multiprocessing
from collections.abc import Callable
from pathlib import Path
from typing import cast

import pytest

import hptune
from asked_studies import Clock, opened, states
from hptune.ask_tell import followed
from hptune.ask_tell.followed import FollowedStudy
from hptune.ask_tell.session import Session
from hptune.ask_tell.study import AskedStudy
from hptune.core.attempt import Cause
from hptune.core.messages import Command, Event
from hptune.core.trial import TrialState
from hptune.errors import StudyOverError, UsageError
from hptune.master import programs
from hptune.master.replay import replay
from hptune.storage.directory import StudyDirectory
from hptune.storage.ledger import LedgerReader

COMPLETE, FAILED, WAITING = TrialState.COMPLETE, TrialState.FAILED, TrialState.WAITING


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(followed, "time", clock)
    return clock


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "study"


@pytest.mark.parametrize(
    ("error", "cause", "state"),
    [
        (FileNotFoundError(errno.ENOENT, "no such file", "missing.csv"), Cause.EXCEPTION, FAILED),
        (RuntimeError("CUDA error: uncorrectable ECC error"), Cause.WORKER_LOST, WAITING),
        (RuntimeError("CUDA out of memory"), Cause.DEVICE_OUT_OF_MEMORY, WAITING),
        (RuntimeError("DefaultCPUAllocator: can't allocate"), Cause.OUT_OF_MEMORY, WAITING),
    ],
)
def test_an_error_in_a_block_means_what_it_does_in_other_trials(
    path: Path, error: Exception, cause: Cause, state: TrialState
) -> None:
    study = opened(path)
    with study.ask():
        raise error
    (attempt,) = LedgerReader(StudyDirectory(path)).attempts()
    assert (attempt.cause, states(study)) == (cause, [state])


def test_a_program_that_fails_fails_its_trial_and_the_loop_gets_the_next(path: Path) -> None:
    study = opened(path, trials=2)
    for trial in study.trials_to_run():
        with trial:
            hptune.run_program(["false"], trial, trial.hp)
    ends = [(each.state, each.reason) for each in study.trials]
    assert ends == [(FAILED, "false ended with exit code 1")] * 2


@pytest.mark.parametrize("error", [None, ValueError("bad luck")])
def test_a_block_that_ends_past_its_lease_warns(
    path: Path, clock: Clock, error: Exception | None
) -> None:
    study = opened(path, lease="1h")

    def train() -> None:
        with study.ask() as trial:
            trial.report(1, loss=0.5)
            clock.ahead_seconds = 3601.0
            study.ask()
            if error is not None:
                raise error

    with pytest.warns(UserWarning, match=r"attempt 0\.0 is over"):
        train()
    assert study.tell("0.1", loss=1.0).value == 1.0


def test_an_error_of_use_gives_the_trial_back(path: Path) -> None:
    study = opened(path)
    with pytest.raises(UsageError, match="the study needs the metric"), study.ask() as trial:
        trial.tell(los=1.0)
    with pytest.raises(UsageError, match="the study needs the metric"), study.ask() as trial:
        trial.report(1, los=1.0)
    assert states(study) == [WAITING]


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("tells", [True, False])
def test_a_loop_whose_trials_other_processes_train(path: Path, tells: bool) -> None:
    study, other = opened(path), hptune.open_study(path)
    for trial in study.trials_to_run():
        theirs = other.asked_trial(trial.number)
        theirs.report(1, loss=0.5)
        if tells:
            theirs.tell()
    assert states(study) == [COMPLETE] * 4
    assert {trial.value for trial in study.trials} == {0.5}


def test_a_trial_that_another_process_was_told_to_stop_is_pruned(path: Path) -> None:
    study = opened(path, trials=9, epochs=9, pruner="asha", min_epochs=1)
    study.ask().report(1, loss=0.0)
    trial = study.ask()
    with trial:
        theirs = hptune.open_study(path).asked_trial(trial.number)
        theirs.report(1, loss=9.0)
        assert theirs.should_stop()
    assert states(study)[1] is TrialState.PRUNED


@pytest.mark.parametrize("reports_after_the_stop", [False, True])
@pytest.mark.parametrize("is_other_process", [False, True])
@pytest.mark.parametrize("by", ["user", "time limit"])
def test_a_result_counts_if_its_program_has_not_learned_of_the_stop(
    path: Path, clock: Clock, by: str, *, is_other_process: bool, reports_after_the_stop: bool
) -> None:
    study = opened(path, epochs=9, timeout="1h")
    trial = study.ask()
    trial.report(1, loss=0.5)
    if by == "user":
        assert Session(StudyDirectory(path)).stop("stopped by ada")
    else:
        clock.ahead_seconds = 3601.0
    if reports_after_the_stop:
        trial.report(2, loss=0.4)
        assert trial.should_stop()
    told = study.tell(trial.number if is_other_process else trial, loss=0.1)
    assert told.state is (WAITING if reports_after_the_stop else COMPLETE)


@pytest.mark.parametrize(
    ("failed", "reason"),
    [
        (ValueError("bad luck"), "ValueError: bad luck"),
        (AssertionError(), "AssertionError"),
        (str(AssertionError()), "its program told no result"),
    ],
)
def test_an_exception_is_a_reason(path: Path, failed: str | Exception, reason: str) -> None:
    study = opened(path)
    trial = study.ask()
    trial.report(1, loss=0.5)
    told = study.tell(trial, failed=failed)
    assert (told.state, told.reason) == (FAILED, reason)
    with pytest.raises(UsageError, match="failed is True; allowed are"):
        study.tell(study.ask(), failed=True)  # type: ignore[arg-type]


def test_what_a_program_does_with_its_params_changes_no_study(path: Path) -> None:
    study = opened(path)
    trial = study.ask()
    before = dict(trial.params)
    cast(dict[str, object], trial.params)["x"] = 7.0
    trial.tell(loss=1.0)
    assert study.trials[0].params == before


def test_a_time_limit_stops_the_only_program(path: Path, clock: Clock) -> None:
    trial = opened(path, timeout="1h", lease="9h").ask()
    clock.ahead_seconds = 3601.0
    trial.report(1, loss=1.0)
    assert trial.should_stop()


def test_a_study_that_ended_by_failures_continues_when_it_is_opened(path: Path) -> None:
    study = opened(path)
    trials = study.trials_to_run()
    for trial in itertools.islice(trials, 3):
        trial.fail("no data")
    with pytest.warns(UserWarning, match="the first 3 trials all failed the same way: no data"):
        assert not list(trials)
    again = opened(path)
    for trial in again.trials_to_run():
        trial.tell(loss=1.0)
    assert states(again) == [FAILED] * 3 + [COMPLETE]
    with pytest.raises(StudyOverError):
        opened(path).ask()
    assert replay(StudyDirectory(path)).difference is None


@pytest.mark.parametrize("event", range(1, 6))
def test_a_call_that_is_interrupted_while_it_reads(
    path: Path, monkeypatch: pytest.MonkeyPatch, event: int
) -> None:
    study, other = opened(path), hptune.open_study(path)
    trial, theirs = study.ask(), other.ask()
    other.tell(theirs, loss=1.0)
    follow = FollowedStudy.follow
    monkeypatch.setattr(FollowedStudy, "follow", interrupted_at(event, follow))
    with pytest.raises(KeyboardInterrupt):
        study.tell(trial, loss=2.0)
    monkeypatch.setattr(FollowedStudy, "follow", follow)
    study.tell(trial, loss=2.0)
    assert study.ask().number == 2
    assert replay(StudyDirectory(path)).difference is None


def interrupted_at(
    number: int, follow: Callable[[FollowedStudy, Event], list[Command]]
) -> Callable[[FollowedStudy, Event], list[Command]]:
    calls = iter(range(1, number))

    def interrupted(study: FollowedStudy, event: Event) -> list[Command]:
        if next(calls, None) is None:
            raise KeyboardInterrupt
        return follow(study, event)

    return interrupted


# --- processes that have ended --------------------------------------------------------------


def trains(study: AskedStudy) -> None:
    study.session.ends_with_process = True
    study.ask()


def only_asks(study: AskedStudy) -> None:
    study.ask()


def in_a_container(study: AskedStudy) -> None:
    programs._namespace = lambda: "7"
    trains(study)


def on_another_machine(study: AskedStudy) -> None:
    programs.socket.gethostname = lambda: "another"  # type: ignore[attr-defined]
    trains(study)


@pytest.mark.parametrize(
    ("asks", "state"),
    [
        (trains, WAITING),
        (only_asks, TrialState.RUNNING),
        (in_a_container, TrialState.RUNNING),
        (on_another_machine, TrialState.RUNNING),
    ],
)
def test_only_the_trials_of_processes_that_ended_here_are_over(
    path: Path, asks: Callable[[AskedStudy], None], state: TrialState
) -> None:
    study = opened(path)
    trains(study)
    other = multiprocessing.get_context("fork").Process(
        target=lambda: asks(hptune.open_study(path))
    )
    other.start()
    other.join()
    study.session.end_gone()
    assert states(study) == [TrialState.RUNNING, state]


def test_a_process_with_the_id_of_one_that_has_ended(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = opened(path)
    with monkeypatch.context() as patch:
        patch.setattr(programs, "began", lambda _: "1")
        trains(study)
    trains(study)
    study.session.end_gone()
    assert states(study) == [WAITING, TrialState.RUNNING]
