"""Signals and users' requests to a master."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import pytest

from hptune.core.clock import SystemClock
from hptune.core.messages import StopRequested
from hptune.master.stop_requests import StopRequests, interrupt_on_signals
from hptune.storage.directory import StudyDirectory
from in_process import signals_kept


def test_a_master_that_may_not_let_go_yet_goes_on_and_bears_further_signals(tmp_path: Path) -> None:
    answers, asked, left = [False, False, True], list[int](), list[str]()

    def may_stop(number: int) -> bool:
        asked.append(number)
        return answers.pop(0)

    directory = StudyDirectory(tmp_path).create()
    with directory.acquire() as lock:
        requests = StopRequests(
            lock,
            SystemClock(),
            may_stop=may_stop,
        )
        with requests.from_signals(wake=lambda: None, end_at_once=lambda: left.append("left")):
            assert requests() == ()
            os.kill(os.getpid(), signal.SIGUSR1)
            assert requests() == ()
            os.kill(os.getpid(), signal.SIGTERM)
            assert requests() == ()
            assert not left
            (event,) = requests()
            assert isinstance(event, StopRequested)
            assert event.reason == "interrupted by SIGUSR1"
            os.kill(os.getpid(), signal.SIGTERM)
    assert (asked, left) == ([signal.SIGUSR1] * 3, ["left"])


def test_a_second_signal_leaves_also_after_the_last_trial(tmp_path: Path) -> None:
    """The best model is tried then, which may take minutes on a login node."""
    left = list[str]()
    directory = StudyDirectory(tmp_path).create()
    with directory.acquire() as lock:
        requests = StopRequests(
            lock,
            SystemClock(),
            may_stop=lambda _: True,
        )
        with requests.from_signals(wake=lambda: None, end_at_once=lambda: left.append("left")):
            assert requests() == ()
            requests.close()
            os.kill(os.getpid(), signal.SIGTERM)
            assert not left
            os.kill(os.getpid(), signal.SIGTERM)
    assert left == ["left"]


def drop_an_interrupt() -> None:
    """Receive a signal in a destructor, where Python drops exceptions."""

    class Dropping:
        def __del__(self) -> None:
            os.kill(os.getpid(), signal.SIGTERM)

    Dropping()


def wait_after_a_dropped_interrupt() -> None:
    drop_an_interrupt()
    threading.Event().wait(60.0)


def test_an_interrupt_that_python_drops_is_repeated(capfd: pytest.CaptureFixture[str]) -> None:
    left, hook = list[str](), sys.unraisablehook
    with signals_kept():
        with interrupt_on_signals(lambda: left.append("left")):
            with pytest.raises(KeyboardInterrupt):
                wait_after_a_dropped_interrupt()
            assert not left
            drop_an_interrupt()
            assert left == ["left"]
        assert sys.unraisablehook is hook
    assert capfd.readouterr().err == ""


def test_an_interrupt_that_is_repeated_before_its_hook_returns_is_not_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As on a busy machine, where the time is over as soon as it begins."""
    left, timer, times = list[str](), signal.setitimer, iter((True, False))

    def set_timer(which: int, seconds: float) -> None:
        if next(times):
            signal.raise_signal(signal.SIGALRM)
        timer(which, seconds)

    monkeypatch.setattr(signal, "setitimer", set_timer)
    with (
        signals_kept(),
        interrupt_on_signals(lambda: left.append("left")),
        pytest.raises(KeyboardInterrupt),
    ):
        wait_after_a_dropped_interrupt()
    assert not left


def test_an_interrupt_that_python_drops_stops_the_study_that_has_started_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    woken, left, timers = threading.Event(), list[str](), list[float]()
    monkeypatch.setattr(signal, "setitimer", lambda _, seconds: timers.append(seconds))
    directory = StudyDirectory(tmp_path).create()
    with (
        directory.acquire() as lock,
        signals_kept(),
        interrupt_on_signals(lambda: left.append("left")),
    ):
        requests = StopRequests(lock, SystemClock())
        drop_an_interrupt()
        assert len(timers) == 1
        with requests.from_signals(wake=woken.set, end_at_once=lambda: left.append("left")):
            signal.raise_signal(signal.SIGALRM)  # the timer, late
            assert woken.is_set()
            (event,) = requests()
    assert isinstance(event, StopRequested)
    assert event.reason == "interrupted by SIGTERM"
    assert not left


def test_an_interrupted_module_ends_with_its_own_exit_code(tmp_path: Path) -> None:
    """Python keeps in mind that an `exec` was interrupted, and would end it by the signal."""
    script = """
        import sys
        from hptune.master.stop_requests import interrupt_on_signals
        try:
            with interrupt_on_signals(lambda: None):
                exec("import signal; signal.raise_signal(signal.SIGINT)")
        except KeyboardInterrupt:
            sys.exit(130)
    """
    (tmp_path / "interrupted.py").write_text(textwrap.dedent(script), encoding="utf-8")
    ended = subprocess.run([sys.executable, "-m", "interrupted"], cwd=tmp_path, check=False)
    assert ended.returncode == 130


def test_a_signal_at_the_very_end_changes_no_exit_code() -> None:
    """Python deletes its last objects when it has forgotten the handlers of signals."""
    script = """
        import builtins, os, signal, sys
        from hptune.master.stop_requests import interrupt_on_signals

        class Last:
            def __del__(self, kill=os.kill, pid=os.getpid(), number=signal.SIGINT):
                kill(pid, number)

        builtins.last = Last()
        with interrupt_on_signals(lambda: None):
            sys.exit(130)
    """
    ended = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], check=False)
    assert ended.returncode == 130


@pytest.mark.parametrize("first", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_second_signal_leaves_at_once(tmp_path: Path, first: signal.Signals) -> None:
    left = list[str]()
    directory = StudyDirectory(tmp_path).create()
    with directory.acquire() as lock:
        requests = StopRequests(lock, SystemClock())
        with requests.from_signals(wake=lambda: None, end_at_once=lambda: left.append("left")):
            os.kill(os.getpid(), first)
            os.kill(os.getpid(), signal.SIGHUP)  # twice, if its terminal is closed
            assert not left
            os.kill(os.getpid(), signal.SIGTERM)
    assert left == ["left"]


def test_a_late_hang_up_does_not_interrupt_the_closing_words(tmp_path: Path) -> None:
    directory = StudyDirectory(tmp_path).create()
    with signals_kept(), interrupt_on_signals(lambda: None):
        with directory.acquire() as lock:
            requests = StopRequests(lock, SystemClock())
            with requests.from_signals(wake=lambda: None, end_at_once=lambda: None):
                os.kill(os.getpid(), signal.SIGHUP)
        os.kill(os.getpid(), signal.SIGHUP)
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGTERM)


def test_the_clock_is_right_where_threads_share_it(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, times, other = SystemClock(), itertools.count(1e9), list[float]()
    thread = threading.Thread(target=lambda: other.append(clock.now()))

    def time_now() -> float:
        now = next(times)
        if now == 1e9:  # another thread asks while this one does
            thread.start()
            thread.join()
        return now

    monkeypatch.setattr(time, "time", time_now)
    assert (clock.now(), *other) == (1e9, 1e9 + 1)


def test_users_are_heard_while_the_system_time_is_set_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seconds, ahead, heard = [0.0], 1e9, list[float]()
    monkeypatch.setattr(time, "monotonic", lambda: seconds[0])
    monkeypatch.setattr(time, "time", lambda: ahead + seconds[0])

    def users(now: float) -> tuple[()]:
        heard.append(now)
        return ()

    clock = SystemClock()
    directory = StudyDirectory(tmp_path).create()
    with directory.acquire() as lock:
        requests = StopRequests(lock, clock, users=users)
        requests()
        ahead -= 100.0
        for _ in range(20):
            seconds[0] += 1.0
            requests()
    assert len(heard) == 11
    assert heard == sorted(heard)
    seconds[0] += 200.0
    clock.now()
    seconds[0] += 1.0
    assert clock.now() == time.time(), "it is right again"
