"""The commands for programs that train the trials of a study: ask, tell, report-step, wait."""

from __future__ import annotations

import contextlib
import json
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

import hptune
from fake_study import attempt, trial
from hptune.cli import telling
from hptune.core.attempt import Outcome
from hptune.core.trial import Trial, TrialState
from hptune.reporting.results.view import StudyState
from hptune.storage.directory import StudyDirectory
from hptune.storage.ledger import Ledger
from hptune.study.study import Study
from in_process import InProcess
from stored_study import curve, stored

WORSE = [trial(0, value=0.5), trial(1, value=0.4)]
BEST = trial(2, value=0.9)
TRAINS_ON = replace(BEST, state=TrialState.RUNNING, attempts=2)
NO_BETTER = replace(TRAINS_ON, state=TrialState.COMPLETE)
BETTER = replace(NO_BETTER, value=0.95)
FAILED = trial(2, TrialState.FAILED, reason="bad")
WAITS = trial(2, TrialState.WAITING)
FAILED_AGAIN = replace(FAILED, attempts=2, reason="worse")


@pytest.fixture
def study(cli: InProcess) -> Study:
    space = {"x": hptune.Float(0.0, 1.0)}
    settings = {"search": "random", "trials": 3, "pruner": "asha", "min_epochs": 1, "epochs": 9}
    return hptune.open_study(cli.directory / "s", space, "loss:min", **settings)  # type: ignore[arg-type]


def test_a_study_by_commands_alone(cli: InProcess, study: Study) -> None:
    assert cli("ask", "s").out.startswith("0.0 x=")
    asked = [
        json.loads(line)
        for line in cli("ask", "s", "--json", "--count", "2").out.split("\n")
        if line
    ]
    assert [(each["trial"], each["attempt"]) for each in asked] == [(1, "1.0"), (2, "2.0")]
    assert asked[0]["params"] == study.trials[1].params
    none = cli("ask", "s", "--json")
    assert (none.code, json.loads(none.out)["over"]) == (1, False)
    assert "open: programs ask for its trials" in cli("status", "s").out
    assert "0/3: 3 running" in cli("status", "s").out

    assert cli("report-step", "s", "0", "--step", "1", "loss=0.4").out == "continue\n"
    stopped = cli("report-step", "s", "1.0", "--step", "1", "loss=0.9", "--json")
    assert (stopped.code, json.loads(stopped.out)["continue"]) == (3, False)
    assert cli("tell", "s", "1").out.startswith("trial 1: pruned 0.9")
    assert json.loads(cli("tell", "s", "0", "loss=0.3", "--json").out)["value"] == 0.3
    assert cli("tell", "s", "2", "--release").out.startswith("trial 2: waiting")
    assert cli("ask", "s").out.startswith("2.1 ")
    assert (
        cli("tell", "s", "2.1", "--failed", "out of luck").out == "trial 2: failed (out of luck)\n"
    )

    over = cli("ask", "s", "--json")
    assert (over.code, json.loads(over.out)["over"]) == (1, True)
    assert cli("wait", "s").out == "done: 3/3 trials\n"
    assert [t.state for t in study.trials] == [
        TrialState.COMPLETE, TrialState.PRUNED, TrialState.FAILED
    ]  # fmt: skip
    for command in ("best", "trials", "list", "replay", "space", "status"):
        assert cli(command, "s").code == 0, command
    assert "\nlog " not in cli("show", "s", "1").out
    assert cli("report", "s", "-o", "page.html").code == 0
    assert cli("export", "s", "--format", "csv").code == 0


@pytest.mark.parametrize(
    ("until", "trials", "said"),
    [
        ("best", [BEST, TRAINS_ON, BETTER], "trial 2: complete 0.95\n"),
        ("trial", [BEST, TRAINS_ON, BETTER], "trial 2: complete 0.95\n"),
        ("trial", [BEST, TRAINS_ON, NO_BETTER], "trial 2: complete 0.9\n"),
        ("failed", [FAILED, WAITS, FAILED_AGAIN], "trial 2: failed (worse)\n"),
    ],
)
def test_wait_knows_a_trial_that_trains_on_or_begins_again(
    cli: InProcess,
    monkeypatch: pytest.MonkeyPatch,
    until: str,
    trials: list[Trial],
    said: str,
) -> None:
    first, *others = trials
    ran = [
        attempt(2, number, ended_at=at, outcome=Outcome.FINISHED)
        for number, at in enumerate([1010.0, 1020.0])
        if first is BEST
    ]
    directory = stored(cli.directory / "s", [WORSE[0], WORSE[1], first], ran[:1])
    later = iter(others)
    with directory.acquire() as lock, Ledger.open(directory, lock=lock) as ledger:

        def pause(_: float) -> None:
            changed = next(later)
            ended = ran[1:] if changed is BETTER else []
            ledger.append(curve(2, [0.5]), trials=[changed], attempts=ended)

        monkeypatch.setattr(telling, "time", SimpleNamespace(**vars(time) | {"sleep": pause}))
        assert cli("wait", "s", "--until", until).out == said


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("tell", "s", "0", "loss"), 2, "'loss' is no metric; allowed is NAME=NUMBER"),
        (("tell", "s", "0", "loss=low"), 2, "'loss=low' is no metric"),
        (("tell", "s", "0", "loss=1", "--release"), 2, "give one of"),
        (("tell", "s", "9", "loss=1"), 2, "has no trial 9; programs have 0"),
        (("tell", "s", "0.7", "loss=1"), 1, "attempt 0.7 is over"),
        (("tell", "s", "0"), 2, "give loss, or why it has failed (failed=, --failed)"),
        (("tell", "s", "0", "lost=1"), 2, "needs the metric 'loss' (is it 'lost'?)"),
        (("report-step", "s", "0", "--step", "1"), 0, ""),
        (("report-step", "s", "0", "--step", "-1", "loss=1"), 2, "allowed are 0 to 2**63 - 1"),
        (
            ("report-step", "s", "0", "--step", str(2**63), "loss=1"),
            2,
            "allowed are 0 to 2**63 - 1",
        ),
        (("report-step", "s", "0", "--step", "1", "loss=nan"), 3, ""),
        (("wait", "s", "--timeout", "1s"), 4, "did not happen within --timeout: --until end"),
        (("ask", "gone"), 2, "starts one, and so does hptune.open_study in a Python program"),
        (("best", "s"), 1, "no trial of"),
    ],
)
def test_what_does_not_fit(
    cli: InProcess, study: Study, arguments: tuple[str, ...], code: int, words: str
) -> None:
    cli("ask", "s")
    ended = cli(*arguments)
    assert ended.code == code
    assert words in (ended.out if code == 4 else ended.err)
    assert study.trials[0].state is TrialState.RUNNING


def test_resume_opens_a_study_without_code(cli: InProcess, study: Study) -> None:
    for _ in range(3):
        cli("ask", "s")
    for number in range(3):
        cli("tell", "s", str(number), "loss=1")
    assert "the study in" in (ended := cli("resume", "s")).out
    assert "is over" in ended.out
    assert cli("resume", "s", "--trials", "4").out.endswith("or by `hptune ask`\n")
    assert cli("ask", "s").out.startswith("3.0 ")
    refused = cli("resume", "s", "--workers", "3")
    assert (refused.code, "--workers is for workers of hptune's own" in refused.err) == (2, True)
    cli("tell", "s", "3", "loss=1")
    assert "not running, so there is nothing to pause" in cli("pause", "s").err
    assert study.tags == ()


def test_resume_asks_for_no_more_trials_of_a_grid_that_is_over(cli: InProcess) -> None:
    opened = hptune.open_study(cli.study(), {"b": hptune.Boolean()}, "loss:min", search="grid")
    for each in opened.trials_to_run():
        each.tell(loss=1.0)
    ended = cli("resume", cli.study(), "--trials", "3")
    assert ended.out.endswith("all 2 configurations of the search space were tried\n")


def test_resume_continues_what_a_program_has_yet_to_learn_is_stopped(
    cli: InProcess, study: Study
) -> None:
    cli("ask", "s")
    cli("stop", "s")
    assert "stops; other programs still have 1 trial" in cli("ask", "s").err
    assert "It is open" in cli("resume", "s").out
    assert cli("ask", "s").out.startswith("1.0 ")
    cli("report-step", "s", "0", "--step", "1", "loss=0.4")
    assert cli("tell", "s", "0").out.startswith("trial 0: waiting")
    assert cli("ask", "s").out.startswith("0.1 ")
    assert study.view().state is StudyState.OPEN


def test_stop_ends_it_for_programs_and_resume_continues(cli: InProcess, study: Study) -> None:
    cli("ask", "s")
    assert "programs that have its trials learn it at their next reports" in cli("stop", "s").out
    assert cli("report-step", "s", "0", "--step", "1", "loss=0.4").code == 3
    assert cli("ask", "s").code == 1
    cli("tell", "s", "0")
    assert study.view().state is StudyState.STOPPED
    assert (over := json.loads(cli("ask", "s", "--json").out))["over"]
    assert "stopped by" in over["reason"]
    assert "there is nothing to stop" in cli("stop", "s").err
    assert "It is open" in cli("resume", "s").out
    assert cli("ask", "s").out.startswith("0.1 ")


@pytest.mark.parametrize("is_busy", [False, True])
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("stop", "s", "--trial", "0"), "end one with `hptune tell"),
        (("enqueue", "s", "x=0.5"), "enqueue one with `hptune resume"),
        (("pause", "s"), "only a master pauses"),
    ],
)
def test_what_only_a_master_does(
    cli: InProcess, study: Study, arguments: tuple[str, ...], words: str, is_busy: bool
) -> None:
    directory = StudyDirectory(study.directory)
    with directory.acquire(is_brief=True) if is_busy else contextlib.nullcontext():
        ended = cli(*arguments)
    assert (ended.code, words in " ".join(ended.err.split())) == (1, True)


def test_resume_enqueues_a_trial_while_programs_have_others(cli: InProcess, study: Study) -> None:
    cli("ask", "s")
    assert cli("resume", "s", "--try", "x=0.125").code == 0
    assert cli("ask", "s").out.startswith("1.0 x=0.125")
    assert cli("tell", "s", "0", "loss=1").code == 0


def test_a_tuner_cannot_resume_it(tmp_path: Path, study: Study) -> None:
    def objective(hp: object, trial: object) -> float:
        return 0.0

    tuner = hptune.Tuner(objective, directory=study.directory, resume=True, quiet=True)
    with pytest.raises(hptune.UsageError, match="has no code that workers could run"):
        tuner.fit()


def test_a_model_is_not_there(study: Study) -> None:
    study.tell(study.ask(), loss=1.0)  # type: ignore[attr-defined]
    with pytest.raises(hptune.StudyError, match="has no Keras model: no trial stored a model"):
        study.best_model()
