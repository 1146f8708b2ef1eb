"""The screen of `hptune status --watch`: that of the run itself, and its last state."""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import replace

import pytest

from fake_study import GOALS, LivingMaster, attempt, trial
from hptune.core.attempt import AttemptId, Outcome, Report
from hptune.core.trial import TrialState
from hptune.reporting.results.view import StudyView
from hptune.reporting.terminal import watch as watching
from hptune.reporting.terminal.watch import Watched, watch

VIEW = StudyView(
    directory="runs/digits",
    search="tpe",
    goals=GOALS,
    budget_trials=10,
    trials=[trial(0, value=0.9, step=5, params={"lr": 0.5}), trial(1, TrialState.RUNNING)],
    attempts=[attempt(0, ended_at=1040.0, outcome=Outcome.FINISHED), attempt(1)],
    latest={AttemptId(1, 0): Report(3, {"val_accuracy": 0.95})},
    master=LivingMaster(),
    workers=2,
    epochs=5,
)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "REFRESH_SECONDS", 0.0)
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setenv("LINES", "40")


def not_shown() -> str:
    pytest.fail("it takes long, and is asked for each second")


def shown(stream: io.StringIO, *states: Watched) -> str:
    reads: Iterator[Watched] = iter(states)
    watch(lambda: next(reads), stream)
    return stream.getvalue()


def test_a_terminal_has_the_screen_of_the_run_and_then_the_last_state() -> None:
    ended = [VIEW.trials[0], trial(1, value=0.96, step=5)]
    later = replace(VIEW, trials=ended, attempts=VIEW.attempts[:1])
    screen = shown(
        Terminal(),
        Watched(not_shown, is_over=False, view=VIEW, jobs="3 pending"),
        Watched(not_shown, is_over=False, view=later),
        Watched(lambda: "state    done", is_over=True, view=replace(later, master=None)),
    )
    first, _, after = screen.partition("ended")
    for fact in (
        "watch    hptune dashboard runs/digits",
        "runs     on login1 in process 4242",
        "1/10 trials",
        "trial 0, from epoch 5",
        "3/5",
        "better than the best",
        "3 pending",
    ):
        assert fact in first, screen
    assert "0.9600" in after, "the trial that ended while it was watched"
    assert "state    done" in after


def test_what_does_not_run_and_pipes_have_the_state_in_words() -> None:
    waits = Watched(lambda: "the job 7 waits", is_over=False)
    over = Watched(lambda: "state    done", is_over=True, view=replace(VIEW, master=None))
    assert "the job 7 waits" in shown(Terminal(), waits, over)
    running = Watched(lambda: "state    running", is_over=False, view=VIEW)
    assert shown(io.StringIO(), running, running, over) == "state    running\n\nstate    done\n"


def test_no_trial_runs_while_the_next_master_still_reads_the_model() -> None:
    begins = Watched(not_shown, is_over=False, view=replace(VIEW, is_beginning=True))
    over = Watched(lambda: "state    done", is_over=True, view=replace(VIEW, master=None))
    assert "3/5" not in shown(Terminal(), begins, over)
