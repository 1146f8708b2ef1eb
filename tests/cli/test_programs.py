"""`hptune run --command`: a study of a program in any language."""

from __future__ import annotations

import html
import json
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

from commands import Commands
from hptune import errors
from hptune_jobqueue import nodes
from in_process import InProcess, refused
from real_runs import Hptune, rows, states, trials
from requirements import require

SPACE = """
[lr]
type = "float"
min_value = 1e-4
max_value = 0.1
sampling = "log"

[kind]
type = "choice"
values = ["a", "b c"]

[depth]
type = "int"
min_value = 1
max_value = 3
when = { kind = ["a"] }
"""

PROGRAM = """
test "$2" = a || test "$2" = "b c" || exit 1
for step in 1 2 3; do echo "{{\\"step\\": $step, \\"loss\\": $1}}"; done
"""


def test_a_program_is_tuned_and_its_study_is_like_any_other(cli: InProcess) -> None:
    (cli.directory / "space.toml").write_text(SPACE)
    (cli.directory / "go.sh").write_text(PROGRAM.replace("{{", "{").replace("}}", "}"))
    command = "sh go.sh {lr} {kind} --depth={depth}"
    arguments = ("--command", command, "--space", "space.toml", "--objective", "loss:min")
    ended = cli("run", *arguments, "--trials", "4", "--executor", "joblib", "--workers", "1")
    assert ended.code == 0, ended.err
    study = cli.directory / "studies" / "go-1"
    assert {each["state"] for each in trials(study)} == {"COMPLETE"}
    best = json.loads(cli("best", study, "--json").out)["best"]
    assert best["value"] == pytest.approx(best["params"]["lr"])
    assert ("depth" in best["params"]) == (best["params"]["kind"] == "a")
    more = cli("resume", study, "--trials", "6", "--workers", "1")
    assert more.code == 0, more.err
    assert len(trials(study)) == 6
    moved = study.rename(study.with_name("moved"))
    # Another one begins where it was.
    study.mkdir()
    study.joinpath("program.py").write_text("raise SystemExit")
    study.joinpath("study.db").touch()
    ended = cli("resume", moved, "--trials", "7", "--workers", "1")
    assert ended.code == 0, ended.err
    assert len(trials(moved)) == 7


@pytest.mark.parametrize(("runner", "is_packed"), [("srun", False), ("env", True)])
def test_what_runs_under_a_daemon_is_not_packed_by_the_little_that_is_measured(
    cli: InProcess, commands: Commands, *, runner: str, is_packed: bool
) -> None:
    # By its path: with the PATH of another test, a trial would wait for a Slurm that is gone.
    runner = str(commands.make("srun", 'exec "$@"')) if runner == "srun" else runner
    model = cli.file(
        "model.py",
        f"""
        import hptune

        def objective(hp, trial):
            hp.Float("lr", 0.0, 1.0)
            return hptune.run_program([{runner!r}, "echo", '{{{{"loss": {{lr}}}}}}'], trial, hp)
        """,
    )
    ended = cli("run", model, "--objective", "loss:min", "--trials", "1", "--study", "s")
    assert states(cli.directory / "s") == {"COMPLETE": 1}
    assert ("to begin with, 1 core each (dask)" in ended.err) is is_packed, ended


@pytest.mark.parametrize(
    ("command", "space", "words"),
    [
        ("sh {lr} {kin} {depth}", SPACE, ["{kin}", "Did you mean {kind}?"]),
        ("sh {lr} {kind}", SPACE, ["does not use depth", "{trial.params_file}"]),
        ("sh {lr", SPACE, ["'{lr'", "{{ or }}"]),
        ("sh {lr:3}", SPACE, ["'{lr:3}'", "no name"]),
        ("sh 'x", SPACE, ["No closing quotation"]),
        ("", SPACE, ["--command is empty"]),
        ("no-such-program {lr}", SPACE, ["'no-such-program'", "no such program here"]),
        ("sh goo.sh {lr}", SPACE, ["runs goo.sh", "no such file in", "Did you mean go.sh?"]),
        ("python -u gone.py {lr}", SPACE, ["runs gone.py, and there is no such file"]),
        ("sh {x}", "", ["space.toml has no tables", "[lr]"]),
        ("sh {x}", "[x", ["space.toml is no TOML", "[lr]"]),
        ("sh {x}", f"x = {'[' * 100_000}", ["space.toml is no TOML", "[lr]"]),
        ("sh {x}", f"[x]\nvalue = {'9' * 5000}", ["space.toml is no TOML", "[lr]"]),
        ("sh {y}", "x = 1", ["{y}", "neither in the space (x)"]),
        ("sh {x}", "[x]", ["type of x is missing", "float, int"]),
        ("sh {x}", '[x]\ntype = "real"', ["type of x is 'real'", "allowed are"]),
        ("sh {x}", '[x]\ntype = ["int"]', ["type of x is ['int']", "allowed are"]),
        ("sh {x}", '[x]\ntype = "int"\nmin = 3', ["'min'", "min_value"]),
        ("sh {x}", '[x]\ntype = "int"\nmin_value = 3\nmax_value = 1', ["x", "3", "1"]),
        ("sh {x}", '[x]\ntype = "int"\nmin_value = 3', ["x", "max_value"]),
        ("sh {x}", '[x]\ntype = "boolean"\nwhen = { y = 1 }', ["'y'", "above it"]),
    ],
)
def test_a_wrong_program_or_space_is_refused_at_once(
    cli: InProcess, command: str, space: str, words: list[str]
) -> None:
    (cli.directory / "space.toml").write_text(space)
    (cli.directory / "go.sh").write_text("")
    arguments = ("--command", command, "--space", "space.toml", "--objective", "loss:min")
    refused(cli("run", *arguments), cli.directory, *words)


def test_a_space_that_is_a_list_is_refused(cli: InProcess) -> None:
    (cli.directory / "space.json").write_text("[1, 2]")
    arguments = ("--command", "sh {x}", "--space", "space.json", "--objective", "loss:min")
    refused(cli("run", *arguments), cli.directory, "space.json has no tables", "[lr]")


def test_a_file_of_the_users_with_the_name_of_the_studys_own_is_kept(cli: InProcess) -> None:
    (cli.directory / "space.toml").write_text("[lr]\ntype = 'boolean'\n")
    (cli.directory / "program.py").write_text("print('mine')\n")
    command = ("--command", "python program.py {lr}", "--space", "space.toml")
    ended = cli("run", *command, "--objective", "loss:min", "--study", ".")
    assert ended.code == 2
    assert "needs a file program.py of its own" in ended.err
    assert (cli.directory / "program.py").read_text() == "print('mine')\n"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["model.py", "--command", "true"], ["MODEL_FILE and --command are given"]),
        (["--command", "true"], ["--command is given, but --space is missing"]),
        (["--space", "space.toml"], ["--space is given", "--command"]),
        ([], ["nothing to tune is given", "hptune run model.py"]),
        (["--command", "true {lr} {kind} {depth}", "--space", "space.toml"], ["--objective"]),
        (
            [
                *("--command", "true {lr} {kind} {depth}", "--space", "space.toml"),
                *("--objective", "loss", "--processes-per-trial", "2"),
            ],
            ["one program for each trial", "--processes-per-trial", "torchrun"],
        ),
        (
            ["--command", "true", "--space", "none.toml", "--objective", "loss"],
            ["none.toml cannot be read", "No such file", "min_value = 1e-4"],
        ),
    ],
)
def test_a_program_is_given_whole(cli: InProcess, arguments: list[str], words: list[str]) -> None:
    (cli.directory / "space.toml").write_text(SPACE)
    refused(cli("run", *arguments), cli.directory, *words)


def test_of_a_program_that_fails_its_own_output_is_shown(cli: InProcess) -> None:
    cli.file("space.toml", SPACE)
    cli.file("go.py", "import sys\n\nprint('reading', flush=True)\nsys.exit(open(sys.argv[1]))\n")
    command = f"{sys.executable} go.py none-{{lr}} {{kind}} {{depth}}"
    arguments = ("--command", command, "--space", "space.toml", "--objective", "loss:min")
    light = ("--executor", "joblib", "--workers", "1", "--trials", "2")
    ended = cli("run", *arguments, *light)
    study = cli.directory / "studies" / "go-1"
    assert cli("report", study).code == 0
    report = html.unescape((study / "report.html").read_text())
    for shown in (ended.err, cli("show", study, "0").out, report, cli("log", study, "0").out):
        assert 'go.py", line 4, in <module>' in shown
        assert " ended with exit code 1: FileNotFoundError" in " ".join(shown.split())
        assert 'program.py", line' not in shown
        assert "ProgramFailed" not in shown


def test_a_model_file_runs_in_another_python(hptune: Hptune) -> None:
    other = hptune.directory / "other"
    venv.create(other)
    (packages,) = other.glob("lib/python*/site-packages")
    # An editable installation is found by its source, not by the folder of packages.
    sources = [str(Path(each).parents[1]) for each in (errors.__file__, nodes.__file__)]
    ours = [sysconfig.get_paths()["purelib"], *sources]
    (packages / "ours.pth").write_text("\n".join(ours))
    (packages / "only_there.py").write_text("LOSS = 1.0\n")
    (hptune.directory / "model.py").write_text(
        "import only_there\n\n\ndef objective(hp, trial):\n"
        '    return {"loss": hp.Float("x", 0, 1) + only_there.LOSS}\n'
    )
    python = ("--python", other / "bin" / "python")
    light = ("--executor", "joblib", "--workers", "1", "--objective", "loss")
    ended = hptune("run", "model.py", *python, *light, "--trials", "2")
    assert ended.code == 0, ended.err
    study = hptune.directory / "studies" / "model-1"
    ended = hptune("resume", study, "--trials", "3")
    assert ended.code == 0, ended.err
    assert {each["state"] for each in trials(study)} == {"COMPLETE"}


def test_a_space_is_read_as_utf_8_in_any_locale(tmp_path: Path) -> None:
    space = tmp_path / "space.toml"
    space.write_text('[lr]\ntype = "choice"\nvalues = ["\u03bb"]\n', encoding="utf-8")
    lines = (
        "from pathlib import Path",
        "from hptune.user_code.programs import read_space",
        f"read_space(Path({str(space)!r}))",
    )
    strict = ("-X", "warn_default_encoding", "-W", "error::EncodingWarning")
    subprocess.run([sys.executable, *strict, "-c", "\n".join(lines)], check=True, timeout=240)


def test_a_file_that_parses_arguments_when_it_is_imported_has_its_own(hptune: Hptune) -> None:
    hptune.file(
        "model.py",
        """
        import argparse, sys

        parser = argparse.ArgumentParser()
        parser.add_argument("--epochs", type=int, default=3)
        options = parser.parse_args()
        assert sys.argv[0].endswith("model.py")

        def objective(hp, trial):
            return hp.Float("x", 0, 1) + options.epochs
        """,
    )
    ended = hptune("run", "model.py", "--trials", 1, "--executor", "joblib", "--workers", 1)
    assert ended.code == 0, ended.err


@pytest.mark.slow  # a minute: eight processes import PyTorch
def test_programs_of_torchrun_meet_at_the_port_of_their_trial(hptune: Hptune) -> None:
    require("torch")
    (hptune.directory / "space.toml").write_text("[x]\ntype='float'\nmin_value=0.0\nmax_value=1.0")
    program = """
        import json, sys, torch.distributed as dist
        dist.init_process_group("gloo")
        if dist.get_rank() == 0:
            print(json.dumps({"loss": float(sys.argv[1]), "ranks": dist.get_world_size()}))
        dist.barrier()
        dist.destroy_process_group()
    """
    hptune.file("train.py", program)
    torchrun = Path(sys.executable).with_name("torchrun")
    command = f"{torchrun} --nproc-per-node 2 train.py {{x}}"
    options = ("--space", "space.toml", "--objective", "loss", "--cpus-per-trial", "0.5")
    runs = [
        hptune.start("run", "--command", command, *options, "--trials", 2, "--study", name)
        for name in ("one", "two")
    ]
    for run in runs:
        ended = run.wait()
        assert ended.code == 0, ended.err
    for name in ("one", "two"):
        ends = rows(hptune.directory / name, "SELECT outcome FROM attempts")
        assert [each["outcome"] for each in ends] == ["FINISHED"] * 2
        found = [json.loads(trial["metrics"])["ranks"] for trial in trials(hptune.directory / name)]
        assert found == [2.0, 2.0]
