"""Output of a run on a real terminal, which never delays it."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator

import pytest

from in_process import InProcess
from real_runs import Hptune, Terminal, states, wait_for

LIGHT = ("--search", "random", "--executor", "joblib", "--workers", 1)
QUICK = """
    OBJECTIVE = "score:max"

    def objective(hp, trial):
        return hp.Float("x", 0.0, 1.0)
    """


# All but the first trial wait for a gate.
GATED = QUICK.replace(
    "def objective(hp, trial):",
    """def objective(hp, trial):
        import os, time
        while trial.number and not os.path.exists("gate"):
            time.sleep(0.02)""",
)

LONG = """
    import time

    OBJECTIVE = "score:max"

    def objective(hp, trial):
        x = hp.Float("x", 0.0, 1.0)
        trial.report(1, score=x)
        while not trial.should_stop():
            time.sleep(0.05)
        return x
    """


# The command, which waits for a reader a fifth as long as usual.
IMPATIENT = """
from hptune.cli import main, output
from hptune.reporting.terminal.background_writer import BackgroundWriter

output._LAST_WAIT_SECONDS /= 5
BackgroundWriter.__init__.__kwdefaults__["patience_seconds"] /= 5
if __name__ == "__main__":
    main({})
"""


@pytest.fixture
def full() -> Iterator[Terminal]:
    terminal = Terminal(is_full=True)
    yield terminal
    terminal.close()


@pytest.fixture
def terminal() -> Iterator[Terminal]:
    terminal = Terminal()
    yield terminal
    terminal.close()


@pytest.mark.parametrize("term", ["xterm", pytest.param("dumb", marks=pytest.mark.slow)])
def test_a_terminal_that_nobody_reads_holds_up_neither_the_study_nor_its_end(
    hptune: Hptune, full: Terminal, term: str
) -> None:
    model = hptune.file("quick.py", QUICK)
    arguments = ("run", str(model), "--study", "study", "--trials", "12", *map(str, LIGHT))
    started = hptune.script(IMPATIENT.format(arguments), terminal=full, TERM=term)
    assert started.wait(seconds=100).code == 0
    assert states(hptune.study()) == {"COMPLETE": 12}


@pytest.mark.parametrize("term", ["xterm", "dumb"])
def test_a_terminal_that_is_read_late_gets_every_line_that_stays(
    hptune: Hptune, full: Terminal, term: str
) -> None:
    model = hptune.file("gated.py", GATED)
    arguments = (model, "--study", hptune.study(), "--trials", 12, *LIGHT)
    started = hptune.at(full, "run", *arguments, TERM=term)
    wait_for(lambda: states(hptune.study()).get("COMPLETE"), "a trial that is complete")
    full.read()
    (hptune.directory / "gate").touch()
    while started.process.poll() is None:
        full.read()
    shown = full.rest()
    assert started.wait().code == 0, shown
    for words in ("random search for score (max), 12 trials", "Done: 12/12 trials", "next"):
        assert words in shown, shown
    if term == "dumb":
        assert all(f"trial {number} complete" in shown for number in range(12))
    else:
        assert shown.rindex("\x1b[?25h") > shown.rindex("\x1b[?25l")  # the cursor is back


def test_a_budget_ends_a_study_of_one_trial_that_reports_nothing(
    hptune: Hptune, cli: InProcess
) -> None:
    model, study = hptune.file("long.py", LONG), hptune.study()
    ended = hptune("run", model, "--study", study, "--trials", 1, "--budget", "0.001core-h")
    # 3.6 seconds.
    assert ended.err.count("limits   0.001 core hours for all trials") == 1
    output = ended.out + ended.err
    assert "The budget of 0.001 core hours is spent: 0/1 trials" in output
    assert f"hptune resume {study.name} --budget 0.002core-h" in output
    status = cli("status", study)
    assert "not running: the budget of 0.001 core hours is spent;" in status.out
    assert "--budget 0.002core-h" in status.out
    again = cli("resume", study)
    assert "is spent; a larger --budget asks for more" in again.err
    assert again.code == 1, "no trial is complete"


def test_a_status_that_is_watched_follows_the_study_to_its_end(
    hptune: Hptune, cli: InProcess, terminal: Terminal
) -> None:
    model, study = hptune.file("long.py", LONG), hptune.study()
    light = ("--executor", "joblib", "--workers", 1, "--trials", 1)
    run = hptune.start("run", model, "--study", study, *light)
    wait_for((study / "study.db").exists, "the study")
    watching = hptune.at(terminal, "status", study, "--watch", TERM="xterm")
    plain = hptune.start("status", study, "--watch")
    wait_for(lambda: "step" in terminal.read(), "the trial's first report")
    assert plain.process.stdout is not None
    shown = plain.process.stdout.readline()  # it has read the study that runs
    assert cli("stop", study).code == 0
    run.wait()
    ended = watching.wait()
    shown_last = terminal.rest()
    assert ended.code == 0, shown_last
    shown += plain.process.stdout.read()
    assert plain.wait().code == 0, shown
    # In a pipe: once at the start, and once at the end.
    assert shown.count("\nstate ") == 2, shown
    assert "state    running" in shown.partition("\n\n")[0], shown
    assert "not running: stopped by" in shown.rpartition("\nstate ")[2], shown
    assert "not running: stopped by" in shown_last


@pytest.mark.parametrize("times", [1, 2])
def test_what_is_waited_for_gives_its_line_to_the_end(
    hptune: Hptune, terminal: Terminal, times: int
) -> None:
    slow = QUICK.replace("OBJECTIVE", "import time; time.sleep(100); OBJECTIVE")
    model = hptune.file("slow.py", slow)
    started = hptune.at(terminal, "run", model, "--study", hptune.study(), *LIGHT, TERM="xterm")
    wait_for(lambda: re.search(r"reading slow.py … \d+s", terminal.read()), "moving seconds")
    for _ in range(times):
        os.killpg(started.pid, signal.SIGINT)
    assert started.wait().code == 130
    shown = terminal.rest()
    end = r"\r\x1b\[2K(interrupted|Stopped at once); no study was made yet"
    assert re.search(end, shown), shown
