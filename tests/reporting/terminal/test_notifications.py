"""Lines about workers and attempts: each thing once, and many of a kind together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from fake_study import attempt, parallel, trial
from hptune.core.attempt import (
    MISNAMED,
    NEVER_ASKED,
    Attempt,
    AttemptId,
    Cause,
    Ending,
    Outcome,
    Report,
    Usage,
)
from hptune.core.goals import RETURNED_NUMBER, Goals
from hptune.core.messages import (
    AttemptEnded,
    AttemptWaits,
    Event,
    Reported,
    UserRequested,
    WorkerJoined,
    WorkerLeaving,
    WorkerLeft,
    WorkerRefused,
)
from hptune.core.resources import Capacity
from hptune.core.trial import Direction, Goal, Suggestion, TrialState
from hptune.core.user_requests import UserAction
from hptune.core.workers import RosterEvent, Workers
from hptune.reporting.terminal.notifications import QUIET_SECONDS, Notifications
from hptune.reporting.terminal.report_checks import ReportChecks

EIGHT = Capacity(tuple(range(8)), ("0",))


def joined(number: int, *, node: str = "") -> WorkerJoined:
    return WorkerJoined(0.0, f"w{number}", node or f"node{number}", EIGHT)


def left(number: int) -> WorkerLeft:
    return WorkerLeft(0.0, f"w{number}", "the worker is gone")


class Observing(Notifications):
    """Notifications with the roster that they read."""

    def __init__(
        self,
        pruner: str = "none",
        objectives: Sequence[str] = (),
        epochs: int | None = None,
        **options: Any,
    ) -> None:
        self.roster = Workers()
        goals = Goals(tuple(Goal(name, Direction.MIN) for name in objectives))
        reports = ReportChecks(pruner, goals, epochs, has_own_epochs=False)
        super().__init__(self.roster, reports, **options)


def shown(
    notifications: Observing, *events: Event, attempts: tuple[Attempt, ...] = (), at: float
) -> list[str]:
    for event in events:
        if isinstance(event, RosterEvent):
            notifications.roster.handle(replace(event, at=at))
    notifications.observe([replace(each, at=at) for each in events], attempts)
    return notifications.lines(at)


def test_a_line_says_that_a_worker_joined_that_it_left_and_that_it_was_lost() -> None:
    notifications = Observing(has_checkpoint=lambda trial: trial < 2)
    assert shown(notifications, joined(1), at=0.0) == [
        "the worker on node1 joined with 8 cores and 1 GPU; now 1 worker"
    ]
    assert shown(notifications, joined(2), at=100.0) == [
        "the worker on node2 joined with 8 cores and 1 GPU; now 2 workers"
    ]
    leaving = WorkerLeaving(200.0, "w1", "SIGTERM")
    assert shown(notifications, leaving, at=200.0) == []
    assert shown(notifications, left(1), at=201.0) == [
        "the worker on node1 left (SIGTERM); now 1 worker"
    ]
    assert shown(notifications, left(1), at=300.0) == []
    lost = [attempt(n, ended_at=1.0, outcome=Outcome.LOST) for n in range(3)]
    lost = [replace(each, placement=replace(each.placement, worker="w2")) for each in lost]
    assert shown(notifications, left(2), attempts=tuple(lost), at=400.0) == [
        (
            "the worker on node2 was lost; 2 trials resume from their last checkpoint; 1 trial "
            "starts again; now 0 workers"
        )
    ]


def test_the_trial_of_several_workers_is_told_with_the_first_that_leaves() -> None:
    notifications = Observing()
    released = parallel(0, ended_at=1.0, outcome=Outcome.RELEASED, cause=Cause.RELEASED)
    leaving = WorkerLeaving(1.0, "w2", "SIGTERM")
    shown(notifications, joined(1), joined(2), at=0.0)
    shown(notifications, leaving, attempts=(released,), at=100.0)
    told = "the worker on node2 left (SIGTERM); 1 trial starts again; now 1 worker"
    assert shown(notifications, left(2), at=200.0) == [told]
    shown(notifications, WorkerLeaving(1.0, "w1", "SIGTERM"), at=300.0)
    told = "the worker on node1 left (SIGTERM); now 0 workers"
    assert shown(notifications, left(1), at=400.0) == [told]


def test_trials_of_a_worker_that_left_continue_only_where_they_have_a_checkpoint() -> None:
    notifications = Observing(has_checkpoint=lambda trial: trial == 0)
    released = [
        replace(
            attempt(n, ended_at=1.0, outcome=Outcome.RELEASED, cause=Cause.RELEASED),
            placement=replace(attempt(n).placement, worker=f"w{1 + (n == 3)}"),
        )
        for n in range(4)
    ]
    leaving = WorkerLeaving(1.0, "w1", "its walltime is over")
    shown(notifications, joined(1), joined(2), at=0.0)
    shown(notifications, leaving, attempts=tuple(released), at=100.0)
    assert shown(notifications, left(1), at=200.0) == [
        (
            "the worker on node1 left (its walltime is over); 1 trial resumes from its last "
            "checkpoint; 2 trials start again; now 1 worker"
        )
    ]


def test_a_worker_that_is_back_by_the_time_the_ledger_is_written_was_lost_too() -> None:
    notifications = Observing()
    shown(notifications, joined(1), at=0.0)
    found = attempt(1, ended_at=1.0, outcome=Outcome.LOST)
    found = replace(found, placement=replace(found.placement, worker="w1"))
    assert shown(notifications, left(1), joined(1), attempts=(found,), at=50.0) == [
        "the worker on node1 at w1 was lost; 1 trial starts again",
        "the worker on node1 joined with 8 cores and 1 GPU; now 1 worker",
    ]


def test_the_number_of_workers_is_that_after_the_last_line() -> None:
    notifications = Observing()
    leaving = WorkerLeaving(1.0, "w1", "SIGTERM")
    assert shown(notifications, joined(1), joined(2), leaving, left(1), at=0.0) == [
        "2 workers (on node1, node2) joined with 16 cores and 2 GPUs",
        "the worker on node1 left (SIGTERM); now 1 worker",
    ]


def test_a_worker_that_dies_while_it_was_to_leave_is_lost() -> None:
    notifications = Observing()
    shown(notifications, joined(1), WorkerLeaving(0.0, "w1", "it takes no more trials"), at=0.0)
    lost = attempt(0, ended_at=1.0, outcome=Outcome.LOST)
    lost = replace(lost, placement=replace(lost.placement, worker="w1"))
    assert shown(notifications, left(1), attempts=(lost,), at=100.0) == [
        "the worker on node1 was lost; 1 trial starts again; now 0 workers"
    ]


def test_a_worker_that_takes_no_more_trials_and_stays_has_a_line() -> None:
    notifications = Observing()
    shown(notifications, joined(1), joined(2), at=0.0)
    full = WorkerLeaving(100.0, "w1", "its local disk is full")
    assert shown(notifications, full, WorkerLeaving(100.0, "w2", "SIGTERM"), at=100.0) == []
    assert shown(notifications, left(2), at=120.0) == [
        "the worker on node2 left (SIGTERM); now 1 worker"
    ]
    assert shown(notifications, at=140.0) == []
    assert shown(notifications, full, at=170.0) == [
        "the worker on node1 takes no more trials: its local disk is full"
    ]
    assert shown(notifications, full, at=300.0) == []


def test_programs_that_come_and_go_have_no_lines() -> None:
    notifications = Observing()
    program = replace(joined(1), lease_seconds=60.0)
    taken = WorkerLeaving(1.0, "w1", "it has its trial")
    assert shown(notifications, program, taken, at=1.0) == []
    assert shown(notifications, at=70.0) == []
    assert shown(notifications, left(1), at=200.0) == []


def test_a_lost_worker_has_its_name_where_others_share_its_node() -> None:
    notifications = Observing()
    shown(notifications, joined(1, node="vm"), joined(2, node="vm"), at=0.0)
    assert shown(notifications, left(2), at=100.0) == [
        "the worker on vm at w2 was lost; now 1 worker"
    ]
    assert shown(notifications, left(1), at=200.0) == ["the worker on vm was lost; now 0 workers"]


def test_thousands_of_workers_take_a_few_lines() -> None:
    notifications = Observing()
    lines = []
    for number in range(3000):
        lines += shown(notifications, joined(number, node=f"node{number // 2}"), at=number / 100)
    lines += notifications.lines(30.0 + QUIET_SECONDS)
    assert len(lines) <= 2 + 30 / QUIET_SECONDS
    assert lines[1].startswith("1000 workers (on node0, node1 (2), node2 (2) and 498 more)")
    assert lines[-1].endswith("; now 3000 workers")
    assert all(len(line) < 200 for line in lines)


def test_the_first_workers_of_a_local_run_are_in_its_header() -> None:
    notifications = Observing(workers_are_known=True)
    assert shown(notifications, joined(1), at=0.0) == []
    assert shown(notifications, left(1), at=50.0) == ["the worker on node1 was lost; now 0 workers"]
    assert shown(notifications, joined(2), at=100.0) != []


def test_a_refusal_is_shown_once_for_each_reason() -> None:
    notifications = Observing()
    refused = WorkerRefused(0.0, "w1", "node1", "it has Keras 2")
    assert shown(notifications, refused, replace(refused, worker="w2"), at=0.0) == [
        "the worker on node1 was refused: it has Keras 2"
    ]
    assert notifications.lines(1000.0) == []


def test_what_users_ask_for_is_shown_and_what_is_refused_is_not() -> None:
    def asked(action: UserAction, **more: Any) -> UserRequested:
        return UserRequested(0.0, "a1", action, "ada (hptune)", **{"trial": None, **more})

    added = (Suggestion({"x": 0.5, "kind": "b"}, "start point (added)"),)
    requests = (
        asked(UserAction.STOP_TRIAL, trial=3),
        asked(UserAction.ENQUEUE, added=added),
        asked(UserAction.PAUSE),
        asked(UserAction.RESUME),
        asked(UserAction.ENQUEUE, refused="the study is stopping"),
    )
    assert shown(Observing(), *requests, at=0.0) == [
        "trial 3 is stopped by ada (hptune)",
        "a trial is enqueued by ada (hptune): x=0.5 kind=b",
        "resumed by ada (hptune): trials start again",
    ]


def test_waiting_for_another_study_is_shown_once() -> None:
    notifications = Observing()
    waits = AttemptWaits(0.0, AttemptId(3, 0), "waits for cores that another study holds")
    (line,) = shown(notifications, waits, replace(waits, attempt=AttemptId(4, 0)), at=0.0)
    assert line.startswith("trial 3 waits for cores that another study holds")
    assert shown(notifications, replace(waits, attempt=AttemptId(5, 0)), at=9999.0) == []


def test_a_trial_over_its_memory_is_shown_once_with_what_to_do() -> None:
    def using(size_bytes: float, granted_bytes: int = 4_000_000_000) -> Attempt:
        usage = Usage(peak_memory_bytes=int(size_bytes), cpu_seconds=1.0, seconds=1.0)
        one = attempt(7)
        placement = replace(one.placement, memory_bytes=granted_bytes)
        return replace(one, placement=placement, usage=usage)

    notifications = Observing(memory_bytes=4_000_000_000)
    assert shown(notifications, attempts=(using(4e9),), at=0.0) == []
    # As by `--mem-per-cpu` in a job: what was granted is unknown.
    assert shown(notifications, attempts=(using(5e9, granted_bytes=0),), at=0.0) == []
    (line,) = shown(notifications, attempts=(using(5.2e9),), at=1.0)
    assert line.startswith("trial 7 uses 5.2 GB of memory, but --memory-per-trial is 4 GB")
    assert line.endswith("--memory-per-trial 7GB")
    assert shown(notifications, attempts=(using(9e9),), at=2.0) == []
    assert shown(Observing(), attempts=(using(9e9),), at=3.0) == []


def test_a_trial_that_opens_none_of_its_gpus_is_shown_once_with_what_to_do() -> None:
    def using(
        size_bytes: int | None, *, step_seconds: float | None = 1.0, gpus: int = 1
    ) -> Attempt:
        usage = Usage(
            peak_memory_bytes=1,
            peak_gpu_memory_bytes=size_bytes,
            cpu_seconds=1.0,
            seconds=1.0,
            seconds_per_step=step_seconds,
        )
        one = attempt(7)
        placement = replace(one.placement, gpus=tuple(map(str, range(gpus))))
        return replace(one, placement=placement, usage=usage)

    notifications = Observing()
    for other in (using(None), using(9), using(0, step_seconds=None), using(0, gpus=0)):
        assert shown(notifications, attempts=(other,), at=0.0) == []
    (line,) = shown(notifications, attempts=(using(0),), at=1.0)
    assert line.startswith("trial 7 holds 1 GPU but uses none. If the model trains on cores")
    assert "--gpus-per-trial 0" in line
    assert shown(notifications, attempts=(using(0),), at=9999.0) == []
    ended = replace(using(0, step_seconds=None), outcome=Outcome.FINISHED)
    assert shown(Observing(), attempts=(ended,), at=0.0) == [line]


def tried(
    trial: int, number: int = 0, *, cause: Cause | None = None, why: str = "", memory: float = 0
) -> Attempt:
    """Return an attempt; with a cause, one that ended by it and is not charged to its trial."""
    outcome = None if cause is None else Outcome.LOST
    one = attempt(trial, number, ended_at=1.0 if cause else None, outcome=outcome, cause=cause)
    placement = replace(one.placement, memory_bytes=int(memory))
    return replace(one, node=f"node{number}", reason=why, placement=placement)


def lost(*attempts: Attempt) -> tuple[Event, ...]:
    return tuple(
        AttemptEnded(1.0, each.id, Ending(each.cause, reason=each.reason))
        for each in attempts
        if each.cause is not None
    )


def test_an_attempt_that_hung_is_shown_with_where_its_trial_is_retried() -> None:
    notifications = Observing()
    hung = tried(3, cause=Cause.HUNG, why="it hung: no report and no work for 600 s")
    assert shown(notifications, *lost(hung), attempts=(hung, tried(3, 1)), at=0.0) == [
        "trial 3 on node0: it hung: no report and no work for 600 s; retrying on node1"
    ]
    assert shown(notifications, attempts=(hung, tried(3, 1)), at=999.0) == []
    assert shown(notifications, *lost(hung), attempts=(hung,), at=9999.0) == [
        "trial 3 on node0: it hung: no report and no work for 600 s; it will be retried"
    ]


def test_a_trial_that_ran_out_of_memory_is_shown_with_what_it_is_given_next() -> None:
    ended = tried(3, cause=Cause.OUT_OF_MEMORY, why="out of memory (it held 4 GB)", memory=4e9)
    (line,) = shown(Observing(), *lost(ended), attempts=(ended, tried(3, 1, memory=8e9)), at=0.0)
    assert line == (
        "trial 3 on node0: out of memory (it held 4 GB); retrying on node1 with 8 GB of memory"
    )
    part = tried(3, cause=Cause.DEVICE_OUT_OF_MEMORY, why="OOM when allocating")
    part = replace(part, placement=replace(part.placement, gpus=("0",), gpu_share=0.5))
    (line,) = shown(Observing(), *lost(part), attempts=(part, tried(3, 1)), at=0.0)
    assert line.endswith("OOM when allocating; retrying on node1 with a whole GPU")


def test_an_error_of_a_disk_in_the_users_code_is_shown_as_no_worker_is_lost() -> None:
    read = tried(3, cause=Cause.WORKER_LOST, why="OSError: [Errno 5] Input/output error")
    ended = AttemptEnded(1.0, read.id, Ending(Cause.WORKER_LOST, detail="Traceback …"))
    assert shown(Observing(), ended, attempts=(read, tried(3, 1)), at=0.0) == [
        "trial 3 on node0: OSError: [Errno 5] Input/output error; retrying on node1"
    ]


def test_thousands_of_retries_take_a_few_lines() -> None:
    notifications, lines = Observing(), list[str]()
    for number in range(3000):
        ended = tried(number, cause=Cause.OUT_OF_MEMORY, why="out of memory", memory=4e9)
        again = (tried(number, 1, memory=8e9),) if number % 2 else ()
        lines += shown(notifications, *lost(ended), attempts=(ended, *again), at=number / 100)
    lines += notifications.lines(30.0 + QUIET_SECONDS)
    assert len(lines) <= 2 + 30 / QUIET_SECONDS
    assert lines[1] == (
        "1000 attempts ended (out of memory), such as trial 1 on node0: out of memory; 500 retried "
        "with up to 8 GB of memory, 500 will be"
    )


def test_a_failed_trial_and_a_lost_worker_make_no_line_about_a_retry() -> None:
    failed = replace(tried(1, cause=Cause.HUNG), outcome=Outcome.ERRORED)
    for other in (failed, tried(2, cause=Cause.WORKER_LOST), tried(3, cause=Cause.KILLED)):
        assert shown(Observing(), *lost(other), attempts=(other,), at=0.0) == []


def test_trials_that_never_ask_whether_they_are_pruned_are_shown_once() -> None:
    notifications = Observing(pruner="asha")
    for number in (2, 3):
        deaf = attempt(number, outcome=Outcome.FINISHED, cause=Cause.RETURNED)
        notifications.observe([], [replace(deaf, reason=NEVER_ASKED)])
    (line,) = notifications.lines(0.0)
    assert line == (
        "--pruner asha saves no time: trial 2 trained to its end, and it never called "
        "trial.should_stop(). Add after each trial.report: if trial.should_stop(): return"
    )


def test_results_with_misspelt_names_are_shown_once() -> None:
    notifications = Observing()
    for number in (2, 3):
        ended = attempt(number, outcome=Outcome.FINISHED, cause=Cause.RETURNED)
        notifications.observe([], [replace(ended, reason=f"{MISNAMED} 'acuracy' and …")])
    assert notifications.lines(0.0) == ["trial 2: objective() returned 'acuracy' and …"]
    failed = attempt(4, outcome=Outcome.ERRORED, cause=Cause.EXCEPTION)
    others = Observing()
    others.observe([], [replace(failed, reason=f"{MISNAMED} [], which is no result")])
    assert others.lines(0.0) == [], "the trial's own line says it"


def test_a_pruner_that_no_report_reaches_is_shown_once() -> None:
    notifications = Observing(pruner="asha")
    notifications.observe_ended([trial(0, TrialState.FAILED), trial(1, value=0.5, step=3)])
    assert notifications.lines(0.0) == []
    notifications.observe_ended([trial(2, value=0.5), trial(3, value=0.5)])
    (line,) = notifications.lines(0.0)
    assert line.startswith("--pruner asha can stop no trial: trial 2 reported nothing")


def test_an_objective_that_only_results_have_is_named_once() -> None:
    def observing() -> Observing:
        return Observing(pruner="asha", objectives=["loss", "latency"])

    notifications = observing()

    def ended(number: int, *reports: dict[str, float]) -> None:
        name = AttemptId(number, 0)
        told = [Reported(1.0, name, Report(n, each)) for n, each in enumerate(reports, start=1)]
        notifications.observe(told, [])
        notifications.observe_ended([trial(number, value=0.5, step=len(reports))])

    ended(0, {"loss": 0.7}, {"loss": 0.5, "latency": 3.0}, {"loss": 0.6})
    assert notifications.lines(0.0) == []
    ended(1, {"loss": 0.7}, {"loss": 0.5})
    ended(2, {"loss": 0.7})
    (line,) = notifications.lines(0.0)
    assert line.startswith("--pruner asha can stop no trial: no report of trial 1 has latency. ")
    notifications = observing()
    ended(3, {"loss": 0.7}, {"latency": 3.0}, {"loss": 0.6})
    (line,) = notifications.lines(0.0)
    assert line == (
        "--pruner asha can stop no trial: no report of trial 3 has loss and latency. Each is in "
        "another report; give them in one report of each step"
    )


@pytest.mark.parametrize(
    ("objectives", "report", "said"),
    [
        (["accuracy"], {"loss": 0.5, "acc": 0.5}, "has accuracy. It reports loss, acc; report "),
        (["accuracy"], {"loss": 0.5}, "at each step too, or optimise one of those (--objective)"),
        (["acc"], {"accuracy": 0.5}, "report acc at each step too, or optimise accuracy ("),
        (["loss", "cost"], {"loss": 0.5}, "report cost at each step too, or make it a --constra"),
        (["loss", "params"], {"loss": 0.5}, "hptune measures it once in a trial; make it a --con"),
    ],
)  # fmt: skip
def test_a_report_without_the_objective_is_answered_with_what_it_has(
    objectives: list[str], report: dict[str, float], said: str
) -> None:
    notifications = Observing(pruner="asha", objectives=objectives)
    notifications.observe([Reported(1.0, AttemptId(0, 0), Report(1, report))], [])
    notifications.observe_ended([trial(0, value=0.5, step=1)])
    (line,) = notifications.lines(0.0)
    assert said in line


def test_the_first_metric_that_is_nan_is_told_with_a_remedy() -> None:
    notifications = Observing()
    for number in (2, 3):
        ended = attempt(number, outcome=Outcome.ERRORED, cause=Cause.NON_FINITE)
        notifications.observe([], [replace(ended, reason="loss is nan at epoch 1")])
    (line,) = notifications.lines(0.0)
    assert line.startswith("trial 2: loss is nan at epoch 1. The study continues, and")
    assert "lower the largest learning rate" in line
    forgiven = attempt(4, outcome=Outcome.PRUNED, cause=Cause.NON_FINITE)
    others = Observing()
    others.observe([], [forgiven])
    assert others.lines(0.0) == [], "the user has said what it means"


def test_a_returned_number_that_hides_what_trials_report_is_named_once() -> None:
    accurate = [
        trial(n, value=0.5, step=3, metrics={"value": 0.5, "accuracy": 0.5}) for n in (0, 1)
    ]
    notifications = Observing(objectives=[RETURNED_NUMBER])
    notifications.observe_ended([trial(2, value=0.5, metrics={"value": 0.5}), *accurate])
    (line,) = notifications.lines(0.0)
    assert "minimised, though trials report accuracy" in line
    assert "--objective accuracy:max" in line
    named = Observing(objectives=[RETURNED_NUMBER, "accuracy"])
    named.observe_ended(accurate)
    assert named.lines(0.0) == []


def test_a_lost_rank_has_one_line_though_its_attempt_ends_later() -> None:
    notifications = Observing(has_checkpoint=lambda _: True)
    shown(notifications, joined(1), joined(2), at=0.0)
    assert shown(notifications, left(2), at=100.0) == ["the worker on node2 was lost; now 1 worker"]
    lost = replace(
        parallel(3, ended_at=2.0, outcome=Outcome.LOST, cause=Cause.WORKER_LOST),
        reason="w2 is gone",
    )
    ended = AttemptEnded(2.0, lost.id, Ending(Cause.WORKER_LOST, reason="w2 is gone"))
    assert shown(notifications, ended, attempts=(lost,), at=200.0) == [
        "trial 3 on n1.org+n2: w2 is gone; it will be retried"
    ]


@pytest.mark.parametrize("pruner", ["none", "asha"])
@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        ((1, 2, 3), ""),
        ((2, 5, 9), ""),
        ((0, 1, 2), "reports epoch 0, but a report says how many are done, from 1"),
        ((9, 8, 7), "reports epoch 8 after epoch 9. Epochs must rise: only the first ones are"),
        ((1, 2, 1, 2), "reports epoch 1 after epoch 2."),
        ((1, 1, 1), "reports epoch 1 after epoch 1."),
        ((9, 10, 11), "reports epoch 11, but a trial has 10 (--epochs): --pruner asha compares"),
        ((100, 200), "reports epoch 100, but a trial has 10 (--epochs)"),
    ],
)
def test_steps_that_do_not_count_what_is_done_are_told_once(
    steps: tuple[int, ...], expected: str, pruner: str
) -> None:
    notifications = Observing(pruner=pruner, objectives=["loss"], epochs=10)
    reports = [
        Reported(0.0, AttemptId(number, 0), Report(step, {"loss": 0.5}))
        for number in (7, 8)
        for step in steps
    ]
    lines = shown(notifications, *reports, at=0.0)
    if "--epochs" in expected and pruner == "none":
        expected = ""  # nothing is compared
    assert len(lines) == bool(expected)
    assert not expected or lines[0].startswith(f"trial 7 {expected}")
    is_misled = pruner == "asha" and "after epoch" in expected
    assert ("also by --pruner asha" in "".join(lines)) == is_misled


def test_steps_may_begin_again_in_a_later_attempt_and_without_the_objective() -> None:
    notifications = Observing(pruner="asha", objectives=["loss"], epochs=10)
    steps = [(0, 3, "loss"), (0, 3, "other"), (0, 2, "other"), (1, 4, "loss"), (1, 1, "loss")]
    reports = [
        Reported(0.0, AttemptId(7, attempt), Report(step, {metric: 0.5}))
        for attempt, step, metric in steps
    ]
    assert shown(notifications, *reports, at=0.0) == []
