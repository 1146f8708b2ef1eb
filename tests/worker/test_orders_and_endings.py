"""What a trial is after an order to stop: by the order, when it came, and what the code returns.

The objective runs in this process; its ending goes through the states of runner and engine.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import attempt_orders
from engine_driver import FIRST, GOALS, EngineDriver
from hptune.core.attempt import AttemptId, CameBack, Ending, Halt
from hptune.core.messages import AttemptEnded, Event, Reported, Start, Stop
from hptune.core.pruner import PrunerSettings
from hptune.core.resources import Placement
from hptune.core.trial import TrialState
from hptune.core.user_requests import UserAction
from hptune.training import function_objective
from hptune.training.context import TrialContext
from hptune.user_code.model_file import UserCode
from hptune.worker.forkserver.error_causes import Where, ending_by_order, ending_of
from hptune.worker.orders import AttemptLimits, StopOrder
from hptune.worker.runner_state import GRACE_SECONDS, EndAttempt, RunnerState

EPOCHS = 3
LIMIT = 100.0
ORDERS = {
    "the pruner": TrialState.PRUNED,
    "hptune stop DIR TRIAL": TrialState.PRUNED,
    "the pruner's pause": TrialState.PAUSED,
    "hptune stop DIR": TrialState.WAITING,
    "its worker leaves": TrialState.WAITING,
    "--trial-timeout": TrialState.FAILED,
}
"""What the trial is if it obeys."""

REPORTS = {"before a report": 0, "between reports": 1, "after the last report": EPOCHS}
DONE, FAILED, OBEYED = TrialState.COMPLETE, TrialState.FAILED, None
TOLD = {
    # what comes back: [before a report, between reports, after the last one]
    "None": (OBEYED, OBEYED, OBEYED),
    "a value": (OBEYED, OBEYED, DONE),
    "infinity": (OBEYED, OBEYED, OBEYED),
    "a text": (OBEYED, OBEYED, OBEYED),
    "sys.exit": (OBEYED, OBEYED, OBEYED),
    "os._exit": (OBEYED, OBEYED, OBEYED),
    "killed": (OBEYED, OBEYED, OBEYED),
    "an exception": (FAILED, FAILED, FAILED),
}
"""What the trial is if its code has seen the order, by `trial.should_stop()`."""

UNTOLD = TOLD | {
    "a value": (DONE, DONE, DONE),
    "infinity": (FAILED, FAILED, FAILED),
    "a text": (FAILED, FAILED, FAILED),
}
"""The same if it has not: it never asks, or did so for the last time before the order came."""

AFTER_RESULT = {"a value": DONE, "None": DONE, "an exception": FAILED}
"""The same if the order comes when the objective has returned."""

_RETURNED: dict[str, Any] = {"None": None, "a value": 0.5, "infinity": -float("inf"), "a text": "x"}


@dataclasses.dataclass(frozen=True, slots=True)
class Case:
    order: str
    reports: int
    asks: bool
    back: str
    is_late: bool = False

    def __str__(self) -> str:
        asks = "seen" if self.asks else "unseen"
        when = "after the result" if self.is_late else f"after {self.reports} reports, {asks}"
        return f"{self.order} {when}: {self.back}"


def cases() -> list[tuple[Case, TrialState]]:
    found = []
    for order, obeyed in ORDERS.items():
        for (asks, table), (at, reports) in itertools.product(
            ((True, TOLD), (False, UNTOLD)), enumerate(REPORTS.values())
        ):
            if order.startswith("the pruner") and not reports:
                continue  # it judges reports
            found += [
                (Case(order, reports, asks, back), row[at] or obeyed) for back, row in table.items()
            ]
        found += [
            (Case(order, EPOCHS, asks=True, back=back, is_late=True), state)
            for back, state in AFTER_RESULT.items()
        ]
    return found


class Played:
    """One trial of an engine, whose attempt runs in this process."""

    def __init__(self, driver: EngineDriver, case: Case, directory: Path) -> None:
        self._driver, self._case = driver, case
        limits = AttemptLimits(trial_timeout_seconds=LIMIT)
        self._runner = RunnerState()
        brief = dataclasses.replace(attempt_orders.BRIEF, limits=limits)
        mode = {"the pruner": {}, "the pruner's pause": {"pruner_mode": "promote"}}.get(case.order)
        if mode is not None:
            settings = PrunerSettings(name="asha", epochs=EPOCHS, options=mode)
            driver.go(2, cores=2, pruner=settings)
            driver.report(AttemptId(1, 0), 2, score=0.9)  # the trial is poor
        else:
            driver.go(2, cores=2)
        self._runner.start(FIRST, brief)
        self._runner.forked(FIRST, now=0.0)
        self._directory = directory
        self._trial = TrialContext(
            Start(FIRST, {}, Placement("worker", (0,)), 1),
            directory=directory,
            goals=GOALS,
            epochs=EPOCHS,
            send=self._send,
        )

    def _send(self, event: Event) -> None:
        assert isinstance(event, Reported)
        self._driver.report(FIRST, event.report.step, **event.report.metrics)

    def _order(self) -> None:
        match self._case.order:
            case "hptune stop DIR":
                self._stop(self._driver.stop())
            case "hptune stop DIR TRIAL":
                self._stop(self._driver.user(UserAction.STOP_TRIAL, trial=0))
            case "its worker leaves":
                self._driver.about_to_leave()
                self._told(self._runner.stop(FIRST, Halt.RELEASE, now=1.0))
            case "--trial-timeout":
                self._told(self._runner.tick(now=LIMIT))
            case _:
                halt = self._driver.told_to_stop[FIRST]
                self._told(self._runner.stop(FIRST, halt, now=1.0))

    def _stop(self, commands: list[Any]) -> None:
        (halt,) = (each.halt for each in commands if each == Stop(FIRST, each.halt))
        self._told(self._runner.stop(FIRST, halt, now=1.0))

    def _told(self, instructions: tuple[Any, ...]) -> None:
        for order in instructions:
            if isinstance(order, StopOrder):
                self._trial.request_stop(order.halt)

    def _objective(self, _hp: Any, trial: TrialContext) -> Any:
        for step in range(1, self._case.reports + 1):
            trial.report(step, score=0.1)
        if not self._case.is_late:
            self._order()
        if self._case.asks:
            trial.should_stop()
        match self._case.back:
            case "an exception":
                raise ValueError("bad")
            case "sys.exit":
                raise SystemExit(1)
            case back:
                return _RETURNED.get(back)

    def _ending(self) -> Ending:
        code = UserCode(objective=self._objective)
        try:
            return function_objective.run(code, None, self._trial)
        except BaseException as error:  # as the attempt's process does
            ending = ending_by_order(error, self._trial.obeyed(CameBack.NOTHING))
            return ending or ending_of(error, Where(self._directory, False, True))

    def end(self) -> TrialState:
        ending, status = self._ending(), 0
        if self._case.back == "killed":
            self._runner.tick(now=LIMIT + GRACE_SECONDS)
            status = -9
        if self._case.back not in ("os._exit", "killed"):
            self._runner.message(FIRST, AttemptEnded(0.0, FIRST, ending), now=2.0)
        if self._case.is_late:
            self._order()
        found = self._runner.channel_closed(FIRST) or self._runner.exited(FIRST, status)
        (ended,) = found
        assert isinstance(ended, EndAttempt)
        self._driver.end(FIRST, ended.ending)
        self._driver.check_replay()
        return self._driver.trial(0).state


@pytest.mark.parametrize(("case", "state"), cases(), ids=str)
def test_one_rule_says_what_a_trial_is_after_an_order(
    driver: EngineDriver, tmp_path: Path, case: Case, state: TrialState
) -> None:
    assert Played(driver, case, tmp_path).end() is state


@pytest.mark.parametrize("epochs", [1, 2])
def test_nothing_is_reported_before_the_first_report(tmp_path: Path, epochs: int) -> None:
    trial = TrialContext(
        Start(FIRST, {}, Placement("worker", (0,)), 1),
        directory=tmp_path,
        goals=GOALS,
        epochs=epochs,
        send=lambda _event: None,
    )
    trial.request_stop(Halt.STOP)
    assert trial.should_stop()
    assert trial.obeyed(CameBack.RESULT) is Halt.STOP
    for step in range(epochs):  # from 0
        assert not trial.has_reported_all
        trial.report(step, score=0.1)
    assert trial.obeyed(CameBack.RESULT) is None


@pytest.mark.parametrize(
    "broken",
    [
        lambda back, **_: back is not CameBack.NOTHING,
        lambda _back, **_told: True,
        lambda back, *, was_told, all_reported: back is CameBack.RESULT and all_reported,
        lambda _back, *, was_told, all_reported: not was_told or all_reported,
    ],
    ids=["a result always counts", "no order is obeyed", "who never asks obeys", "None may count"],
)
def test_the_table_finds_a_broken_rule(
    driver: EngineDriver,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    broken: Callable[..., bool],
) -> None:
    monkeypatch.setattr(CameBack, "counts", broken)
    wrong = 0
    for case, state in cases():
        if case.order == "hptune stop DIR TRIAL":
            driver.__init__()  # type: ignore[misc]  # a new one for each case
            wrong += Played(driver, case, tmp_path).end() is not state
    assert wrong
