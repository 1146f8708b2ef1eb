"""Programs as objectives: their arguments, their metrics, and how they stop and fail."""

from __future__ import annotations

import json
import textwrap
import time
from pathlib import Path
from typing import Any

import pytest

from attempts import Attempts, Result
from hptune.core.attempt import Cause, Halt
from hptune.core.space.space import SearchSpace

MODEL = """
import hptune

OBJECTIVE, EPOCHS = "loss:min", 9

def objective(hp, trial):
    hp.Float("lr", 0.001, 0.1)
    hp.Choice("mode", ["it's; $(HOME)", "b"])
    hp.Int("depth", 1, 9, parent_name="mode", parent_values=["b"])
    return hptune.run_program({command!r}, trial, hp)
"""


def run(attempts: Attempts, *command: str, **changes: Any) -> Result:
    given = {"lr": 0.5, "mode": "it's; $(HOME)", **changes}
    return attempts.run(
        MODEL.format(command=list(command)), epochs=9, objectives=["loss:min"], **given
    )


def shell(script: str) -> tuple[str, ...]:
    """Return a command whose script has braces of its own."""
    script = textwrap.dedent(script).replace("{", "{{").replace("}", "}}")
    return ("sh", "-c", script, "program")


def test_values_reach_a_program_as_they_are_and_lines_of_json_come_back(
    attempts: Attempts,
) -> None:
    script = """
        for given in "$@"; do echo "<$given>"; done
        echo '{"level": "info", "loss": 7}' '{"loss":'
        echo '{"step": 2, "loss": 0.5, "size": 3}'
        echo '{"epoch": 4, "loss": 0.25}'
        echo '{"loss": 0.125}'
    """
    command = (*shell(script), "--lr={lr}", "{mode}", "--depth={depth}", "{{{trial.number}}}")
    result = run(attempts, *command, trial=3)
    assert result.ending.cause is Cause.RETURNED
    assert result.reports == [
        (2, {"loss": 0.5, "size": 3.0}),
        (4, {"loss": 0.25}),
        (5, {"loss": 0.125}),
    ]
    assert (result.ending.metrics, result.ending.step) == ({"loss": 0.125}, 5)
    # An argument of a hyperparameter that is not active is left out.
    shown = [line for line in result.log.splitlines() if line.startswith("<")]
    assert shown == ["<--lr=0.5>", "<it's; $(HOME)>", "<{3}>"]


def test_a_program_may_read_and_write_files_instead(attempts: Attempts) -> None:
    script = """
        cp "$1" "$HPTUNE_CHECKPOINT_DIR/copy"
        echo '{"loss": 2}' >> "$HPTUNE_METRICS_FILE"
        printf '{"loss": 1}' >> "$HPTUNE_METRICS_FILE"
    """
    result = run(attempts, *shell(script), "{trial.params_file}")
    assert [metrics["loss"] for _, metrics in result.reports] == [2.0, 1.0]
    copy = (result.directory / "checkpoint" / "copy").read_text()
    assert json.loads(copy) == {"lr": 0.5, "mode": "it's; $(HOME)"}


@pytest.mark.parametrize(
    "write",
    [
        """echo "{\\"loss\\": $i}" > "$1" """,
        """echo "{\\"loss\\": 1}" >> "$1"; sleep 0.3; : > "$1" """,
        """echo "{\\"loss\\": 1}" > "$1.new"; mv "$1.new" "$1" """,
    ],
    ids=["rewritten", "emptied", "replaced"],
)
def test_a_program_that_rewrites_its_metrics_is_told_to_append(
    attempts: Attempts, write: str
) -> None:
    script = f"i=10; while [ $i -lt 1000 ]; do i=$((i + 1)); {write}; sleep 0.05; done"
    ending = run(attempts, *shell(script), "{trial.metrics_file}").ending
    assert ending.cause is Cause.EXCEPTION
    assert "metrics.jsonl; let it append one line for each report" in ending.reason


def test_what_a_program_writes_before_it_is_read_counts(attempts: Attempts) -> None:
    script = 'echo \'{"loss": 2}\' >> "$HPTUNE_METRICS_FILE"; echo \'{"loss": 1}\''
    early = """
        import subprocess

        class Early(subprocess.Popen):
            def __init__(self, *arguments, **options):
                super().__init__(*arguments, **options)
                self.wait()

        subprocess.Popen = Early
    """
    model = textwrap.dedent(early) + MODEL.format(command=list(shell(script)))
    result = attempts.run(model, epochs=9, objectives=["loss:min"], lr=0.5, mode="b", depth=1)
    assert sorted(metrics["loss"] for _, metrics in result.reports) == [1.0, 2.0]


def test_a_program_that_is_told_to_stop_may_save_and_goes_on_later(attempts: Attempts) -> None:
    script = """
        saved="$HPTUNE_CHECKPOINT_DIR/step"
        step=$(cat "$saved" 2>/dev/null || echo 0)
        trap 'echo $step > "$saved"; exit 0' TERM
        while [ $step -lt 4 ]; do
            step=$((step + 1)); echo "{\\"step\\": $step, \\"loss\\": 0.5}"
            if [ $step = 2 ]; then sleep 60 & wait; fi
        done
    """
    stopped = run(attempts, *shell(script), halt=(2, Halt.RELEASE), trial=5)
    assert (stopped.ending.cause, stopped.steps) == (Cause.RELEASED, [1, 2])
    resumed = run(attempts, *shell(script), trial=5, number=1, resume_from=2)
    assert (resumed.ending.cause, resumed.steps) == (Cause.RETURNED, [3, 4])


@pytest.mark.parametrize(("kept", "steps"), [("saved", [3, 4]), ("", [4])])
def test_steps_that_were_not_read_before_a_kill_count_if_the_program_goes_on_after_them(
    attempts: Attempts, kept: str, steps: list[int]
) -> None:
    line = '{"step": %d, "loss": 0.5}'
    script = f"""
        if mkdir "$HPTUNE_CHECKPOINT_DIR/../is_first"; then
            touch "$HPTUNE_CHECKPOINT_DIR/{kept}"
            printf '{line}\n' 1 2 3 >> "$HPTUNE_METRICS_FILE"
            echo '{{"loss": 1}}' >> "$HPTUNE_METRICS_FILE"
        else
            printf '{line}\n' 4
        fi
    """
    first = run(attempts, *shell(script), trial=0)
    (first.directory / "resume" / "reports.jsonl").unlink()  # none of them was read
    again = run(attempts, *shell(script), trial=0, number=1, resume_from=2)
    assert again.steps == steps, again.log


def test_lines_without_a_step_are_counted_on_if_the_program_has_kept_something(
    attempts: Attempts,
) -> None:
    script = """
        echo '{"loss": 2}'; echo '{"loss": 1}'
        touch "$HPTUNE_CHECKPOINT_DIR/saved"
    """
    again = {"number": 1, "resume_from": 3, "trial": 6}
    assert run(attempts, *shell(script), **again).steps == [1, 2]
    assert run(attempts, *shell(script), **again).steps == [4, 5]


@pytest.mark.parametrize(
    ("last", "handler", "cause"),
    [
        (9, "exit 0", Cause.RETURNED),
        (9, "exit 3", Cause.STOPPED),
        (9, "kill -KILL $$", Cause.STOPPED),
        (8, "exit 0", Cause.STOPPED),
    ],
)
def test_a_program_that_has_reported_all_is_complete_if_it_ends_in_good_order(
    attempts: Attempts, last: int, handler: str, cause: Cause
) -> None:
    script = f"""
        trap '{handler}' TERM
        echo '{{"step": {last}, "loss": 0.5}}'
        sleep 60 & wait
    """
    ending = run(attempts, *shell(script), halt=(last, Halt.STOP)).ending
    assert ending.cause is cause, ending


@pytest.mark.parametrize(
    ("command", "cause", "words"),
    [
        (
            shell("echo no data >&2; exit 3"),
            Cause.EXCEPTION,
            ["sh ended with exit code 3: no data"],
        ),
        (shell("kill -SEGV $$"), Cause.EXCEPTION, ["sh was ended by SIGSEGV"]),
        (shell("kill -40 $$"), Cause.EXCEPTION, ["sh was ended by signal 40"]),
        (("/no/such/program",), Cause.EXCEPTION, ["/no/such/program cannot be started"]),
        (("true",), Cause.EXCEPTION, ["true reported no metrics", '{"step": 1, "val_loss": 0.5}']),
        (shell("echo '{\"loss\": NaN}'; sleep 60"), Cause.NON_FINITE, ["loss is nan at epoch 1"]),
        (shell("kill -KILL $$"), Cause.KILLED, ["its process was killed by SIGKILL"]),
        (shell("sh -c 'kill -KILL $$'"), Cause.KILLED, ["its process was killed by SIGKILL"]),
        (shell("kill -TERM $$"), Cause.KILLED, ["its process was killed by SIGTERM"]),
    ],
    ids=[
        "exit code",
        "signal",
        "nameless signal",
        "not there",
        "silent",
        "not finite",
        "killed",
        "inner",
        "ended",
    ],
)
def test_a_program_that_fails_says_how(
    attempts: Attempts, command: tuple[str, ...], cause: Cause, words: list[str]
) -> None:
    ending = run(attempts, *command).ending
    assert ending.cause is cause
    for each in words:
        assert each in ending.reason
    assert 'File "' not in ending.detail


def test_a_failure_shows_what_the_program_wrote_and_none_of_hptunes_frames(
    attempts: Attempts,
) -> None:
    script = """
        echo reading
        echo 'Traceback (most recent call last):' >&2
        echo '  File "train.py", line 3, in <module>' >&2
        echo 'ValueError: no digits' >&2
        exit 1
    """
    result = run(attempts, *shell(script))
    assert result.ending.reason == "sh ended with exit code 1: ValueError: no digits"
    first, *_, last = result.ending.detail.splitlines()
    assert (first, last) == ("Traceback (most recent call last):", "ValueError: no digits")
    assert result.ending.fingerprint.endswith('File "train.py", line 3, in <module>')
    *_, log = result.log.splitlines()
    assert log == result.ending.reason
    assert result.log.count("Traceback") == 1


def test_a_process_that_left_the_programs_group_does_not_hold_up_the_trial(
    attempts: Attempts, tmp_path: Path
) -> None:
    # It keeps the program's output open.
    script = f"""
        setsid sleep 600 & echo $! > {tmp_path}/pid
        echo '{{"loss": 1}}'
    """
    short = "import hptune.training.program as program\nprogram.GRACE_SECONDS = 0.5\n"
    model = short + MODEL.format(command=list(shell(script)))
    began = time.monotonic()
    result = attempts.run(model, epochs=9, objectives=["loss:min"], lr=0.5, mode="b", depth=1)
    assert result.ending.cause is Cause.RETURNED
    assert time.monotonic() - began < 60
    assert not Path("/proc", (tmp_path / "pid").read_text().strip()).exists()


def test_lines_that_are_almost_reports_do_not_stop_the_reading(attempts: Attempts) -> None:
    script = """
        echo '{"step": NaN, "loss": 3}'
        echo '{"epoch": Infinity, "loss": 3}'
        echo '{"epoch": 0.33, "loss": 3}'
        printf '{"huge": 1%0400d}\n' 0
        awk 'BEGIN { for (i = 0; i < 20000; i++) printf "{\\"a\\":"; print "" }'
        echo '{"epoch": 0.5, "step": 7, "loss": 0.5}'
    """
    result = run(attempts, *shell(script))
    assert result.ending.cause is Cause.RETURNED, result.ending
    assert [report for report in result.reports if "loss" in report[1]] == [(7, {"loss": 0.5})]


def test_what_a_program_leaves_behind_ends_with_it(attempts: Attempts, tmp_path: Path) -> None:
    script = f"""
        sleep 600 & echo $! > {tmp_path}/pid
        echo '{{"loss": 1}}'
    """
    ending = run(attempts, *shell(script)).ending
    assert ending.cause is Cause.RETURNED
    assert not Path("/proc", (tmp_path / "pid").read_text().strip()).exists()


@pytest.mark.parametrize(
    ("command", "is_elsewhere"),
    [
        (("srun", "train", "{lr}"), True),
        (("sh", "-c", "exec /usr/bin/srun train"), True),
        (("sh", "-c", "cd data&&(docker run train)"), True),
        (("stdbuf", "-oL", "srun", "train"), True),
        (("docker", "run", "image"), True),
        (("./train", "srun"), False),
        (("python", "train.py", "{lr}"), False),
    ],
)
def test_what_runs_under_a_daemon_is_found_before_the_first_trial(
    attempts: Attempts, command: tuple[str, ...], *, is_elsewhere: bool
) -> None:
    found = attempts.probe(MODEL.format(command=list(command)))
    assert [each.name for each in SearchSpace.from_json(found.space)] == ["lr", "mode", "depth"]
    assert found.runs_elsewhere is is_elsewhere
