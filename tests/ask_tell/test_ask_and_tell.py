"""Programs ask a study for trials and tell their results."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pytest

import hptune
from asked_studies import SPACE, Clock, opened, states
from commands import Commands
from hptune.ask_tell import followed, state
from hptune.ask_tell.study import open_again
from hptune.clusters.jobs import jobs_name
from hptune.core.attempt import Cause, Outcome
from hptune.core.messages import UserRequested
from hptune.core.resources import Resources
from hptune.core.trial import Suggestion, TrialState
from hptune.core.user_requests import UserAction
from hptune.errors import (
    NoTrialError,
    StudyLockedError,
    StudyOverError,
    TrialOverError,
    UsageError,
)
from hptune.master.replay import replay
from hptune.master.resume_plan import Changes
from hptune.reporting.results.view import StudyState
from hptune.storage.directory import StudyDirectory
from hptune.storage.ledger import LedgerReader
from hptune.study.study import Study
from in_process import InProcess


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(followed, "time", clock)
    return clock


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "study"


# --- the way of a trial ---------------------------------------------------------------------


def test_what_is_told_is_the_result(path: Path) -> None:
    study = opened(path)
    trial = study.ask()
    assert (trial.number, trial["x"]) == (0, trial.params["x"])
    trial.report(1, loss=0.5, time=3.0)
    assert not trial.should_stop()
    told = study.tell(trial, loss=0.25)
    assert (told.state, told.value) == (TrialState.COMPLETE, 0.25)
    assert study.best_trial.number == 0
    assert [(each.step, each.value) for each in study.reports(0) if each.metric == "loss"] == [
        (1, 0.5)
    ]


def test_a_setting_that_is_none_is_not_given(path: Path) -> None:
    """As by a script whose own options are None unless its user gives them."""
    names = ("trials", "epochs", "pruner", "min_epochs", "max_failures", "seed")
    given: Any = dict(zip(names, (80, 9, "asha", 2, 3, 7), strict=True))
    hptune.open_study(path, SPACE, "loss:min", **given)
    before = LedgerReader(StudyDirectory(path)).facts()["settings"]
    nothing: Any = dict.fromkeys(names)
    hptune.open_study(path, **nothing)
    assert LedgerReader(StudyDirectory(path)).facts()["settings"] == before


def test_a_wrong_call_says_how_one_is_written(path: Path) -> None:
    with pytest.raises(
        TypeError, match=r"hptune.Float: .*; its arguments are min_value, max_value"
    ):
        hptune.Float(low=0, high=1)
    with pytest.warns(
        UserWarning, match="the step 2 is larger than the range, so 0 is its only val"
    ):
        hptune.open_study(path.with_name("other"), {"x": hptune.Float(0, 1, step=2)}, "loss:min")
    study = opened(path)
    with pytest.raises(TypeError, match=r"study.tell: .*; write study.tell\(trial, loss=0.5\)"):
        study.tell(study.ask(), 0.5)  # type: ignore[call-arg, arg-type]
    for count in (0, 2.5, "3"):
        with pytest.raises(UsageError, match="allowed are whole numbers from 1 on"):
            study.ask(count)  # type: ignore[arg-type]
    assert len(study.trials) == 1


def test_two_never_get_the_same(path: Path) -> None:
    one, other = opened(path), hptune.open_study(path)
    numbers = [one.ask().number, other.ask().number, *(each.number for each in one.ask(5))]
    assert numbers == [0, 1, 2, 3]
    with pytest.raises(NoTrialError, match="other programs have 4 trials") as caught:
        other.ask()
    assert not isinstance(caught.value, StudyOverError)


def test_the_study_is_over_when_all_is_told(path: Path) -> None:
    study = opened(path)
    for number, trial in enumerate(study.trials_to_run()):
        trial.tell(loss=number)
    with pytest.raises(StudyOverError, match="4 trials are over"):
        study.ask()
    assert study.view().state is StudyState.DONE
    assert replay(StudyDirectory(path)).difference is None


def test_a_larger_total_opens_it_again_and_keeps_who_has_a_trial(path: Path) -> None:
    study = opened(path)
    for trial in study.ask(3):
        trial.tell(loss=1.0)
    last = study.ask()
    more = hptune.open_study(path, trials=6)
    assert [each.number for each in more.ask(9)] == [4, 5]
    assert last.tell(loss=0.5).state is TrialState.COMPLETE
    assert replay(StudyDirectory(path)).difference is None


def test_a_failure_a_release_and_a_trial_that_is_given_again(path: Path) -> None:
    study = opened(path)
    failed, released = study.ask(2)
    assert study.tell(failed, failed="diverged").reason == "diverged"
    for attempt in range(1, 7):  # also as often as a worker may have to leave, and more often
        assert released.release().state is TrialState.WAITING
        again = study.ask()
        assert (again.number, str(again.attempt)) == (1, f"1.{attempt}")
        assert again.params == released.params
        released = again


def test_a_machine_whose_clock_is_ahead_ends_no_lease(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trial, wrong = opened(path).ask(), Clock()
    wrong.ahead_seconds = 2.0 * 3600.0
    with monkeypatch.context() as there:
        there.setattr(followed, "time", wrong)
        there.setattr(state, "time", wrong)
        there.setattr("hptune.storage.notes.time", wrong, raising=False)
        Study(path).note("as a user of that machine writes it")
        assert hptune.open_study(path).ask().number == 1
    assert trial.tell(loss=0.5).state is TrialState.COMPLETE


def test_a_trial_by_its_number_is_that_of_another_process(path: Path) -> None:
    trial = opened(path).ask()
    trial.report(2, loss=0.75)
    other = hptune.open_study(path)
    assert other.tell(0).value == 0.75, "what was reported is the result"


# --- blocks and loops -----------------------------------------------------------------------


def test_a_block_tells_how_it_ended(path: Path) -> None:
    study = opened(path, trials=9)
    with study.ask() as trial:
        raise ValueError("bad luck")
    with study.ask() as trial:
        trial.report(1, loss=0.5)
    with study.ask():
        pass
    with study.ask():
        raise hptune.TrialPruned
    with pytest.raises(KeyboardInterrupt), study.ask():
        raise KeyboardInterrupt
    complete, pruned, failed = TrialState.COMPLETE, TrialState.PRUNED, TrialState.FAILED
    assert states(study) == [failed, complete, failed, pruned, TrialState.WAITING]
    assert study.trials[0].reason == "ValueError: bad luck"
    assert "raise ValueError" in study.trials[0].detail
    assert study.trials[2].reason == "its program told no result"


def test_a_loop_that_is_left_gives_its_trial_back(path: Path) -> None:
    study = opened(path)
    for _ in study.trials_to_run():
        break
    assert states(study) == [TrialState.WAITING]


def test_threads_of_one_process_share_a_study(path: Path) -> None:
    study = opened(path, trials=24)
    faults: list[BaseException] = []

    def work() -> None:
        try:
            for trial in study.trials_to_run():
                trial.report(1, loss=trial["x"])
                trial.tell(loss=trial["x"])
        except BaseException as error:
            faults.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not faults
    assert states(study) == [TrialState.COMPLETE] * 24
    assert sum(trial.attempts for trial in study.trials) == 24
    assert replay(StudyDirectory(path)).difference is None


# --- early stopping, budgets, repeats, constraints ------------------------------------------


def test_a_pruner_stops_the_trials_of_programs(path: Path) -> None:
    study = opened(path, trials=12, epochs=9, pruner="asha")
    for trial in study.trials_to_run():
        with trial:
            for epoch in range(1, 10):
                trial.report(epoch, loss=trial.number + 1 / epoch)
                if trial.should_stop():
                    break
    assert states(study)[0] is TrialState.COMPLETE
    assert states(study).count(TrialState.PRUNED) > 5
    assert replay(StudyDirectory(path)).difference is None


def test_a_paused_trial_is_asked_for_again_where_it_was(path: Path) -> None:
    study = opened(path, trials=9, epochs=9, pruner="asha", pruner_mode="promote", confirm=1)
    seen: dict[int, list[int | None]] = {}
    for trial in study.trials_to_run():
        seen.setdefault(trial.number, []).append(trial.resumed_from)
        with trial:
            for epoch in range((trial.resumed_from or 0) + 1, 10):
                trial.report(epoch, loss=trial.number + 1 / epoch)
                if trial.should_stop():
                    break
    assert any(len(steps) > 1 and steps[1] for steps in seen.values()), "one was promoted"
    repeats = [trial for trial in study.trials if trial.confirms is not None]
    assert len(repeats) == 2
    assert {trial.state for trial in repeats} == {TrialState.COMPLETE}


@pytest.mark.parametrize("how", ["by the block", "by the trial", "by its number"])
@pytest.mark.parametrize(
    ("told", "metrics"),
    [({}, {"loss": 0.5, "size": 3.0}), ({"loss": 0.2}, {"loss": 0.2, "size": 2.0})],
)
def test_what_an_earlier_program_has_reported_counts(
    path: Path, told: dict[str, Any], metrics: dict[str, float], how: str
) -> None:
    """It may end between its last report and its result."""
    study = opened(path, trials=1, epochs=3)
    first = study.ask()
    for epoch, loss in enumerate([0.9, 0.2, 0.5], start=1):
        first.report(epoch, loss=loss, size=epoch)
    first.release()
    trial = study.ask()
    assert trial.resumed_from == 3
    if how == "by its number":
        hptune.open_study(path).tell(trial.number, **told)
    elif how == "by the trial":
        trial.tell(**told)
    else:
        with trial:
            if told:
                trial.tell(**told)
    (found,) = study.trials
    assert (found.state, found.metrics) == (TrialState.COMPLETE, metrics)


def test_a_budget_and_a_time_limit_end_the_study(path: Path, clock: Clock) -> None:
    study = opened(path, budget="1core-h", timeout="3h", lease="5h")
    trial = study.ask()
    clock.ahead_seconds = 3700.0
    with pytest.raises(NoTrialError):
        study.ask()
    trial.report(1, loss=1.0)
    assert trial.should_stop()
    trial.tell()
    with pytest.raises(StudyOverError, match="the budget of 1 core hour is spent"):
        study.ask()
    said = open_again(StudyDirectory(path), Changes(settings={"trials": 99}))
    assert said.endswith("the budget of 1 core hour is spent; a larger --budget asks for more")
    more = hptune.open_study(path, budget="2core-h")
    assert more.ask().number == 0, "a trial that was stopped with the study continues"
    clock.ahead_seconds = 12_000.0
    with pytest.raises(NoTrialError):
        more.ask()


def test_constraints_hold(path: Path) -> None:
    study = opened(path, constraints="size<10")
    for trial in study.trials_to_run():
        trial.tell(loss=trial.number, size=20 - 8 * trial.number)
    assert study.best_trial.number == 2


def test_a_program_leaves_the_best_its_checkpoint_as_a_master_does(path: Path) -> None:
    """It may be a trial of a master that was killed before it could keep its model."""
    study = opened(path)
    trial = study.ask()
    checkpoint = trial.directory / "resume" / "5.ckpt"
    checkpoint.parent.mkdir(parents=True)
    checkpoint.touch()
    trial.tell(loss=1.0)
    assert checkpoint.exists()


def test_each_trial_of_the_front_has_its_files_in_best(path: Path) -> None:
    study = hptune.open_study(path, SPACE, ["loss:min", "size:min"], search="random", trials=4)
    for loss, size in ((1, 4), (2, 3), (3, 2), (2.5, 2)):
        trial = study.ask()
        (trial.checkpoint_dir / "weights").write_text(str(trial.number))
        trial.tell(loss=loss, size=size)
        front = {str(each.number) for each in study.best_trials}
        assert {each.name for each in (path / "best").iterdir() if each.name.isdecimal()} == front
        assert all((path / "best" / n / "checkpoint" / "weights").read_text() == n for n in front)
    assert front == {"0", "1", "3"}


def test_the_same_failure_of_the_first_trials_ends_the_study(path: Path) -> None:
    study = opened(path)
    for _ in range(3):
        study.tell(study.ask(), failed="no data")
    assert states(study) == [TrialState.FAILED] * 3
    with pytest.raises(StudyOverError, match="the first 3 trials all failed the same way: no data"):
        study.ask()


# --- leases ---------------------------------------------------------------------------------


def test_a_trial_past_its_lease_is_lost_and_asked_for_again(path: Path, clock: Clock) -> None:
    study = opened(path, lease="1h")
    slow = study.ask()
    clock.ahead_seconds = 3599.0
    assert study.ask().number == 1
    clock.ahead_seconds = 3601.0
    again = study.ask()
    assert (again.number, str(again.attempt)) == (0, "0.1")
    lost = LedgerReader(StudyDirectory(path)).attempts()[0]
    assert (lost.outcome, lost.cause) == (Outcome.LOST, Cause.WORKER_LOST)
    assert lost.reason == "it was not told within its lease of 1h00m"
    with pytest.raises(TrialOverError, match=r"attempt 0\.0 is over: it was not told within"):
        study.tell(slow, loss=0.0)
    assert again.tell(loss=1.0).value == 1.0


def test_a_report_renews_the_lease(path: Path, clock: Clock) -> None:
    study = opened(path, lease="1h")
    trial = study.ask()
    for hours in (0.9, 1.8, 2.7):
        clock.ahead_seconds = 3600 * hours
        trial.report(int(10 * hours), loss=1.0)
        assert study.ask().number > 0
    assert trial.tell(loss=0.5).attempts == 1


def test_a_larger_study_renews_no_lease(path: Path, clock: Clock) -> None:
    opened(path, lease="1h").ask()
    clock.ahead_seconds = 3599.0
    study = opened(path, trials=5)
    clock.ahead_seconds = 3601.0
    assert study.ask().number == 0


def test_a_late_result_counts_if_nobody_asked_meanwhile(path: Path, clock: Clock) -> None:
    study = opened(path, lease="1h")
    trial = study.ask()
    clock.ahead_seconds = 9999.0
    assert study.tell(trial, loss=0.5).state is TrialState.COMPLETE


def test_a_lost_trial_does_not_end_the_loop_that_trained_it(path: Path, clock: Clock) -> None:
    study = opened(path, lease="1h")
    lost = study.ask()
    clock.ahead_seconds = 3601.0
    study.ask()
    with pytest.warns(UserWarning, match=r"attempt 0\.0 is over"), lost:
        lost.report(1, loss=0.5)


def test_a_program_takes_a_trial_of_any_size(path: Path) -> None:
    """Its master sized it, before it left the study to programs."""
    study, large = opened(path, trials=2), Resources(cpus=64, gpus=2, memory_bytes=2**40)
    added = (Suggestion({"x": 0.25, "kind": "a"}, "added", large),)
    request = UserRequested(time.time(), "1", UserAction.ENQUEUE, "ada", added=added)
    with study.session.directory.acquire(is_brief=True) as lock:
        followed_study = study.session.state.caught_up(lock)
        with study.session.state.recorded(followed_study):
            followed_study.happen(request)
    assert sorted(trial.number for trial in study.ask(2)) == [0, 1]


# --- beside masters -------------------------------------------------------------------------


@pytest.fixture
def of_a_master(cli: InProcess) -> Path:
    """Return the study of a finished `hptune run`."""
    cli.file("model.py", "def objective(hp, trial):\n    return hp.Float('x', 0.0, 1.0)\n")
    cli("run", "model.py", "--trials", "2", "--study", "mine", "-q")
    return cli.directory / "mine"


def test_a_study_of_a_master_that_has_ended(of_a_master: Path) -> None:
    with pytest.raises(StudyOverError):
        hptune.open_study(of_a_master).ask()
    study = hptune.open_study(of_a_master, trials=4)
    trial = study.ask()
    assert trial.number == 2
    goal = trial.goals.goal.metric
    trial.tell(**{goal: -1.0})
    assert study.best_trial.number == 2
    assert replay(StudyDirectory(of_a_master)).difference is None


def test_a_change_beside_a_master_is_refused(of_a_master: Path) -> None:
    directory = StudyDirectory(of_a_master)
    with directory.acquire(), pytest.raises(StudyLockedError) as caught:
        hptune.open_study(of_a_master, trials=9)
    assert "is already run by process" in caught.value.message
    assert f"`hptune stop {directory.path}`" in caught.value.message


def test_a_program_that_waits_takes_another_one_for_no_master(
    of_a_master: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first program opens the study, which its last master has left, while others wait."""
    monkeypatch.setattr("hptune.ask_tell.session.PATIENCE_SECONDS", 10.0)
    lock = StudyDirectory(of_a_master).acquire(is_brief=True)
    release = threading.Timer(0.3, lock.release)
    release.start()
    assert hptune.open_study(of_a_master, trials=4).ask().number == 2
    release.join()


def test_a_call_is_refused_while_a_job_waits_to_be_the_master(
    of_a_master: Path, commands: Commands
) -> None:
    (of_a_master / "jobs").mkdir()
    (of_a_master / "jobs" / "master.sbatch").touch()
    job = f"7|{jobs_name(of_a_master)}.master|PENDING|BeginTime|main||N/A|N/A|N/A"
    commands.make("squeue", f"echo '{job}'")
    with pytest.raises(StudyLockedError, match=r"is Slurm job 7 .* continues the study"):
        hptune.open_study(of_a_master, trials=4)


def test_a_master_answers_programs_that_have_trials(cli: InProcess) -> None:
    model = cli.file("model.py", "def objective(hp, trial):\n    return hp.Float('x', 0.0, 1.0)\n")
    path = cli.directory / "mine"
    study = hptune.open_study(path, model, "objective:min", trials=3, search="random")
    trial, told = study.ask(), list[TrialState]()

    def tell() -> None:
        while LedgerReader(StudyDirectory(path)).run_state().without_master:
            time.sleep(0.05)
        trial.report(1, objective=0.5)
        told.append(study.tell(trial, objective=-1.0).state)

    program = threading.Thread(target=tell)
    program.start()
    assert cli("resume", "mine", "-q").code == 0
    program.join()
    assert told == [TrialState.COMPLETE]
    assert states(study) == [TrialState.COMPLETE] * 3
    assert (study.best_trial.number, study.best_trial.value, study.trials[0].attempts) == (
        0,
        -1.0,
        1,
    )
    with pytest.raises(TrialOverError, match="a trial is told once"):
        study.tell(trial, objective=0.0)
    assert replay(StudyDirectory(path)).difference is None


def test_calls_of_others_are_waited_for(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    study = opened(path)
    trial = study.ask()
    monkeypatch.setattr("hptune.ask_tell.calls.PATIENCE_SECONDS", 0.1)
    with StudyDirectory(path).acquire(is_brief=True):
        with pytest.raises(StudyLockedError):
            study.tell(trial, loss=0.5)
        assert Study(path).view().state is StudyState.OPEN, "the lock is held for a moment"
    assert study.tell(trial, loss=0.5).value == 0.5
