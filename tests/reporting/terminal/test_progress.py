from __future__ import annotations

import io
import subprocess
import sys
import time
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fake_study import GOAL, PARAMS, running, snapshot, trial
from hptune.core.attempt import Usage
from hptune.core.goals import Goals
from hptune.core.notice import Notice
from hptune.core.snapshot import RunningAttempt
from hptune.core.trial import Direction, Goal, TrialState
from hptune.reporting.terminal.display import make_progress, progress_stream
from hptune.reporting.terminal.frame import Frames
from hptune.reporting.terminal.live import LiveProgress
from hptune.reporting.terminal.plain import PlainProgress, QuietProgress
from hptune.reporting.terminal.progress import Progress, RunHeader, TrialRate, step_of
from hptune.text import NOTHING

HEADER = RunHeader(
    study="runs/digits",
    search="tpe",
    goal="val_accuracy (max)",
    trials=10,
    parallelism="2 trials at a time on 2 workers",
    notes=("seed 7",),
    epochs=5,
)


def plain() -> tuple[PlainProgress, io.StringIO]:
    stream = io.StringIO()
    return PlainProgress(stream), stream


def test_the_header_quotes_once_and_says_the_unit_of_a_short_time() -> None:
    header = replace(HEADER, study="'runs/my digits'", timeout_seconds=10.0)
    assert "watch    hptune dashboard 'runs/my digits'" in header.lines()
    assert "limits   10s for the study (10 minutes are 10m)" in header.lines()
    assert "limits   1m00s for the study" in replace(header, timeout_seconds=60.0).lines()


def test_a_log_has_each_ended_trial_once_and_a_heartbeat_in_between() -> None:
    progress, stream = plain()
    zero, one = running(0, placed_at=1000.0), running(1, placed_at=1000.0, step=2, value=0.5)
    done = trial(0, value=0.91234, step=5, params={"lr": 0.001})
    failed = trial(1, TrialState.FAILED, reason="ValueError: bad\nshape \x1b[31m(3, 4)")
    two = running(2, placed_at=1042.0, step=3, value=0.7)

    progress.start(HEADER)
    progress.update(snapshot(runs=(zero, one)), (), 1000.0)
    progress.update(snapshot(runs=(zero, one)), (), 1029.0)
    progress.update(snapshot(runs=(zero, one)), (), 1030.0)
    progress.update(snapshot(done, runs=(one, two)), (done,), 1042.0)
    progress.update(snapshot(done, failed, runs=(two,), stall_reason="no room"), (failed,), 1050.0)
    progress.update(snapshot(done, failed, runs=(two,), stall_reason="no room"), (), 1059.0)
    progress.note(Notice("stopping"))
    progress.update(snapshot(done, failed, runs=(two,), stopping="Ctrl-C"), (), 1060.0)
    progress.stop()

    assert stream.getvalue().splitlines() == [
        "hptune   tpe search for val_accuracy (max), 10 trials",
        "study    runs/digits",
        "runs     2 trials at a time on 2 workers",
        "watch    hptune dashboard runs/digits",
        "seed 7",
        "   30s  0/10 trials; running 0, 1 (2/5)",
        (
            "   42s  trial 0 complete after 42s: val_accuracy 0.9123 from epoch 5/5; best so far; "
            "lr=0.001"
        ),
        "   50s  trial 1 failed after 50s: ValueError: bad shape [31m(3, 4)",
        "   50s  no room",
        "   59s  stopping",
        " 1m00s  Ctrl-C",
        " 1m00s  2/10 trials; 1 failed; best 0.9123 (trial 0); running 2 (3/5)",
    ]


def marks(lines: str, words: str) -> list[bool]:
    """Return for each ended trial of a log whether its line has these words."""
    return [f"; {words};" in line for line in lines.splitlines() if " complete" in line]


def test_each_trial_that_was_the_best_of_the_lines_above_it_says_so() -> None:
    """Also if a better one ended before the display was updated."""
    progress, stream = plain()
    values = (1.9, 1.8, 1.95, 2.05, 2.0)
    done = [trial(number, value=value) for number, value in enumerate(values)]
    progress.update(snapshot(), (), 1000.0)
    progress.update(snapshot(*done[:1]), done[:1], 1001.0)
    progress.update(snapshot(*done), done[1:], 1002.0)
    assert marks(stream.getvalue(), "best so far") == [True, False, True, True, False]


def test_a_repeat_is_the_best_only_if_the_study_says_so() -> None:
    progress, stream = plain()
    first, other = trial(0, value=0.8), trial(1, value=0.7)
    repeat = trial(2, value=0.9, origin="confirm of 0")
    later = trial(3, value=0.95)
    progress.update(snapshot(first), (first,), 1000.0)
    by_means = replace(snapshot(first, other, repeat), front=(first,))
    progress.update(by_means, (other, repeat), 1001.0)
    progress.update(replace(snapshot(first, later), front=(first,)), (later,), 1002.0)
    assert marks(stream.getvalue(), "best so far") == [True, False, False, False]


def test_with_several_objectives_the_lines_name_the_front() -> None:
    progress, stream = plain()
    goals = Goals((GOAL, Goal("size", Direction.MIN)))
    sizes = ((0.5, 9.0), (0.4, 8.0), (0.3, 8.5), (0.6, 7.0))
    done = [
        replace(trial(number, value=value), extra_values=(size,))
        for number, (value, size) in enumerate(sizes)
    ]
    progress.update(replace(snapshot(), goals=goals), (), 1000.0)
    # The last one ends in the same update and leaves the others off the front.
    front = replace(snapshot(*done), goals=goals, front=(done[3],))
    progress.update(front, done, 1040.0)
    assert marks(stream.getvalue(), "on the front so far") == [True, True, False, True]
    assert "best so far" not in stream.getvalue()
    assert (
        "4/10 trials; 1 trial on the front; the search chooses the next trial" in stream.getvalue()
    )
    frames = Frames(refresh_seconds=0.0)
    frames.update(front, done, 1040.0)
    lines = [each.plain for each in frames.draw(1040.0, width=80, height=24)]
    assert sum("on the front" in line for line in lines) == 1


def test_the_wait_for_a_process_does_not_count_as_the_trials_time() -> None:
    progress, stream = plain()
    waits = running(0, placed_at=1000.0, waited_seconds=None)
    runs = running(0, placed_at=1000.0, waited_seconds=30.0)
    done = trial(0, value=0.5, params={})
    rate = TrialRate()
    for study, ended, now in (
        (snapshot(runs=(waits,)), (), 1020.0),
        (snapshot(runs=(runs,)), (), 1035.0),
        (snapshot(done), (done,), 1042.0),
    ):
        rate.update(study, ended, now)
        progress.update(study, ended, now)
        if now == 1020.0:
            assert rate.seconds_run(0) is None
    assert "trial 0 complete after 12s" in stream.getvalue()


def test_a_trial_took_as_long_as_all_its_attempts() -> None:
    progress, stream = plain()
    again = running(0, placed_at=1000.0, earlier_seconds=3600.0)
    done = trial(0, value=0.5, params={})
    progress.update(snapshot(runs=(again,)), (), 1000.0)
    progress.update(snapshot(done), (done,), 1001.0)
    assert "trial 0 complete after 1h00m" in stream.getvalue()


def test_a_trial_that_waits_for_another_study_is_shown_as_waiting() -> None:
    progress, stream = plain()
    waits = running(0, waited_seconds=None)
    waits = replace(waits, attempt=replace(waits.attempt, reason="waits for cores"))
    both = snapshot(runs=(waits, running(1, step=2)))
    progress.start(HEADER)
    progress.update(both, (), 1000.0)
    progress.update(both, (), 1030.0)
    assert stream.getvalue().endswith("running 0 (waits), 1 (2/5)\n")


def test_the_time_left_is_unknown_while_the_study_waits_for_workers() -> None:
    rate = TrialRate()
    rate.update(snapshot(), (), 0.0)
    ended = tuple(trial(i, value=0.5) for i in range(5))
    rate.update(snapshot(*ended, runs=(running(5, placed_at=50.0),)), ended, 50.0)
    assert rate.seconds_left(snapshot(*ended)) == pytest.approx(50.0)
    waiting = snapshot(*ended, stall_reason="waiting for a worker")
    rate.update(waiting, (), 60.0)
    assert rate.seconds_left(waiting) is None


def test_the_header_says_what_follows_the_trials() -> None:
    header = replace(HEADER, confirm=2, confirm_times=2)
    assert header.lines()[0].endswith("10 trials, then the best 2 twice more")


def test_a_long_configuration_and_many_running_trials_stay_one_short_line() -> None:
    progress, stream = plain()
    wide = {f"layer_{i}_units": i for i in range(100)}
    runs = tuple(running(i) for i in range(1, 65))
    done = trial(0, value=0.5, params=wide)
    progress.update(snapshot(done, runs=runs, budget=None), (done,), 0.0)
    progress.update(snapshot(done, runs=runs, budget=None), (), 30.0)
    ended, heartbeat = stream.getvalue().splitlines()
    assert len(ended) < 300
    assert heartbeat.endswith(
        "1 trial; best 0.5000 (trial 0); running 1, 2, 3, 4, 5, 6, 7, 8 and 56 more"
    )


def test_a_log_has_no_heartbeat_while_nothing_changes() -> None:
    progress, stream = plain()
    for second in range(0, 301, 10):
        step = 2 if second < 150 else 3
        progress.update(snapshot(runs=(running(1, step=step),)), (), float(second))
    assert stream.getvalue().splitlines() == [
        "   30s  0/10 trials; running 1 (2)",
        " 2m30s  0/10 trials; running 1 (3)",
    ]


def test_an_idle_study_says_that_nothing_runs() -> None:
    progress, stream = plain()
    progress.update(snapshot(workers=0, stall_reason="no workers yet"), (), 0.0)
    progress.update(snapshot(workers=0, stall_reason="no workers yet"), (), 31.0)
    assert stream.getvalue().splitlines() == [
        "    0s  no workers yet",
        "   31s  0/10 trials; nothing runs on 0 workers",
    ]


def test_an_idle_study_says_what_its_jobs_wait_for_and_goes_on_saying_it() -> None:
    progress, stream = plain()
    idle = replace(snapshot(workers=0), jobs="2 pending in gpu: Resources")
    for second in range(0, 1300, 10):
        progress.update(idle, (), float(second))
    words = "0/10 trials; nothing runs on 0 workers; jobs: 2 pending in gpu: Resources"
    assert [line.split(maxsplit=1) for line in stream.getvalue().splitlines()] == [
        ["30s", words],
        ["10m30s", words],
        ["20m30s", words],
    ]
    for second in range(1300, 4000, 10):
        progress.update(replace(idle, paused_by="ada"), (), float(second))
    assert stream.getvalue().count("paused: nothing runs") == 1


def test_the_time_before_the_first_trial_counts() -> None:
    progress, stream = plain()
    began_at = time.time() - 100.0
    progress.start(replace(HEADER, began_at=began_at))
    progress.note(Notice("measuring"))
    progress.update(snapshot(stall_reason="asked by ada"), (), began_at + 200.0)
    progress.note(Notice("later"))
    lines = stream.getvalue().splitlines()[-3:]
    assert [each.strip() for each in lines] == [
        "1m40s  measuring",
        "3m20s  asked by ada",
        "3m20s  later",
    ]


def test_a_resumed_study_says_whose_time_is_shown() -> None:
    """A log counts from the command; the bar of a terminal has the time of the whole study."""
    progress, stream = plain()
    resumed = replace(HEADER, began_at=1000.0, earlier_seconds=125.0)
    progress.start(resumed)
    said = "times    since the start of this command; earlier runs took 2m05s"
    assert stream.getvalue().splitlines()[-1] == said
    frames = Frames(refresh_seconds=0.0)
    frames.start(resumed)
    frames.update(snapshot(runs=(running(0, placed_at=1000.0),)), (), 1010.0)
    assert frames.draw(1010.0, width=80, height=24)[0].plain.endswith("0/10 trials   2m15s")


def test_a_paused_study_says_so_and_a_trial_without_a_value_too() -> None:
    progress, stream = plain()
    stopped = trial(0, TrialState.PRUNED, params={})
    idle = replace(snapshot(stopped, workers=1), paused_by="ada (hptune pause)")
    progress.update(idle, (stopped,), 0.0)
    progress.update(idle, (), 31.0)
    assert stream.getvalue().splitlines() == [
        "    0s  trial 0 pruned: no value was reported",
        "   31s  1/10 trials; paused: nothing runs on 1 worker",
    ]


class BrokenStream(io.StringIO):
    def write(self, text: str) -> int:
        raise BrokenPipeError(32, "Broken pipe")


@pytest.mark.parametrize("display", [PlainProgress, QuietProgress, LiveProgress])
def test_a_broken_pipe_does_not_stop_the_study(
    display: type[PlainProgress | QuietProgress | LiveProgress],
) -> None:
    stream = BrokenStream()
    progress: Progress = display(stream)
    done = trial(0, value=0.5)
    progress.start(HEADER)
    progress.update(snapshot(done), (done,), 0.0)
    progress.note(Notice("stopping"))
    progress.stop()
    assert stream.getvalue() == ""


def test_a_stream_that_lacks_characters_gets_replacements() -> None:
    raw = io.BytesIO()
    progress = PlainProgress(io.TextIOWrapper(raw, encoding="ascii"))
    progress.note(Notice("größer … \udcff"))
    assert raw.getvalue() == b"    0s  gr??er ?\n"


def test_quiet_shows_notes_only() -> None:
    stream = io.StringIO()
    progress = make_progress(stream, quiet=True)
    done = trial(0, value=0.5)
    progress.start(HEADER)
    progress.update(snapshot(done), (done,), 0.0)
    progress.note(Notice("stopping"))
    progress.stop()
    assert stream.getvalue() == "stopping\n"


class Terminal(io.TextIOWrapper):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("term", "encoding", "expected"),
    [
        ("xterm-256color", "utf-8", LiveProgress),
        ("dumb", "utf-8", PlainProgress),
        ("", "utf-8", PlainProgress),
        ("xterm", "latin-1", PlainProgress),
    ],
)
def test_a_terminal_gets_the_live_display_if_it_can_draw_it(
    monkeypatch: pytest.MonkeyPatch, term: str, encoding: str, expected: type[Progress]
) -> None:
    monkeypatch.setenv("TERM", term)
    stream = Terminal(io.BytesIO(), encoding=encoding)
    assert type(make_progress(stream, quiet=False)) is expected


def test_a_pipe_gets_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    assert isinstance(make_progress(io.StringIO(), quiet=False), PlainProgress)


def test_a_script_without_stderr_is_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """One started with `2>&-`, as daemons are."""
    monkeypatch.setattr(sys, "stderr", None)
    assert isinstance(make_progress(progress_stream(), quiet=False), PlainProgress)


def test_rich_is_loaded_for_a_terminal_only() -> None:
    code = "import sys, hptune.reporting.terminal.progress; print('rich' in sys.modules)"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout == "False\n"


def test_epochs_are_shown_with_their_total_if_it_is_known() -> None:
    assert step_of(running(0), 5) == NOTHING
    assert step_of(running(0, step=3), 5) == "3/5"
    assert step_of(running(0, step=7), 5) == "7"
    assert step_of(running(0, step=3), None) == "3"
    assert step_of(running(0, step=3, params={**PARAMS, "epochs": 8}), None) == "3/8"


@settings(deadline=None)
@given(
    places=st.integers(1, 6),
    budget=st.integers(1, 20),
    seconds=st.integers(1, 60),
    every=st.integers(1, 7),
)
def test_the_time_left_is_right_for_trials_of_equal_length(
    places: int, budget: int, seconds: int, every: int
) -> None:
    rate = TrialRate()
    waves = -(-budget // places)
    ended_before = 0
    for now in range(0, waves * seconds, every):
        wave = now // seconds
        ended = tuple(trial(i, value=0.5) for i in range(wave * places))
        runs = tuple(
            running(i, placed_at=wave * seconds)
            for i in range(wave * places, min(budget, (wave + 1) * places))
        )
        rate.update(snapshot(*ended, runs=runs, budget=budget), ended[ended_before:], now)
        ended_before = len(ended)
        left = rate.seconds_left(snapshot(*ended, runs=runs, budget=budget))
        if len(ended) < min(max(3, places), max(1, budget // 2)):
            assert left is None
        else:
            # Wrong by no more than what lies between two calls, and an incomplete last wave. An
            # estimate that is used up is None.
            assert (left or 0.0) == pytest.approx(
                waves * seconds - now, abs=seconds + every * (waves + 1)
            )


def test_the_time_left_counts_short_trials_that_were_never_seen_running() -> None:
    rate = TrialRate()
    rate.update(snapshot(budget=100), (), 0.0)
    ended = tuple(trial(i, value=0.5) for i in range(25))
    now = snapshot(*ended, runs=(running(25, placed_at=50.0),), budget=100)
    rate.update(now, ended, 50.0)
    assert rate.seconds_left(now) == pytest.approx(150.0)


def stepping(number: int, *, at: float, step: int, each: float) -> RunningAttempt:
    """Return a running trial that measured the seconds of a step."""
    run = running(number, placed_at=at, step=step)
    used = Usage(peak_memory_bytes=1, cpu_seconds=1.0, seconds=9.0, seconds_per_step=each)
    return replace(run, attempt=replace(run.attempt, usage=used))


def test_the_first_epochs_tell_how_long_all_trials_take() -> None:
    """Two at a time: 12 s have passed, of which a first epoch took 6 and the next ones 3 each."""
    rate = TrialRate()
    both = [stepping(number, at=1000.0, step=3, each=3.0) for number in (0, 1)]
    begun = running(0, placed_at=1000.0), running(1, placed_at=1000.0)
    rate.update(snapshot(runs=begun), (), 1000.0)
    assert rate.expected(snapshot(runs=begun), 10) is None
    now = snapshot(runs=(both[0], begun[1]), budget=50)
    rate.update(now, (), 1012.0)
    each, left = rate.expected(now, 10) or (0.0, 0.0)
    assert each == pytest.approx(12.0 + 7 * 3.0)
    assert left == pytest.approx(21.0 + 48 * 33.0 / 2)
    assert rate.seconds_left(now) is None
    assert rate.expected(now, None) is None
    three = replace(now, running=(both[0], begun[1], running(2, placed_at=1000.0)))
    rate.update(three, (), 1012.0)
    assert rate.expected(three, 10) is None, "two of three have not measured an epoch"
    assert rate.expected(replace(now, budget_trials=None), 10) is None
    last = snapshot(runs=tuple(both), budget=2)
    rate.update(last, (), 1012.0)
    assert list(rate.expected(last, 10) or ()) == pytest.approx([33.0, 21.0])
    ended = [trial(number, value=0.5) for number in range(3)]
    rate.update(snapshot(*ended, runs=tuple(both)), ended, 1013.0)
    assert rate.expected(snapshot(*ended, runs=tuple(both)), 10) is None, "trials that ended tell"


@pytest.mark.parametrize("stops_early", [False, True])
def test_the_screen_has_an_estimate_before_a_trial_ends(*, stops_early: bool) -> None:
    frames = Frames(refresh_seconds=0.0)
    frames.start(replace(HEADER, epochs=10, stops_early=stops_early))
    runs = tuple(stepping(number, at=1000.0, step=3, each=3.0) for number in (0, 1))
    frames.update(snapshot(runs=runs, budget=50), (), 1000.0)
    frames.update(snapshot(runs=runs, budget=50), (), 1012.0)
    line = frames.draw(1012.0, width=80, height=24)[0].plain
    words = "trials of up to 33s: at most" if stops_early else "trials of about 33s: some"
    assert line.endswith(f"0/50 trials   12s, {words} 13m33s left")


def test_an_estimate_that_was_exceeded_is_not_shown() -> None:
    rate = TrialRate()
    rate.update(snapshot(budget=4), (), 0.0)
    ended = tuple(trial(i, value=0.5) for i in range(3))
    last = snapshot(*ended, runs=(running(3, placed_at=30.0),), budget=4)
    rate.update(last, ended, 30.0)
    assert rate.seconds_left(last) == pytest.approx(10.0)
    rate.update(last, (), 41.0)
    assert rate.seconds_left(last) is None


def test_the_time_left_is_unknown_without_workers_or_budget() -> None:
    done = trial(0, value=0.5)
    rate = TrialRate()
    rate.update(snapshot(runs=(running(0, placed_at=0.0),)), (), 0.0)
    idle = snapshot(done, workers=0)
    rate.update(idle, (done,), 10.0)
    assert rate.seconds_left(idle) is None
    assert rate.seconds_left(snapshot(done, budget=None)) is None
