from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from fake_study import GOALS, LivingMaster, attempt, parallel, trial
from hptune.core.attempt import (
    BEGINS_AGAIN,
    NEVER_ASKED,
    NO_BETTER,
    USED_UP,
    AttemptId,
    Cause,
    Outcome,
    Report,
)
from hptune.core.budget import Device, DeviceBudget, read_budget
from hptune.core.goals import Comparison, Constraint, Goals
from hptune.core.messages import Finish, FinishReason
from hptune.core.trial import Direction, Goal, TrialState
from hptune.core.user_requests import UserAction, UserRequest
from hptune.reporting.results.best import best_json, best_text
from hptune.reporting.results.summary import (
    closing_text,
    status_json,
    status_text,
    why_without_result,
)
from hptune.reporting.results.trials import trial_text
from hptune.reporting.results.view import StudyView
from hptune.text import NOTHING
from screens import assert_says

VIEW = StudyView(
    directory="runs/my digits",
    search="tpe",
    goals=GOALS,
    budget_trials=10,
    trials=[
        trial(0, value=0.9, step=5, metrics={"val_accuracy": 0.9, "val_loss": 0.31234}),
        trial(1, TrialState.FAILED, reason="OOM"),
        trial(2, TrialState.FAILED, reason="ValueError: bad\nshape"),
        trial(3, TrialState.PRUNED, value=0.95),
        trial(4, TrialState.FAILED, reason="ValueError: bad shape"),
        trial(5, TrialState.RUNNING),
    ],
    attempts=[
        *(attempt(i, ended_at=1040.0 + i, outcome=Outcome.FINISHED) for i in range(5)),
        attempt(5, ended_at=1004.0, outcome=Outcome.LOST, cause=Cause.WORKER_LOST),
        attempt(5, 1, placed_at=1010.0, gpus=("0",)),
    ],
    latest={AttemptId(5, 1): Report(3, {"val_accuracy": 0.8})},
    master=LivingMaster(),
    epochs=5,
    models={0: "runs/my digits/best/model.keras"},
    model_loader="keras",
    run_seconds=(60.0,),
    last_event_at=1060.0,
)
EMPTY = StudyView("runs/new", "random", GOALS, None, trials=[])


@pytest.fixture(autouse=True)
def in_utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize(
    ("reason", "outcome", "words"),
    [
        (NEVER_ASKED, Outcome.FINISHED, "--pruner saves no time: trial 3 trained to its end"),
        (f"{NO_BETTER}: broken", Outcome.ERRORED, f"trial 3 {NO_BETTER}: broken"),
        (f"50 s; 2 {BEGINS_AGAIN} 1", Outcome.RELEASED, f"trial 3: 50 s; 2 {BEGINS_AGAIN} 1"),
        (f"{USED_UP}: epoch 2", Outcome.FINISHED, f"trial 3: {USED_UP}: epoch 2"),
    ],
)
def test_status_says_once_what_attempts_tell_of_the_code(
    reason: str, outcome: Outcome, words: str
) -> None:
    found = [attempt(n, ended_at=1040.0, outcome=outcome, reason=reason) for n in (3, 4)]
    said = status_text(replace(VIEW, attempts=found), now=1100.0)
    assert words in said
    assert "trial 4" not in said


def test_status_shows_the_last_packing_decision() -> None:
    why = "up to 4 trials share a core (each uses 0.27 of it)"
    alone, last = (replace(VIEW.attempts[-1], placed_at=at, why=why) for at in (9e8, 1e9))
    alone = replace(alone, id=AttemptId(3, 0), ended_at=1e9 - 1.0)
    packed = replace(VIEW, attempts=(alone, last))
    assert "packed" not in status_text(packed, now=1100.0), "no two trials shared anything"
    shared = (replace(alone, ended_at=1e9 + 1.0), last)
    both = replace(packed, attempts=shared)
    assert f"\npacked   {why}; 2 of 2 trials shared one\n" in status_text(both, now=1100.0)
    # Those of an earlier run, and its decision, say nothing of this one.
    again = replace(both, run_began_at=2e9)
    assert "packed" not in status_text(again, now=1100.0)
    assert status_json(again, now=1100.0)["packed"] is None
    later = [replace(each, placed_at=each.placed_at + 2e9) for each in shared]
    later = [replace(each, id=AttemptId(each.id.trial, 1), ended_at=None) for each in later]
    again = replace(again, attempts=(*shared, *later))
    assert f"\npacked   {why}; 2 of 2 trials shared one\n" in status_text(again, now=1100.0)
    assert status_json(packed, now=1100.0)["packed"] == why
    assert status_json(VIEW, now=1100.0)["packed"] is None


def test_status_of_a_running_study() -> None:
    assert_says(
        status_text(VIEW, now=1100.0),
        "study 'runs/my digits'",
        "search tpe for val_accuracy (max)",
        "state running on login1 in process 4242 for 1m40s, since 1970-01-01 00:16:40",
        "trials 5/10: 1 complete, 1 pruned, 3 failed, 1 running, 4 to come",
        "retried 1 attempt (1 worker lost)",
        "used 1m40s, 10.1 core minutes, 90 GPU seconds",
        "best 0.9000 val_accuracy (max), trial 0, from epoch 5/5",
        "learning_rate=0.001235 units=128 activation=relu",
        "running epoch val_accuracy time where",
        "5 3/5 0.8000 1m30s node01 GPU 0",
        "failures",
        "2 x ValueError: bad shape (trials 2, 4)",
        "1 x OOM (trial 1)",
        "details: hptune show 'runs/my digits' 4",
    )


def test_large_amounts_are_written_out() -> None:
    """A command that a text shows can be copied."""
    long = [attempt(0, ended_at=1000.0 + 3600.0 * 1234, gpus=("0",))]
    spent = Finish(FinishReason.BUDGET_SPENT, "the budget is spent")
    budget = DeviceBudget(Device.CORE, 1_500_000.0)
    of = replace(VIEW, master=None, attempts=long, device_budget=budget, last_finish=spent)
    shown = status_text(of, now=2000.0)
    assert "1,234 GPU hours" in shown
    assert "--budget 3000000core-h" in shown
    assert read_budget("3000000core-h").hours == 2 * budget.hours
    assert str(budget) == "1500000 core hours"
    over = replace(of, device_budget=DeviceBudget(Device.GPU, 100.0))  # 1,234 hours were used
    assert "--budget 2460gpu-h" in status_text(over, now=2000.0)
    up = Finish(FinishReason.TIME_UP, "up")
    short = replace(of, timeout_seconds=0.3, run_seconds=(0.3,), last_finish=up)
    assert "--timeout 1s" in status_text(short, now=2000.0)


def test_status_marks_what_is_trained_again() -> None:
    again = [*VIEW.trials[:5], trial(5, TrialState.RUNNING, origin="confirm of 0")]
    view = replace(VIEW, trials=again)
    shown = status_text(view, now=1100.0)
    assert "      5    3/5        0.8000  1m30s  node01 GPU 0, confirms trial 0\n" in shown
    assert view.progress.endswith(" and 0/1 confirmations")


def test_a_trial_has_its_own_number_of_epochs() -> None:
    again = [*VIEW.trials[:5], trial(5, TrialState.RUNNING, params={"epochs": 50})]
    assert "      5   3/50  " in status_text(replace(VIEW, trials=again), now=1100.0)
    unknown = replace(VIEW, trials=VIEW.trials[:5])  # it began after the trials were read
    assert "      5    3/5  " in status_text(unknown, now=1100.0)


def test_status_of_a_study_whose_master_is_gone() -> None:
    gone = replace(VIEW, master=None)
    lines = status_text(gone, now=1100.0).splitlines()
    state = "not running: the master is gone (killed, or failed); continue with: hptune resume"
    assert f"state    {state} 'runs/my digits'" in lines
    assert "trials   5/10: 1 complete, 1 pruned, 3 failed, 1 interrupted, 4 to come" in lines
    assert "trial 5 was interrupted; hptune resume continues it" in lines
    data: Any = status_json(gone, now=1100.0)
    assert data["running"] == []
    assert (data["counts"]["RUNNING"], data["counts"]["WAITING"]) == (0, 1)


def test_a_trial_that_was_stopped_is_interrupted_and_one_that_never_began_waits() -> None:
    stopped = trial(1, TrialState.WAITING)
    new = replace(trial(2, TrialState.WAITING), attempts=0)
    view = replace(VIEW, master=None, trials=[VIEW.trials[0], stopped, new], attempts=())
    ended = Finish(FinishReason.INTERRUPTED, "interrupted by Ctrl-C")
    lines = closing_text(view, ended).splitlines()
    assert lines[1] == "  1 complete, 1 interrupted, 8 to come"


def test_status_of_a_finished_and_of_a_new_study() -> None:
    done = replace(VIEW, master=None, budget_trials=5)
    assert "state    done" in status_text(done, now=0.0).splitlines()
    shown = status_text(EMPTY, now=0.0)
    assert_says(
        shown,
        "study runs/new",
        "state not running: the master is gone (killed, or failed); "
        "continue with: hptune resume runs/new",
        "trials 0: no trials yet",
        f"best {NOTHING}",
    )
    for word in ("running  ", "failures", "used", "retried"):
        assert f"\n{word}" not in shown, "there is nothing to say of it"


def test_a_spent_budget_is_no_early_stop_and_the_study_continues_with_a_larger_one() -> None:
    budget = DeviceBudget(Device.GPU, 100.0)
    finish = Finish(FinishReason.BUDGET_SPENT, f"the budget of {budget} is spent")
    spent = replace(VIEW, master=None, device_budget=budget, last_finish=finish)
    lines = closing_text(spent, finish).splitlines()
    assert lines[0] == "The budget of 100 GPU hours is spent: 5/10 trials in 1m00s"
    command = "hptune resume 'runs/my digits' --budget 200gpu-h"
    assert any(line.startswith(f"  {command}") for line in lines)
    assert (
        f"state    not running: the budget of 100 GPU hours is spent; continue with: {command}"
        in status_text(spent, now=0.0).splitlines()
    )


def test_a_study_that_reached_its_time_limit_continues_with_a_longer_one() -> None:
    finish = Finish(FinishReason.TIME_UP, "the time limit of 1h30m is reached")
    timed = replace(VIEW, timeout_seconds=5400.0)
    lines = closing_text(timed, finish).splitlines()
    assert lines[0].startswith("The time limit of 1h30m is reached: 5/10 trials")
    assert any("--timeout 3h00m" in line for line in lines)


def test_retries_are_counted_by_their_causes() -> None:
    retried = attempt(4, ended_at=1001.0, outcome=Outcome.LOST, cause=Cause.NON_FINITE)
    attempts = [*VIEW.attempts, retried, retried]
    lines = status_text(replace(VIEW, attempts=attempts), now=0.0).splitlines()
    assert "retried  3 attempts (2 non-finite metric, 1 worker lost)" in lines


def test_a_master_with_little_known_about_it_is_shown() -> None:
    view = replace(VIEW, master=LivingMaster("an unknown machine", 0, 0.0))
    assert "state    running on an unknown machine" in status_text(view, now=0.0).splitlines()


def test_only_the_most_frequent_failures_are_listed() -> None:
    many = replace(
        VIEW, trials=[trial(i, TrialState.FAILED, reason="ABCDEFGH"[i % 8]) for i in range(100)]
    )
    lines = status_text(many, now=0.0).splitlines()
    assert "  13 x A (trials 0, 8, 16, 24, 32, 40, …)" in lines
    assert "  and 3 other reasons" in lines
    assert len(many.failures) == 8
    narrow = status_text(many, now=0.0, width=40).splitlines()
    assert "  13 x A (trials 0, 8, 16, 24, 32, 40," in narrow


def test_failures_that_differ_in_numbers_only_are_one_group() -> None:
    reasons = (
        "ValueError: bad value 0.123",
        "ValueError: bad value -4.56e-07",
        "<Layer at 0x7f3a10> wants float32",
        "<Layer at 0x7fff20> wants float32",
        "<Layer at 0x7fff20> wants float64",
        "no file /tmp/tmpab12cd_4/data.npy",
        "no file /tmp/tmpzz12cd_4/data.npy",
    )
    trials = [trial(i, TrialState.FAILED, reason=reason) for i, reason in enumerate(reasons)]
    failed = replace(VIEW, trials=trials)
    groups = [
        "2 x such as ValueError: bad value 0.123 (trials 0, 1)",
        "2 x such as <Layer at 0x7f3a10> wants float32 (trials 2, 3)",
        "2 x such as no file /tmp/tmpab12cd_4/data.npy (trials 5, 6)",
    ]
    shown = status_text(failed, now=0.0).splitlines()
    for line in (*groups, "1 x <Layer at 0x7fff20> wants float64 (trial 4)"):
        assert f"  {line}" in shown
    ended = closing_text(failed, Finish(FinishReason.DONE, "")).splitlines()
    assert ended[1:7] == [
        "  7 failed, 3 to come",
        "  retried: 1 attempt (1 worker lost)",
        f"  failed: {groups[0]}",
        f"          {groups[1]}",
        f"          {groups[2]}",
        "          and 1 other reason",
    ]
    failures: Any = status_json(failed, now=0.0)["failures"]
    assert failures[0] == {"reason": "ValueError: bad value 0.123", "trials": [0, 1]}


def test_trials_that_broke_a_constraint_are_counted_with_the_constraints() -> None:
    light, quick = (
        Constraint("params", Comparison.LESS, 400.0),
        Constraint("seconds_per_epoch", Comparison.AT_MOST, 2.0),
    )
    measured = [(100.0, 1.0), (500.0, 1.0), (500.0, 3.0)]
    trials = [
        replace(
            trial(i, value=0.9, metrics={"params": params, "seconds_per_epoch": seconds}),
            violation=float(params > 400.0),
        )
        for i, (params, seconds) in enumerate(measured)
    ]
    done = Finish(FinishReason.DONE, "")
    both = replace(VIEW, trials=trials, goals=replace(GOALS, constraints=(light, quick)))
    line = "2 trials broke a constraint (2 params < 400, 1 seconds_per_epoch <= 2)"
    assert f"  {line}" in closing_text(both, done).splitlines()
    assert f"         {line}" in status_text(both, now=0.0).splitlines()
    one = replace(both, goals=replace(GOALS, constraints=(light,)))
    line = "  2 trials broke a constraint (params < 400)"
    assert line in closing_text(one, done).splitlines()


def test_failures_that_count_as_pruned_are_counted_by_their_causes() -> None:
    trials = [trial(i, TrialState.PRUNED, value=0.1) for i in range(4)]
    causes = (Cause.PRUNED, Cause.OUT_OF_MEMORY, Cause.TIMED_OUT, Cause.TIMED_OUT)
    attempts = [
        attempt(i, ended_at=1001.0, outcome=Outcome.PRUNED, cause=cause)
        for i, cause in enumerate(causes)
    ]
    view = replace(VIEW, trials=trials, attempts=attempts)
    line = "3 trials pruned by --on-failure (2 timed out, 1 out of memory)"
    assert f"  {line}" in closing_text(view, Finish(FinishReason.DONE, "")).splitlines()
    assert f"         {line}" in status_text(view, now=0.0).splitlines()


def test_status_as_data_is_strict_json() -> None:
    broken = replace(VIEW, latest={AttemptId(5, 1): Report(3, {"val_accuracy": float("nan")})})
    data = json.loads(json.dumps(status_json(broken, now=1100.0), allow_nan=False))
    assert data["counts"]["FAILED"] == 3
    assert data["counts"]["WAITING"] == 0
    assert data["master"] == {"host": "login1", "pid": 4242, "since": 1000.0}
    assert data["best"]["params"] == {
        "learning_rate": 0.00123456,
        "units": 128,
        "activation": "relu",
    }
    (running,) = data["running"]
    expected = {
        "trial": 5,
        "attempt": 1,
        "node": "node01.cluster.example",
        "worker": "worker-0",
        "cpus": [0, 1],
        "cpu_share": 1.0,
        "gpus": ["0"],
        "gpu_share": 1.0,
        "ranks": [],
        "seconds": 90.0,
        "step": 3,
        "value": None,
    }
    assert expected.items() <= running.items()
    assert data["failures"][0] == {"reason": "ValueError: bad shape", "trials": [2, 4]}
    empty = json.loads(json.dumps(status_json(EMPTY, now=0.0), allow_nan=False))
    assert (empty["best"], empty["master"], empty["ended_trials"]) == (None, None, 0)


def test_an_attempt_of_several_processes_is_shown_with_its_nodes_and_devices() -> None:
    view = replace(VIEW, attempts=[parallel(5)])
    assert any("n1+n2 3 GPUs, 3 ranks" in line for line in status_text(view, now=0.0).splitlines())
    running: Any = status_json(view, now=1100.0)["running"]
    (data,) = running
    assert (data["cpus"], data["gpus"], len(data["ranks"])) == ([0, 1, 0], ["0", "1", "0"], 3)
    shown = trial_text(view, trial(5, TrialState.RUNNING), [], log=None, now=1100.0).splitlines()
    ranks = shown[shown.index("rank  where") + 1 :]
    assert [line.strip() for line in ranks[:3]] == ["0  n1 GPU 0", "1  n1 GPU 1", "2  n2 GPU 0"]


def test_a_trial_whose_loss_is_nan_is_shown_with_a_remedy() -> None:
    failed = trial(6, TrialState.FAILED)
    for cause, is_shown in ((Cause.NON_FINITE, True), (Cause.EXCEPTION, False)):
        ended = attempt(6, ended_at=1004.0, outcome=Outcome.ERRORED, cause=cause)
        view = replace(VIEW, attempts=[ended])
        shown = trial_text(view, failed, [], log=None, now=1100.0)
        assert ("lower the largest learning rate" in shown) is is_shown


def test_the_best_trial_with_its_model() -> None:
    assert_says(
        best_text(VIEW),
        "trial 0, the best of 5/10 trials",
        "val_accuracy 0.9000 (max, from epoch 5/5)",
        "val_loss 0.3123",
        "hyperparameters",
        "learning_rate 0.00123456",
        "units 128",
        "activation relu",
        "model 'runs/my digits/best/model.keras'",
        "load import hptune; hptune.Study('runs/my digits').best_model()",
        "or import keras; keras.saving.load_model('runs/my digits/best/model.keras')",
    )


def test_each_model_of_a_front_is_loaded_by_its_trial() -> None:
    goals = replace(VIEW.goals, objectives=(*VIEW.goals.objectives, Goal("size", Direction.MIN)))
    trials = [replace(trial(n, value=0.5 + n / 10), extra_values=(n + 1.0,)) for n in range(3)]
    models = {2: "digits/best/2/model.keras", 0: "digits/best/0/model.keras"}
    view = replace(VIEW, directory="digits", goals=goals, trials=trials, models=models)
    shown = best_text(view).splitlines()
    assert [line for line in shown if line.startswith(("trial", "  load"))] == [
        "trial 2  val_accuracy 0.7000, size 3.000",
        "  load   import hptune; hptune.Study('digits').best_model(2)",
        "trial 1  val_accuracy 0.6000, size 2.000",
        "trial 0  val_accuracy 0.5000, size 1.000",
        "  load   import hptune; hptune.Study('digits').best_model(0)",
    ]
    assert "best_model(2)" in closing_text(view, Finish(FinishReason.DONE, ""))


def test_no_best_trial_yet() -> None:
    assert best_json(EMPTY)["best"] is None


def test_the_best_as_data_keeps_types_and_digits() -> None:
    odd = trial(0, value=0.1 + 0.2, params={"a": True, "b": None, "c": 1, "d": 1.0, "e": "1"})
    data = json.loads(json.dumps(best_json(replace(VIEW, trials=[odd])), allow_nan=False))
    assert data["best"]["value"] == 0.1 + 0.2
    assert [type(value) for value in data["best"]["params"].values()] == [
        bool,
        type(None),
        int,
        float,
        str,
    ]
    assert data["model"] == "runs/my digits/best/model.keras"


def test_the_best_follows_the_direction_and_ignores_pruned_trials() -> None:
    trials = [trial(0, value=0.5), trial(1, value=0.2), trial(2, TrialState.PRUNED, value=0.1)]
    view = StudyView("d", "grid", Goals((Goal("loss", Direction.MIN),)), 3, trials)
    assert view.best is trials[1]


def test_of_equally_good_trials_the_first_to_end_is_best() -> None:
    trials = [trial(0, value=1.0), trial(1, value=1.0), trial(2, value=1.0)]
    attempts = [
        attempt(i, ended_at=at, outcome=Outcome.FINISHED)
        for i, at in enumerate((1090.0, 1030.0, 1060.0))
    ]
    assert replace(VIEW, trials=trials, attempts=attempts).best is trials[1]
    assert replace(VIEW, trials=trials, attempts=()).best is trials[0]


def test_the_time_of_a_study_is_that_of_all_its_runs() -> None:
    twice = replace(VIEW, master=None, run_seconds=(60.0, 4000.0), last_event_at=9000.0)
    assert twice.seconds(99_999.0) == 4060.0, "the time between runs and after them does not count"
    end = closing_text(twice, Finish(FinishReason.DONE, ""))
    assert end.startswith("Done: 5/10 trials in 1h07m (1h06m in the last run)\n")
    assert "used     1h07m, " in status_text(twice, now=99_999.0)
    runs = replace(twice, master=LivingMaster(since=8000.0))
    assert runs.seconds(9010.0) == 4070.0
    unknown = replace(twice, run_seconds=(), last_event_at=0.0, master=LivingMaster(since=0.0))
    assert unknown.seconds(9010.0) == 0.0
    reads = replace(twice, master=LivingMaster(since=9500.0))
    assert reads.seconds(9510.0) == 4070.0, "a run begins with its command, before its first event"


def test_the_end_of_a_finished_run() -> None:
    view = replace(VIEW, trials=VIEW.trials[:1], attempts=(), budget_trials=1)
    assert_says(
        closing_text(view, Finish(FinishReason.DONE, "")),
        "Done: 1/1 trials in 1m00s",
        "1 complete",
        "best 0.9000 val_accuracy (max), trial 0, from epoch 5/5",
        "learning_rate 0.001235",
        "units 128",
        "activation relu",
        "model 'runs/my digits/best/model.keras'",
        "load import hptune; hptune.Study('runs/my digits').best_model()",
        "or import keras; keras.saving.load_model('runs/my digits/best/model.keras')",
        "next",
        "hptune best 'runs/my digits' show the best trial",
        "hptune report 'runs/my digits' write them as one file",
        "hptune resume 'runs/my digits' --trials 2 continue with more trials",
    )
    # More trials are no remedy where every configuration was tried.
    whole = closing_text(replace(view, possible_trials=1), Finish(FinishReason.DONE, ""))
    assert "hptune report" in whole
    assert "resume" not in whole


def test_if_no_trial_is_complete_the_error_and_the_next_step_are_said() -> None:
    failed = [
        replace(trial(n, TrialState.FAILED, reason="ValueError: no"), detail="line 7, in f")
        for n in range(2)
    ]
    view = replace(VIEW, trials=failed, attempts=(), budget_trials=2)
    done = Finish(FinishReason.DONE, "")
    assert why_without_result(view, done) == (
        (
            "no trial is complete: 2 failed (ValueError: no). Fix the cause and continue with "
            "`hptune resume 'runs/my digits' --retry-failed`."
        ),
        "line 7, in f",
    )
    end = closing_text(view, done)
    assert " --retry-failed  when the cause is fixed, run the failed trials again\n" in end
    assert end.endswith(" --trials 4      continue with more trials")
    added = replace(view, budget_trials=1)  # one of the two was enqueued
    assert closing_text(added, done).endswith(" --trials 4      continue with more trials")
    timed = replace(view, timeout_seconds=60.0)
    said, _ = why_without_result(timed, Finish(FinishReason.TIME_UP, ""))
    assert said.endswith("`hptune resume 'runs/my digits' --retry-failed --timeout 2m00s`.")
    late = replace(timed, run_seconds=(100.0, 80.0))
    assert " --timeout 6m00s`." in why_without_result(late, Finish(FinishReason.TIME_UP, ""))[0]
    assert why_without_result(replace(view, trials=()), done)[0].endswith(": none was started.")


def test_if_no_trial_keeps_the_constraints_others_are_tried_unless_there_are_none() -> None:
    broken = replace(trial(0, TrialState.COMPLETE, 0.9), violation=2.0)
    goals = replace(VIEW.goals, constraints=(Constraint("size", Comparison.LESS, 5.0),))
    view = replace(VIEW, trials=[broken], attempts=(), goals=goals, budget_trials=1)
    done = Finish(FinishReason.DONE, "")
    nearest = "no trial keeps size < 5; trial 0 comes nearest."
    resume = "`hptune resume 'runs/my digits' --trials 2` tries others."
    assert why_without_result(view, done) == (f"{nearest} {resume}", "")
    assert why_without_result(replace(view, possible_trials=1), done) == (nearest, "")


@pytest.mark.parametrize(
    ("finish_reason", "first_line", "resume"),
    [
        (
            FinishReason.EXHAUSTED,
            "Done: every configuration of the space was tried, 5/10 trials",
            None,
        ),
        (FinishReason.INTERRUPTED, "Stopped (Ctrl-C): 5/10 trials", "continue from here"),
        (
            FinishReason.TOO_MANY_FAILURES,
            "Ended (Ctrl-C): 5/10 trials",
            "continue from here",
        ),
    ],
)
def test_the_end_says_why_and_what_to_do_next(
    finish_reason: FinishReason, first_line: str, resume: str | None
) -> None:
    lines = closing_text(VIEW, Finish(finish_reason, "Ctrl-C")).splitlines()
    assert lines[0] == f"{first_line} in 1m00s"
    assert "  retried: 1 attempt (1 worker lost)" in lines
    resumes = [line for line in lines if "hptune resume" in line]
    again = "when the cause is fixed, run the failed trials again"
    expected = [again, resume] if resume else [again]
    pairs = zip(resumes, expected, strict=True)
    assert all(line.endswith(end) for line, end in pairs)


def test_the_end_names_who_stopped_the_study() -> None:
    by_ada = UserRequest("1", UserAction.STOP, "ada (hptune stop)").stop_reason
    asked = Finish(FinishReason.INTERRUPTED, by_ada)
    end = closing_text(VIEW, asked)
    assert end.startswith("Stopped by ada with hptune stop: 5/10 trials in 1m00s\n")


def test_the_end_without_any_success_points_to_the_failures() -> None:
    failed = replace(VIEW, trials=[trial(0, TrialState.FAILED, reason="OOM")], models={})
    shown = closing_text(failed, Finish(FinishReason.SAME_FAILURE, "OOM, 3 times"))
    assert "hptune trials 'runs/my digits' --state failed" in shown
    assert "best" not in shown
    assert "load_model" not in shown


def test_equal_repeats_show_no_spread() -> None:
    equal = [
        VIEW.trials[0],
        *(trial(each, value=0.937, origin="confirm of 0", step=5) for each in (6, 7)),
    ]
    over = Outcome.FINISHED
    ended = [attempt(n, ended_at=end, outcome=over) for n, end in ((6, 2000.0), (7, 1500.0))]
    shown = status_text(replace(VIEW, trials=equal, attempts=ended, master=None), now=0.0)
    assert "±" not in shown
    assert "0.9370  val_accuracy (max), trial 0, the same in trials 6, 7\n" in shown
    other = [*equal[:2], trial(7, value=0.939, origin="confirm of 0", step=5)]
    shown = status_text(replace(VIEW, trials=other, attempts=(), master=None), now=0.0)
    assert "0.9380 ± 0.0014  val_accuracy (max), trial 0, mean ± standard dev" in shown


def test_a_front_is_wrapped_between_words() -> None:
    goals = Goals((Goal("loss", Direction.MIN), Goal("size", Direction.MIN)))
    params: dict[str, Any] = {f"learning_rate_of_layer_{number}": 0.1 / 3 for number in range(4)}
    best = replace(trial(0, value=0.5, params=params), extra_values=(3.0,))
    view = replace(VIEW, goals=goals, trials=[best])
    lines = best_text(view, width=80).splitlines()
    assert max(map(len, lines)) <= 80
    assert " ".join(" ".join(lines).split()) == " ".join(best_text(view).split())
