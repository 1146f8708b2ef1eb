"""Trials that end badly in every way: the study continues, and each trial has its reason."""

from __future__ import annotations

import json

from in_process import InProcess
from real_runs import Hptune, rows, states, trials

LIGHT = ("--executor", "joblib")
WAYS = {
    "good": "",
    "raises": "raise ValueError(f'bad point {trial.number}')",
    "exits": "os._exit(3)",
    "sys.exit": "sys.exit('enough')",
    "segfault": "ctypes.string_at(0)",
    "killed": "os.kill(os.getpid(), signal.SIGKILL)",
    "nan": "return float('nan')",
    "inf": "return {'value': float('inf')}",
    "reports nan": "trial.report(2, value=float('nan'))",
    "loud": "print('x' * 50 + '\\n', end='') or [print('y' * 50) for _ in range(50_000)]",
    "returns text": "return 'good'",
    "garbles": "garble(); time.sleep(600)",
    "forks reports": "fork_reports(trial)",
    "large step": "trial.report(2**63, value=1.0)",
    "large error": "raise ValueError('\\udc80\\0' + 'x' * 5_000_000)",
    "closes": "os.closerange(3, 256)",
    "forks": "subprocess.Popen(['sleep', '600'])",
    "other nan": "odd_files(trial); return {'value': 0.5, 'other': float('nan')}",
}

MODEL = """\
import ctypes, os, signal, socket, subprocess, sys, time

def garble():
    for file in range(3, 256):
        try:
            socket.socket(fileno=os.dup(file)).send(b"nothing")
        except OSError:
            pass

def fork_reports(trial):
    # One of the processes returns to hptune instead.
    metrics = {{f"metric {{number}}": float(number) for number in range(4_000)}}
    for number in range(8):
        if not os.fork():
            if number == 7:
                raise KeyError("in a process of its own")
            for step in range(2):
                trial.report(10 * number + step + 2, value=3.0, **metrics)
            os._exit(0)
    for _ in range(8):
        os.wait()

def odd_files(trial):
    (trial.checkpoint_dir / "dangling").symlink_to("/nonexistent")
    (trial.checkpoint_dir / "system").symlink_to("/usr/lib")
    os.mkfifo(trial.checkpoint_dir / "pipe")
    os.mkfifo(trial.directory / "model.keras")

def objective(hp, trial):
    way = hp.Choice("way", {ways})
    print("way out:", way)
    print("way in:", way, file=sys.stderr)
    trial.report(1, value=2.0)
{branches}
    return 1.0
"""


def model_text() -> str:
    branches = "\n".join(
        f"    if way == {way!r}:\n        {action or 'pass'}" for way, action in WAYS.items()
    )
    return MODEL.format(ways=list(WAYS), branches=branches)


def test_every_bad_end_has_its_reason_and_the_study_goes_on(hptune: Hptune, cli: InProcess) -> None:
    model = hptune.file("model.py", model_text())
    ended = hptune("run", model, "--search", "grid", "--study", hptune.study())
    assert ended.code == 0, ended.err
    assert f"the grid has {len(WAYS)} configurations" in ended.err

    found = {trial["params"]["way"]: trial for trial in trials(hptune.study())}
    assert set(found) == set(WAYS)
    complete = {way for way, trial in found.items() if trial["state"] == "COMPLETE"}
    assert complete == {"good", "loud", "forks", "forks reports", "other nan"}
    reasons = {way: trial["reason"] for way, trial in found.items() if way not in complete}
    number = found["raises"]["number"]
    assert reasons == {
        "raises": f"ValueError: bad point {number}",
        "exits": "its process exited with status 3 and gave no result",
        "sys.exit": "sys.exit('enough')",
        "segfault": "its process crashed with SIGSEGV",
        "killed": "its process was killed by SIGKILL",
        "nan": "value is nan, and a result is a finite number",
        "inf": "value is inf, and a result is a finite number",
        "reports nan": "value is nan at step 2",
        "garbles": "it wrote to a file descriptor of hptune; a trial must only use those that it "
        "opened",
        "closes": "its process exited with status 1 and gave no result",
        "large step": "ValueError: the step is 9223372036854775808; allowed are 0 to 2**63 - 1",
        "large error": "ValueError: \\udc80\\0" + "x" * 298,
        "returns text": "objective() returned 'good'; allowed are a number, a dict of metrics "
        "such as {'value': 0.93}, a list of them, whose mean is taken, or nothing after "
        "trial.report(step, …)",
    }
    assert {trial["state"] for way, trial in found.items() if way in reasons} == {"FAILED"}
    assert "line " in found["raises"]["detail"]
    assert "bad point" in found["raises"]["detail"]
    assert "characters left out]xxx" in found["large error"]["detail"]
    assert len(found["large error"]["detail"]) < 21_000

    # A death from outside may be the machine's fault, so it was tried three times.
    assert {way: trial["attempts"] for way, trial in found.items() if trial["attempts"] > 1} == {
        "killed": 3
    }
    outcomes = rows(
        hptune.study(),
        f"SELECT outcome FROM attempts WHERE trial = {found['killed']['number']} ORDER BY number",
    )
    assert [row["outcome"] for row in outcomes] == ["LOST", "LOST", "ERRORED"]

    # Each report of the forked processes arrived whole.
    reported = rows(
        hptune.study(),
        f"""SELECT count(*) AS metrics FROM reports
        WHERE trial = {found["forks reports"]["number"]} AND step > 1 GROUP BY step""",
    )
    assert [row["metrics"] for row in reported] == [4001] * 14

    # All that a trial wrote is in its log, up to the moment of its death.
    for way, trial in found.items():
        log = (hptune.study() / "trials" / str(trial["number"]) / "log.txt").read_text()
        assert f"way out: {way}\n" in log
        assert f"way in: {way}\n" in log
    log = (hptune.study() / "trials" / str(found["loud"]["number"]) / "log.txt").read_text()
    assert log.count("y" * 50) == 50_000
    log = (hptune.study() / "trials" / str(found["segfault"]["number"]) / "log.txt").read_text()
    assert "Segmentation fault" in log

    # All of it can be read.
    text = cli("status", "study").out
    for word in ("5 complete, 13 failed", "SIGSEGV", "hptune show study "):
        assert word in text
    plain = json.loads(cli("status", "study", "--json").out)
    # Failures whose texts differ in numbers alone are of one kind; long texts are cut.
    kinds = {reason[:100] for way, reason in reasons.items() if way != "closes"}
    assert {each["reason"][:100] for each in plain["failures"]} == kinds
    best = json.loads(cli("best", "study", "--json").out)
    assert (best["best"]["value"], best["best"]["metrics"]["other"]) == (0.5, None)

    def refuse(word: str) -> None:
        raise AssertionError(f"{word} is not JSON")

    kept = (hptune.study() / "best" / "best.json").read_text()
    assert json.loads(kept, parse_constant=refuse)["trial"] == found["other nan"]["number"]
    links = {path.name for path in (hptune.study() / "best" / "checkpoint").iterdir()}
    assert links == {"dangling", "system"}


def test_a_trial_that_takes_too_long_fails_with_that_reason(cli: InProcess) -> None:
    model = cli.file(
        "model.py",
        """
        import time

        def objective(hp, trial):
            x = hp.Float("x", 0, 1)
            while trial.number == 0 and not trial.should_stop():
                time.sleep(0.02)
            return x
        """,
    )
    options = ("--trials", "2", "--workers", "1", "--trial-timeout", "1")
    ended = cli("run", model, *LIGHT, *options, "--study", cli.study())
    assert ended.code == 0, ended.err
    found = [(trial["state"], trial["reason"]) for trial in trials(cli.study())]
    assert found == [("FAILED", "ran longer than the 1 s allowed"), ("COMPLETE", "")]


def test_the_same_failure_at_first_stops_the_study(cli: InProcess) -> None:
    model = cli.file(
        "model.py",
        """
        def objective(hp, trial):
            x = hp.Float("x", 0, 1)
            return check(x)

        def check(x):
            raise ValueError(f"{x} is no good")
        """,
    )
    ended = cli("run", model, *LIGHT, "--trials", "20", "--study", cli.study())
    assert ended.code == 1
    for word in ("first 3 trials all failed the same way", "raise ValueError(f", "in check",
                 f"hptune resume {cli.study().name} --retry-failed"):  # fmt: skip
        assert word in ended.err
    assert "tuner/hptune/" not in ended.err
    # Trials that ran next to the third one may have ended meanwhile.
    assert 3 <= states(cli.study())["FAILED"] <= 4

    # It continues with the file corrected, or with --same-failures 0.
    cli.file("model.py", 'def objective(hp, trial):\n    return hp.Float("x", 0, 1)')
    ended = cli("resume", cli.study(), "--retry-failed", "--trials", "6")
    assert ended.code == 0, ended.err
    assert "failed ones begin again" in ended.err
    assert states(cli.study()) == {"COMPLETE": 6}
    assert cli("replay", cli.study()).code == 0


def test_max_failures(cli: InProcess) -> None:
    model = cli.file(
        "model.py",
        """
        def objective(hp, trial):
            x = hp.Float("x", 0, 1)
            if trial.number % 2:
                raise ValueError("an odd trial")
            return x
        """,
    )
    ended = cli(
        "run", model, *LIGHT, "--trials", "50", "--max-failures", "2", "--study", cli.study()
    )
    assert ended.code == 1
    for word in ("3 trials failed, allowed are 2", "an odd trial", "hptune resume"):
        assert word in ended.err
    assert 3 <= states(cli.study())["FAILED"] <= 4
    # What was finished is there.
    assert cli("best", cli.study()).code == 0


def test_no_room_for_a_trial_is_not_its_fault(cli: InProcess) -> None:
    """The disk is full the first time, and has room the second time."""
    model = cli.file(
        "model.py",
        """
        import errno, os

        def objective(hp, trial):
            x = hp.Float("x", 0, 1)
            trial.report(1, value=x)
            marker = trial.checkpoint_dir / "tried"
            if not marker.exists():
                marker.touch()
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return x
        """,
    )
    ended = cli("run", model, *LIGHT, "--trials", "3", "--study", cli.study())
    assert ended.code == 0, ended.err
    assert states(cli.study()) == {"COMPLETE": 3}
    lost = rows(cli.study(), "SELECT reason FROM attempts WHERE outcome = 'LOST'")
    assert ["No space left on device" in row["reason"] for row in lost] == [True] * 3


def test_a_program_that_is_killed_after_its_last_epoch_has_nothing_left_to_report(
    cli: InProcess,
) -> None:
    cli.file("space.toml", "[x]\ntype = 'float'\nmin_value = 0.0\nmax_value = 1.0\n")
    script = cli.file(
        "train.sh",
        """\
        [ -e "$HPTUNE_CHECKPOINT_DIR/done" ] && exit 0
        echo '{"step": 1, "loss": 0.75}'
        echo '{"step": 2, "loss": 0.25}'
        touch "$HPTUNE_CHECKPOINT_DIR/done"
        sleep 1  # until it is read
        kill -KILL $$
        """,
    )
    ended = cli(
        "run", "--command", f"sh {script} {{x}}", "--space", "space.toml", "--objective",
        "loss:min", "--epochs", 2, "--trials", 1, "--study", "study", *LIGHT,
    )  # fmt: skip
    assert ended.code == 0, ended.err
    (trial,) = trials(cli.study())
    assert (trial["state"], trial["value"]) == ("COMPLETE", 0.25)
    outcomes = rows(cli.study(), "SELECT outcome FROM attempts ORDER BY number")
    assert [row["outcome"] for row in outcomes] == ["LOST", "FINISHED"]
