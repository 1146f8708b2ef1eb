from __future__ import annotations

import io
import sys
import time
from dataclasses import replace

import pytest
from rich.cells import cell_len
from rich.console import Console

from fake_study import running, snapshot, trial
from hptune.core.notice import Notice
from hptune.core.snapshot import StudySnapshot
from hptune.core.trial import ParamValue, Trial, TrialState
from hptune.reporting.terminal.live import LiveProgress
from hptune.reporting.terminal.plain import PlainProgress
from hptune.reporting.terminal.progress import RunHeader
from hptune.text import NOTHING
from screens import assert_says

HEADER = RunHeader("runs/digits", "tpe", "val_accuracy (max)", 10, "2 at a time", epochs=5)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Screen:
    """A recording terminal with a live display on it."""

    def __init__(self, width: int, height: int = 30, *, header: RunHeader | None = HEADER) -> None:
        self.stream = Terminal()
        self.console = Console(
            file=self.stream, force_terminal=True, width=width, height=height, record=True
        )
        self.progress = LiveProgress(self.stream, console=self.console)
        if header is not None:
            self.progress.start(header)

    def new_lines(self) -> list[str]:
        """Return the lines drawn since the last call, without styles and control codes."""
        return self.console.export_text().splitlines()

    def new_codes(self) -> str:
        """Return the text written since the last call, with all control codes."""
        written = self.stream.getvalue()
        self.stream.seek(0)
        self.stream.truncate()
        return written


def busy_study(params: dict[str, ParamValue]) -> tuple[StudySnapshot, tuple[Trial, ...]]:
    ended = (
        trial(0, value=0.9, step=5, params=params),
        trial(1, TrialState.PRUNED, value=0.3, step=2),
        trial(2, TrialState.FAILED, reason="OOM: no room\nfor a tensor" + " of many bytes" * 20),
        trial(3, value=0.98765, step=4, params=params),
    )
    runs = (running(4, placed_at=1000.0, step=3, value=0.7), running(5, placed_at=1010.0))
    return snapshot(*ended, runs=runs, stall_reason="no worker has 4 cores free, " * 8), ended


@pytest.mark.parametrize("width", [60, 100, 160])
def test_the_display_fits_and_shows_what_matters(width: int) -> None:
    nasty: dict[str, ParamValue] = {
        "learning_rate": 0.00123456,
        "名前" * 20: "[bold red]値[/]\x1b[2J\n" * 5,
        **{f"layer_{i}_units": 2**i for i in range(40)},
    }
    study, ended = busy_study(nasty)
    screen = Screen(width)
    screen.progress.update(study, ended, 1021.0)
    lines = screen.new_lines()
    assert max(cell_len(line) for line in lines) <= width
    assert len(lines) <= 30 + len(HEADER.lines()) + 1
    shown = "\n".join(lines)
    for fact in (
        "4/10 trials",
        "2 complete, 1 pruned, 1 failed",
        "0.9877  val_accuracy (max), trial 3, from epoch 4/5",
        "learning_rate=0.001235",
        " more",
        "3/5",
        "0.7000",
        "21s  node01 2 cores",
        "OOM: no room for",
        "pruned",
        f"{NOTHING}  best",
        "4/16 cores in use",
        "no worker has 4 cores free",
    ):
        assert fact in shown
    assert "\x1b[2J" not in screen.new_codes()


def test_the_cores_of_a_large_cluster_are_counted_one_by_one() -> None:
    study, ended = busy_study({"lr": 0.001})
    screen = Screen(100)
    large = replace(study, cpus=4096, cpus_held=4093.5, gpus=1024, gpus_held=1023.0)
    screen.progress.update(large, ended, 1021.0)
    assert any("4094/4096 cores, 1023/1024 GPUs in use" in line for line in screen.new_lines())


def test_a_wide_terminal_shows_the_same_table_as_intended() -> None:
    study, ended = busy_study({"lr": 0.001, "units": 64})
    screen = Screen(100)
    screen.new_lines()
    screen.progress.update(study, ended, 1021.0)
    lines = [line[:66].replace(NOTHING, "-") for line in screen.new_lines()]
    assert_says(
        "\n".join(lines),
        "best 0.9877 val_accuracy (max), trial 3, from epoch 4/5",
        "lr=0.001 units=64",
        "trial epoch val_accuracy time",
        "running 4 3/5 0.7000 21s node01 2 cores",
        "5 - - 11s node01 2 cores",
        "ended 0 from 5 0.9000 - complete",
        "1 from 2 0.3000 - pruned",
        "2 failed: OOM: no room for a tensor of many bytes of",
        "3 from 4 0.9877 - best",
        "workers 2 4/16 cores in use",
    )
    ends = {line.index(each) + len(each) for line in lines for each in ("0.7000", "0.9000")
            if each in line and "best" not in line}  # fmt: skip
    assert len(ends) == 1, "running and ended trials share the columns"


def test_a_running_trial_that_is_ahead_is_marked_and_a_wide_terminal_shows_configurations() -> None:
    done = trial(0, value=0.7, params={"lr": 0.1})
    runs = (
        running(1, step=2, value=0.71, params={"lr": 0.2}),
        running(2, step=2, value=0.69, params={"lr": 0.3}),
        running(3, params={"lr": 0.4}),
    )
    for width, is_wide in ((159, False), (160, True)):
        screen = Screen(width)
        screen.new_lines()
        screen.progress.update(snapshot(done, runs=runs), (), 1021.0)
        lines = [line for line in screen.new_lines() if "2 cores" in line]
        assert ["better than the best" in line for line in lines] == [True, False, False]
        assert [f"lr=0.{n}" in line for n, line in enumerate(lines, 2)] == [is_wide] * 3


@pytest.mark.parametrize("height", [3, 8, 12, 20, 50])
def test_many_running_trials_never_fill_more_than_the_terminal(height: int) -> None:
    done = tuple(trial(i, value=0.5) for i in range(20))
    runs = tuple(running(i) for i in range(20, 84))
    screen = Screen(100, height)
    screen.new_lines()
    screen.progress.update(snapshot(*done, runs=runs, budget=100), done, 1021.0)
    lines = screen.new_lines()
    assert len(lines) < height
    assert "20/100 trials" in lines[0]
    if height >= 8:
        assert any(line.endswith(" more") for line in lines)
        assert any(line.startswith("workers") for line in lines)


@pytest.mark.parametrize(("width", "height", "lines"), [(80, 24, 2), (200, 50, 1)])
def test_pending_jobs_are_shown_with_their_reasons(width: int, height: int, lines: int) -> None:
    jobs = "2 running on g1; 4 pending in gpu: Resources, expected to start at 01:20"
    done = tuple(trial(i, value=0.5) for i in range(9))
    screen = Screen(width, height)
    screen.progress.start(HEADER)
    screen.new_lines()
    study = snapshot(*done, runs=tuple(running(i) for i in range(9, 30)), budget=100)
    screen.progress.update(replace(study, jobs=jobs), done, 1021.0)
    shown = screen.new_lines()
    assert len(shown) <= height
    *_, above = (i for i, line in enumerate(shown) if line.startswith("workers"))
    last = [line.strip() for line in shown[above + 1 :]]
    assert (len(last), " ".join(last)) == (lines, f"jobs     {jobs}")
    waits = replace(snapshot(stall_reason="waiting for a worker", workers=0), jobs="1 pending")
    screen.progress.update(waits, (), 1022.0)
    assert [line.rstrip() for line in screen.new_lines()][-3:] == [
        "workers  0",
        "jobs     1 pending",
        "stalled  waiting for a worker",
    ]


def test_the_end_leaves_a_summary_and_no_table() -> None:
    study, ended = busy_study({"lr": 0.001})
    screen = Screen(100)
    screen.progress.update(study, ended, 1021.0)
    screen.progress.update(snapshot(*ended), (), 1211.0)
    screen.new_lines()
    screen.progress.stop()
    lines = screen.new_lines()
    assert [line.rstrip() for line in lines] == [
        "trials   " + "━" * 14 + "─" * 22 + "  4/10 trials",
    ]
    assert screen.new_codes().endswith("\x1b[?25h")  # the cursor is shown again
    screen.progress.stop()
    assert screen.new_codes() == ""


def test_it_redraws_four_times_a_second_at_most_and_only_what_changed() -> None:
    screen = Screen(100)
    screen.new_codes()
    drawn = []
    for tick in range(16):
        study = snapshot(runs=(running(0, step=tick),))
        screen.progress.update(study, (), 1000.0 + tick / 16)
        drawn.append(bool(screen.new_codes()))
    assert drawn == [tick % 4 == 0 for tick in range(16)]
    for tick in range(16, 48):
        screen.progress.update(study, (), 1000.0 + tick / 16)
        drawn.append(bool(screen.new_codes()))
    assert drawn[16:] == [tick in (16, 32) for tick in range(16, 48)], "a second has passed"


def test_the_header_and_notes_break_between_words_and_keep_paths_whole() -> None:
    path = "/scratch/" + "a-long-name/" * 6 + "model-1"
    notes = ("no objective was named: taking val_accuracy (say OBJECTIVE or --objective)",)
    header = RunHeader(
        path, "auto", "val_accuracy (max)", 50, "2 at a time", confirm=3, notes=notes
    )
    screen = Screen(60, header=header)
    screen.progress.note(
        Notice("stopping 2 trials; their checkpoints are kept, Ctrl-C again stops at once")
    )
    assert [line.rstrip() for line in screen.new_lines() if line.strip()] == [
        "hptune   auto search for val_accuracy (max), 50 trials, then",
        "         the best 3 once more",
        f"study    {path}",
        "runs     2 at a time",
        "watch    hptune dashboard",
        f"         {path}",
        "no objective was named: taking val_accuracy (say OBJECTIVE",
        "or --objective)",
        "stopping 2 trials; their checkpoints are kept, Ctrl-C again",
        "stops at once",
    ]


def test_a_terminal_made_narrower_is_cleared_of_wrapped_lines() -> None:
    screen = Screen(100)
    study, ended = busy_study({"lr": 0.001})
    screen.new_lines()
    screen.progress.update(study, ended, 1021.0)
    before = [line.rstrip() for line in screen.new_lines()]
    rows_after_wrapping = sum(max(1, -(-len(line) // 60)) for line in before)
    assert rows_after_wrapping > len(before)
    screen.new_codes()
    screen.console.width = 60
    screen.progress.update(study, (), 1022.0)
    assert screen.new_codes().count("\x1b[1A") == rows_after_wrapping - 1


def test_notes_and_other_output_stand_above_the_display(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    screen = Screen(100, header=None)
    monkeypatch.setattr(sys, "stdout", screen.stream)
    screen.progress.start(HEADER)
    screen.progress.update(snapshot(runs=(running(0),)), (), 1000.0)
    screen.new_lines()
    screen.progress.note(Notice("stopping: [Ctrl-C] again stops at once"))
    print("a line of a library")  # noqa: T201 - that is the test
    lines = screen.new_lines()
    assert lines[0] == "stopping: [Ctrl-C] again stops at once"
    assert any(line.endswith("a line of a library") for line in lines)
    assert lines[-1].startswith("workers")
    screen.progress.stop()
    assert sys.stdout is screen.stream


def test_a_run_that_ends_before_its_first_picture_leaves_the_terminal_in_order() -> None:
    screen = Screen(100)
    screen.progress.stop()
    assert screen.new_codes().rstrip().endswith("\x1b[?25h")


def test_no_color_is_honoured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    screen = Screen(100)
    study, ended = busy_study({"lr": 0.001})
    screen.progress.update(study, ended, 1021.0)
    codes = screen.new_codes()
    assert "1 failed" in codes
    assert not any(f"\x1b[{colour}m" in codes for colour in range(30, 38))


def test_a_space_without_a_known_size_has_no_bar() -> None:
    screen = Screen(100)
    screen.new_lines()
    screen.progress.update(snapshot(budget=None, stopping="the time limit is reached"), (), 1000.0)
    lines = screen.new_lines()
    assert lines[0].startswith("trials   0 trials   0s")
    assert lines[-1].rstrip() == "stopping the time limit is reached"


def test_what_is_waited_for_has_seconds_that_move_and_gives_its_place(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: clock)
    screen = Screen(30, header=None)
    shown = []
    for seconds, words in ((0.0, "reading model.py"), (0.2, "importing TensorFlow"),
                           (0.4, "importing TensorFlow"), (1.2, "importing TensorFlow"),
                           (9.0, "building models with other choices")):  # fmt: skip
        clock = 100.0 + seconds
        screen.progress.busy(words)
        shown.append(screen.new_lines())
    assert shown == [
        ["reading model.py …"],
        ["importing TensorFlow …"],
        [],
        ["importing TensorFlow … 1s"],
        ["building models with other ch…"],
    ]
    screen.new_codes()
    screen.progress.note(Notice("a warning"))
    assert screen.new_codes() == "\r\x1b[2Ka warning\n"
    screen.progress.busy("loading data")
    screen.new_codes()
    screen.progress.stop()
    assert screen.new_codes() == "\r\x1b[2K"


def test_a_log_has_one_line_for_what_takes_time(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: clock)
    log = io.StringIO()
    progress = PlainProgress(log)
    for seconds, words in ((0, "reading model.py"), (0, "importing Keras"), (3, "importing Keras"),
                           (3, "reading model.py"), (8, "reading model.py"), (8, "loading data"),
                           (8.5, "building one model")):  # fmt: skip
        clock = 100.0 + seconds
        progress.busy(words)
    lines = [line.strip().partition("  ")[2] for line in log.getvalue().splitlines()]
    assert lines == ["reading model.py …", "importing Keras …"]
