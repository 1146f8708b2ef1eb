"""Effects of the user's code on its process reach the runner as plain facts."""

from __future__ import annotations

import contextlib
import queue
from dataclasses import replace
from pathlib import Path

import pytest

from attempt_orders import ATTEMPT, order_of
from attempts import Attempts
from hptune.core.attempt import Cause, Halt, StopAt
from hptune.core.messages import AttemptEnded, AttemptStarted, Event, Reported
from hptune.worker.forkserver.client import ForkServer
from hptune.worker.monitoring import trial_log
from hptune.worker.orders import AttemptLimits
from hptune.worker.runner import AttemptRunner

SETS_VALUES = """
import enum
import numpy as np

class Own(enum.IntEnum):
    TWO = 2

def objective(hp, trial):
    if 2.5 < hp.Float("x", 0, 3) < 3:  # which the search for parameters does not try
        hp.Int("late", 1, 16)
        hp.Choice("own", [1, 2])
        hp.values.update(late=np.int64(8), own=Own.TWO)
    hp.values.update(x=99.0, derived=0.5)
    return 1.0
"""


def test_values_of_new_parameters_arrive_as_plain_ones(attempts: Attempts) -> None:
    result = attempts.run(SETS_VALUES, x=2.7)
    assert result.ending.cause is Cause.RETURNED
    assert result.used is not None
    assert result.used.values == {"x": 2.7, "late": 8, "own": 2}
    assert {type(value) for value in result.used.values.values()} == {float, int}


def test_what_only_another_value_makes_active_is_no_part_of_the_suggestion(
    attempts: Attempts,
) -> None:
    result = attempts.run(
        """
        def objective(hp, trial):
            hp.Choice("optimizer", ["adam", "sgd"])
            hp.values["optimizer"] = "sgd"
            hp.Float("momentum", 0, 1, parent_name="optimizer", parent_values="sgd")
            with hp.conditional_scope("optimizer", "adam"):
                hp.Boolean("amsgrad")
            return 1.0
        """,
        optimizer="adam",
    )
    assert result.ending.cause is Cause.RETURNED
    assert result.used is None


def test_other_values_that_the_code_sets_are_no_suggestion(attempts: Attempts) -> None:
    result = attempts.run(SETS_VALUES, x=1.0)
    assert result.ending.cause is Cause.RETURNED
    assert result.used is None


@pytest.mark.parametrize(
    ("is_of_the_study", "cause"), [(True, Cause.NO_ROOM), (False, Cause.WORKER_LOST)]
)
def test_a_quota_that_is_used_up(attempts: Attempts, is_of_the_study: bool, cause: Cause) -> None:
    result = attempts.run(
        f"""
        import errno, os, tempfile

        def full(*args, **keywords):
            raise OSError(errno.EDQUOT, os.strerror(errno.EDQUOT))

        if {is_of_the_study}:
            tempfile.TemporaryFile = full

        def objective(hp, trial):
            hp.Float("x", 0, 1)
            full()
        """
    )
    assert result.ending.cause is cause
    assert "quota" in result.ending.reason


def test_a_log_that_grows_without_end_is_cut(
    attempts: Attempts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trial_log, "MOST_BYTES", 3_000_000)
    result = attempts.run(
        """
        import time

        def objective(hp, trial):
            hp.Float("x", 0, 1)
            log = trial.directory / "log.txt"
            print("first line")
            for _ in range(4_000):
                print("y" * 999)
            while log.stat().st_size > 3_000_000:
                time.sleep(0.05)
            print("last line")
            return 1.0
        """
    )
    assert result.ending.cause is Cause.RETURNED
    assert result.log.startswith("first line")
    assert result.log.endswith("last line\n")
    assert "[hptune: 30" in result.log


@pytest.mark.parametrize("name", ["value", "mine"])
def test_a_report_that_the_ledger_lacks_is_repeated(attempts: Attempts, name: str) -> None:
    """All processes may be killed while the reports of saved steps are on their way.

    Only the objective need be a finite number, and the result alone may have it.
    """
    model = f"""
        import os, signal

        def objective(hp, trial):
            hp.Float("x", 0, 1)
            saved = trial.checkpoint_dir / "epoch"
            done = int(saved.read_text()) if saved.exists() else 0
            print("resumed from", trial.resumed_from)
            for epoch in range(done + 1, 6):
                trial.report(epoch, {name}=float(epoch), other=float("inf"))
                saved.write_text(str(epoch))
                if epoch == 3:
                    os.kill(os.getpid(), signal.SIGKILL)
            return 1.0
        """
    assert attempts.run(model, trial=1).steps == [1, 2, 3]
    again = attempts.run(model, trial=1, number=1, resume_from=1)
    assert again.steps == [2, 3, 4, 5]
    assert "resumed from 3" in again.log


@pytest.mark.parametrize("returned", ["0.5", "2.0", "5.0", "{}"])
def test_a_result_that_follows_the_reports_of_an_earlier_attempt_is_the_same(
    attempts: Attempts, returned: str
) -> None:
    """The first attempt may be killed between its last report and its result."""
    model = f"""
        import os, signal

        def objective(hp, trial):
            hp.Float("x", 0, 1)
            if trial.resumed_from is None:
                for epoch in range(1, 6):
                    trial.report(epoch, value=float(epoch), other=float("inf"))
                if (trial.checkpoint_dir / "dies").exists():
                    os.kill(os.getpid(), signal.SIGKILL)
            return {returned}
        """
    whole = attempts.run(model, trial=1).ending
    attempts.checkpoint_dir_of(2).mkdir(parents=True)
    (attempts.checkpoint_dir_of(2) / "dies").touch()
    assert attempts.run(model, trial=2).ending.cause is Cause.KILLED
    resumed = attempts.run(model, trial=2, number=1, resume_from=5).ending
    assert (resumed.metrics, resumed.step) == (whole.metrics, whole.step)


def test_a_limit_of_months_is_no_burden(
    attempts: Attempts, caplog: pytest.LogCaptureFixture
) -> None:
    months = 60 * 86400.0
    text = """
        def objective(hp, trial):
            return hp.Float("x", 0, 1)
        """
    result = attempts.run(text, timeout_seconds=months, hang_timeout_seconds=months)
    assert result.ending.cause is Cause.RETURNED
    assert not caplog.records


def test_a_trial_that_has_used_up_its_file_descriptors_keeps_its_result(attempts: Attempts) -> None:
    result = attempts.run(
        """
        import contextlib, os

        def objective(hp, trial):
            with contextlib.suppress(OSError):
                while True:
                    os.dup(0)
            return 1.0
        """
    )
    assert result.ending.cause is Cause.RETURNED, result.ending


def test_one_that_may_end_its_epoch_learns_that_its_worker_leaves(
    tmp_path: Path, warm: ForkServer
) -> None:
    """Its work so far is saved then, although the epoch would take longer."""
    (tmp_path / "model.py").write_text("""
import time

def objective(hp, trial):
    while not trial.should_stop():
        time.sleep(0.01)
    trial.report(1, loss=0.5)
    while trial.halt == "stop":
        time.sleep(0.01)
    (trial.checkpoint_dir / "saved").touch()
    return None
""")
    order = order_of(tmp_path / "model.py")
    limits = AttemptLimits(stop_at=StopAt.EPOCH)
    order = replace(order, brief=replace(order.brief, limits=limits))
    events: queue.SimpleQueue[Event] = queue.SimpleQueue()
    runner = AttemptRunner(order.brief.source, events.put, fork_server_address=warm.address)
    with contextlib.closing(runner):
        runner.start(order)
        while not isinstance(event := events.get(timeout=100), AttemptEnded):
            if isinstance(event, AttemptStarted):
                runner.stop(ATTEMPT, Halt.STOP)
            elif isinstance(event, Reported):
                runner.stop(ATTEMPT, Halt.RELEASE)
    assert event.ending.cause is Cause.STOPPED, "the first order counts"
    assert (order.directory / "checkpoint" / "saved").exists()
