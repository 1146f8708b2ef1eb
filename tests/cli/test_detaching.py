"""What the job of a detached master runs, with commands that answer as Slurm does."""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from hptune.clusters import slurm_jobs
from hptune.clusters.slurm_submission import submit
from hptune.config.asked import asked
from hptune.config.resolved import resolve
from hptune.config.settings import StudySettings
from hptune.errors import UsageError
from hptune.storage.directory import StudyDirectory
from hptune.study.study import Study
from hptune.user_code.source import Found, ObjectiveSource, SourceKind
from hptune_jobqueue import commands
from hptune_jobqueue import jobs as shell
from hptune_jobqueue.script import MASTER_NOTICE
from in_process import InProcess
from stored_study import stored

ANSWERS = {
    "sinfo": "echo 'cpu*|up|1-00:00:00|8|64000|(null)|3|idle'",
    "squeue": "",
    "sbatch": "cat > /dev/null; echo 7",
}


MODEL = "def objective(hp, trial):\n    return hp.Float('x', 0, 1)\n"
TWO = "OBJECTIVE = ['a:min', 'b:min']\n" + MODEL.replace("return", "return {'b': 1, 'a':") + "}"
STORED_MODEL = """
def objective(hp, trial):
    hp.Choice("activation", ["relu", "tanh"])
    return hp.Float("learning_rate", 1e-4, 1.0) * hp.Int("units", 16, 256, step=16)
"""
RUN = ("run", "model.py", "--slurm", "slurm.toml", "--gpus-per-trial", 0, "--detach")


@pytest.fixture
def slurm(cli: InProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    (cli.directory / "bin").mkdir()
    for name, answer in ANSWERS.items():
        cli.file(f"bin/{name}", f"#!/bin/sh\n{answer}\n").chmod(0o700)
    monkeypatch.setenv("PATH", str(cli.directory / "bin"), prepend=os.pathsep)
    cli.file("slurm.toml", 'partition = "cpu"\nwalltime = "01:00:00"\n')


def command_of(study: Path) -> str:
    return (study / "jobs" / "master.sbatch").read_text().splitlines()[-1].partition(" hptune ")[2]


def stored_study(cli: InProcess) -> Path:
    model = cli.file("model.py", STORED_MODEL)
    study = cli.directory / "studies" / "a-1"
    settings = StudySettings(
        source=ObjectiveSource(SourceKind.FILE, str(model)),
        working_directory=str(cli.directory),
        search="random",
        slurm=str(cli.directory / "slurm.toml"),
        gpus_per_trial=0,
    )
    stored(study, settings=settings.to_json())
    return study


@pytest.mark.usefixtures("slurm")
def test_a_job_resumes_the_study_that_was_the_newest_when_it_was_submitted(cli: InProcess) -> None:
    study = stored_study(cli)
    more = ("--trials", 20, "--notify", "mail -s 'a study' ada", "--mirror", "mlflow")
    ended = cli("resume", "--detach", *more)
    assert ended.code == 0, ended.err
    assert shlex.split(command_of(study)) == ["resume", str(study), *map(str, more)]


@pytest.mark.usefixtures("slurm")
@pytest.mark.parametrize("command", [RUN, ("resume", "--detach", "--trials", 20)])
def test_quiet_hides_what_is_read_before_the_job_is_submitted(
    cli: InProcess, command: Sequence[object]
) -> None:
    cli.file("model.py", MODEL)
    if command is not RUN:
        stored_study(cli)
    assert "reading model.py" in (ended := cli(*command)).err
    assert ended.code == 0, ended.err
    again = [*command, "--study", "another"] if command is RUN else command
    assert "reading" not in (ended := cli(*again, "--quiet")).err
    assert ended.code == 0, ended.err


@pytest.mark.usefixtures("slurm")
def test_the_script_that_is_printed_is_the_one_that_is_submitted(cli: InProcess) -> None:
    cli.file("slurm.toml", 'partition = "cpu"\nwalltime = "01:00:00"\n[master]\ncpus = 1\n')
    cli.file("model.py", MODEL)
    printed = cli("slurm", "script", "slurm.toml", "--gpus-per-trial", 0, "--study", "s")
    assert printed.code == 0, printed.err
    given = ("--study", "s", "--slurm", "slurm.toml", "--gpus-per-trial", 0)
    submitted = cli("run", "model.py", *given, "--detach")
    assert submitted.code == 0, submitted.err
    script = (cli.directory / "s" / "jobs" / "master.sbatch").read_text()
    run = "run model.py --study s --slurm slurm.toml"
    assert f"{run} --gpus-per-trial 0" in script
    shown = script.replace(f"{run} --gpus-per-trial 0", run.replace("model.py", "MODEL_FILE"))
    assert shown in printed.out


@pytest.mark.usefixtures("slurm")
def test_a_run_waits_for_a_slurm_that_is_silent(
    cli: InProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As while the controller restarts. A master that is a job waits for any time."""
    monkeypatch.setattr(shell, "ANSWER_PAUSE_SECONDS", 0.0)
    study = stored_study(cli)
    silent = "echo 'sinfo: error: Unable to contact slurm controller' >&2; exit 1"
    # It answers the third time; then the partition is gone.
    answers = f"cd {cli.directory}; echo x >> asked; [ $(wc -l < asked) -gt 2 ] || {{ {silent}; }}"
    cli.file("bin/sinfo", f"#!/bin/sh\n{answers}\necho 'gpu*|up|infinite|8|64000|(null)|3|idle'\n")
    said = "Slurm does not answer: sinfo failed: Unable to contact slurm controller. This run waits"
    ended = cli("resume", study, "--trials", 20)
    assert (ended.code, "there is no partition 'cpu'" in ended.err) == (2, True), ended.err
    told = " ".join(ended.err.split())
    assert told.count(f"{said} until it does for 10 minutes at most") == 1
    (cli.directory / "asked").unlink()
    monkeypatch.setattr(slurm_jobs, "_PATIENCE_SECONDS", -1.0)
    ended = cli("resume", study, "--trials", 20)
    assert (ended.code, "Run this again when Slurm answers" in ended.err) == (2, True), ended.err
    (cli.directory / "asked").unlink()
    monkeypatch.setattr(slurm_jobs, "_PATIENCE_SECONDS", 60.0)
    ended = cli("resume", study, "--trials", 20, "--detach")
    assert (ended.code, "there is no partition 'cpu'" in ended.err) == (2, True), ended.err
    assert " ".join(ended.err.split()).count(f"{said} until it does for 1 minutes at most") == 1
    monkeypatch.setenv(MASTER_NOTICE, "60")
    (cli.directory / "asked").unlink()
    ended = cli("resume", study, "--trials", 20)
    assert (ended.code, "there is no partition 'cpu'" in ended.err) == (2, True), ended.err
    told = " ".join(ended.err.split())
    assert said in told
    assert "at most" not in told


@pytest.mark.usefixtures("slurm")
def test_a_job_runs_a_model_file_that_follows_two_hyphens(cli: InProcess) -> None:
    cli.file("-model.py", MODEL)
    options = ("--slurm", "slurm.toml", "--gpus-per-trial", 0)
    ended = cli("run", *options, "--detach", "--", "-model.py")
    assert ended.code == 0, ended.err
    (study,) = (cli.directory / "studies").iterdir()
    assert command_of(study) == (
        f"run --study {study} --slurm slurm.toml --gpus-per-trial 0 -- -model.py"
    )


@pytest.mark.usefixtures("slurm")
@pytest.mark.parametrize(
    ("text", "options", "said"),
    [
        ("import nowhere\n" + MODEL, (), ["No module named 'nowhere'", "import nowhere"]),
        ("def train(): pass\n", (), ["has no entry point"]),
        (
            MODEL.replace("return", "return {'loss': 1, 'x':") + "}",
            ("--objective", "auc"),
            ["'auc'"],
        ),
        (MODEL, ("--try", "y=1"), ["y is unknown", "has x"]),
        (MODEL, ("--python", "/bin/sh"), ["whose environment has no hptune"]),
        (TWO, ("--pruner", "median"), ["--pruner asha or hyperband"]),
        (
            MODEL + "EPOCHS = 4\n",
            ("--pruner", "asha", "--min-epochs", "9"),
            ["--min-epochs is 9, but a trial trains at most 4 epochs"],
        ),
        (MODEL, ("--processes-per-trial", "auto"), ["trains with a loop of its own"]),
        (MODEL, ("--budget", "9gpu-h"), ["--budget is 9gpu-h, but trials hold no GPU here"]),
        (MODEL, ("--min-workers", "3", "--max-jobs", "2"), ["but there are 2 workers at most"]),
    ],
    ids=[
        *("module", "entry point", "metric", "start point", "python"),
        *("pruner", "epochs", "split", "budget", "workers"),
    ],
)
def test_what_the_job_could_not_use_is_refused_before_it_is_submitted(
    cli: InProcess, text: str, options: tuple[str, ...], said: list[str]
) -> None:
    cli.file("model.py", text)
    ended = cli(*RUN, *options)
    assert ended.code == 2
    for words in said:
        assert words in ended.err
    assert not list((cli.directory / "studies").glob("*"))


@pytest.mark.usefixtures("slurm")
def test_a_model_that_nothing_divides_is_known_before_the_job(cli: InProcess) -> None:
    model = cli.file("model.py", MODEL)
    request = asked(
        StudySettings(
            source=ObjectiveSource(SourceKind.FILE, str(model)),
            working_directory=str(cli.directory),
            slurm="slurm.toml",
            processes_per_trial=2,
            strategy="none",  # type: ignore[arg-type]  # as the command reads it
        )
    )
    found = Found(is_keras=True, space=(), constants={}, metrics=("val_loss",), metric="val_loss")
    with pytest.raises(UsageError, match="--strategy none leaves the 2 processes of a Keras"):
        submit(request, StudyDirectory("study"), [], lambda: resolve(request, found), print)
    assert not cli.study().exists()


@pytest.mark.usefixtures("slurm")
@pytest.mark.parametrize("command", [RUN, ("resume", "--detach", "--trials", 20)])
def test_a_plug_in_that_refuses_its_options_is_known_before_the_job(
    cli: InProcess, command: Sequence[object]
) -> None:
    cli.file("model.py", MODEL)
    if command is not RUN:
        stored_study(cli)
    pruner = "from hptune.core.pruner import NeverPrune\nclass Own(NeverPrune):\n"
    pruner += (
        "    def __init__(self, *, directions, epochs, limit):\n        raise ValueError(limit)\n"
    )
    cli.file("strict_in_a_job.py", pruner)
    ended = cli(*command, "--pruner", "strict_in_a_job:Own", "--option", "pruner.limit=3")
    assert ended.code == 2
    assert "strict_in_a_job:Own, which failed: ValueError: 3" in ended.err
    assert not list(cli.directory.rglob("*.sbatch"))


NEEDS_A_GPU = """#!/bin/sh
script=$(cat)
case $script in
  *gres=gpu:1* | *.master*) echo 7 ;;
  *) echo "sbatch: error: QOSMinGRES" >&2; exit 1 ;;
esac
"""
"""An sbatch as of a QOS with a minimum of GPUs, or a site's own filter."""


@pytest.mark.usefixtures("slurm")
@pytest.mark.parametrize(
    ("gpus", "options", "line", "code", "said"),
    [
        (1, ["--detach"], "", 0, "The master is Slurm job 7"),
        (0, ["--detach"], "", 2, "Slurm refuses the job in partition cpu, with your default acc"),
        (0, [], "", 2, "Slurm refuses the job in partition cpu, with your default account: QOSMin"),
        (0, ["--detach"], 'python = "/of/the/node"', 0, "This is submitted nevertheless: the mo"),
    ],
    ids=["as the model needs", "detached", "run", "unread model"],
)
def test_slurm_checks_the_job_that_the_study_submits(
    cli: InProcess, gpus: int, options: list[str], line: str, *, code: int, said: str
) -> None:
    """A refusal of another job tells nothing of it."""
    cli.file("bin/sinfo", "#!/bin/sh\necho 'cpu*|up|1-00:00:00|8|64000|gpu:2|3|idle'\n")
    cli.file("bin/sbatch", NEEDS_A_GPU)
    cli.file("model.py", f"RESOURCES = {{'gpus': {gpus}}}\n{MODEL}")
    text = 'partition = "cpu"\nwalltime = "01:00:00"\nqos = "gpumin"\ntrials_per_job = 1\n'
    # A job of an unread model is the default's, which here asks for no GPU.
    unread = f"gpus = 0\n[master]\n{line}\n" if line else ""
    cli.file("slurm.toml", f"{text}{unread}")
    ended = cli("run", "model.py", "--slurm", "slurm.toml", "--study", "study", *options)
    assert (ended.code, said in " ".join((ended.out + ended.err).split())) == (code, True), ended
    assert cli.study().exists() is (code == 0)


@pytest.mark.usefixtures("slurm")
def test_a_signal_during_the_check_leaves_no_folder(cli: InProcess) -> None:
    # Python complains of a process that it leaves behind. So the signal is sent once Python reads,
    # which the output waits for, and it ends with the signal.
    cli.file("bin/sinfo", "#!/bin/sh\nhead -c 200000 /dev/zero\nexec kill -TERM $PPID\n")
    cli.file("model.py", MODEL)
    ended = cli(*RUN, "--study", "deep/study")
    assert ended.code == 130
    assert not (cli.directory / "deep").exists()


@pytest.mark.usefixtures("slurm")
def test_a_changed_space_is_refused_before_the_job_is_submitted(cli: InProcess) -> None:
    study = stored_study(cli)
    cli.file("model.py", MODEL)
    ended = cli("resume", study, "--trials", 20, "--detach")
    assert (ended.code, "has changed since the study began" in ended.err) == (2, True), ended.err
    assert not (study / "jobs").exists()
    assert cli("resume", study, "--trials", 20, "--detach", "--accept-space").code == 0


@pytest.mark.usefixtures("slurm")
@pytest.mark.parametrize(("submits", "is_over"), [("exit 1", True), (ANSWERS["sbatch"], False)])
def test_a_study_waits_for_the_job_that_was_submitted(
    cli: InProcess, submits: str, *, is_over: bool
) -> None:
    """Also for readers that do not see Slurm, as Python here."""
    study = stored_study(cli)
    cli.file("bin/sbatch", f"#!/bin/sh\n{submits}\n")
    assert (cli("resume", study, "--trials", 20, "--detach").code != 0) == is_over
    assert Study(study).view().is_over == is_over
    cli.file("bin/sbatch", "#!/bin/sh\nexit 1\n")
    assert cli("resume", study, "--trials", 30, "--detach").code == 2
    assert Study(study).view().is_over == is_over, "the first job is still to come"


@pytest.mark.usefixtures("slurm")
@pytest.mark.parametrize(
    ("line", "is_told"),
    [('modules = ["tensorflow"]', True), ('[master]\npython = "/of/the/node/python"', False)],
)
def test_a_job_in_another_environment_is_submitted_whatever_this_one_lacks(
    cli: InProcess, line: str, *, is_told: bool
) -> None:
    cli.file("model.py", "import nowhere\n" + MODEL)
    with (cli.directory / "slurm.toml").open("a") as file:
        file.write(f"{line}\n")
    ended = cli(*RUN)
    assert (ended.code, "The master is Slurm job 7" in ended.out) == (0, True), ended.err
    assert ("on this machine, " in ended.err, "'nowhere'" in ended.err) == (is_told, is_told)


@pytest.mark.usefixtures("slurm")
def test_a_job_is_submitted_where_this_machine_fails(
    cli: InProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a login node with little memory, which kills what imports a framework."""
    cli.file("model.py", "import keras\n" + MODEL)
    (cli.directory / "small").mkdir()
    cli.file("small/keras.py", "import os\nos.kill(os.getpid(), 9)\n")
    monkeypatch.setenv("PYTHONPATH", str(cli.directory / "small"), prepend=os.pathsep)
    ended = cli(*RUN)
    assert (ended.code, "The master is Slurm job 7" in ended.out) == (0, True), ended.err
    told = " ".join(ended.err.split())
    assert "on this machine, the framework cannot be imported: " in told
    assert "was killed by SIGKILL. The job is submitted nevertheless" in told


@pytest.mark.usefixtures("slurm")
def test_a_python_that_only_the_job_has_is_left_to_it(cli: InProcess) -> None:
    cli.file("model.py", "import nowhere\n" + MODEL)
    ended = cli(*RUN, "--python", "/only/in/the/job/python")
    assert (ended.code, ended.err) == (0, "")


@pytest.mark.usefixtures("slurm")
def test_a_requeued_job_retries_failed_trials_and_notes_its_agent_once(
    cli: InProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HPTUNE_AGENT", "claude")
    python = cli.file("python", '#!/bin/sh\necho "$@" "by $HPTUNE_AGENT"\n')
    python.chmod(0o700)
    with (cli.directory / "slurm.toml").open("a") as file:
        file.write(f"[master]\npython = '{python}'\n")
    study = stored_study(cli)
    ended = cli("resume", "--detach", "--retry-failed", "--trials", 20)
    assert ended.code == 0, ended.err

    def command(restarts: int, *, age: float) -> str:
        """Return what the job runs if the ledger is this much older than its script."""
        script = study / "jobs" / "master.sbatch"
        written = script.stat().st_mtime - age
        os.utime(study / "study.db", (written, written))
        restarted = {**os.environ, "SLURM_RESTART_COUNT": str(restarts)}
        ran = subprocess.run(
            ["bash", script], env=restarted, check=True, capture_output=True, text=True
        )
        return ran.stdout.partition(" hptune ")[2].strip()

    first = f"resume {study} --retry-failed --trials 20 by claude"
    assert command(0, age=10.0) == first
    assert command(1, age=10.0) == first
    assert command(1, age=-10.0) == f"resume {study} --trials 20 by"


@pytest.mark.usefixtures("slurm")
def test_a_trial_that_finds_no_place_beside_the_master_is_refused(cli: InProcess) -> None:
    """Its job would wait for as long as the master runs, which holds a core of the only node."""
    cli.file("bin/sinfo", "#!/bin/sh\necho 'cpu*|up|1-00:00:00|8|64000|(null)|1|idle'\n")
    cli.file("model.py", "def objective(hp, trial):\n    return hp.Float('x', 0, 1)\n")
    options = ("--slurm", "slurm.toml", "--gpus-per-trial", 0, "--detach")
    refused = cli("run", "model.py", *options, "--cpus-per-trial", 8)
    said = " ".join(refused.err.split())
    assert refused.code == 2
    assert "a job in partition cpu can have 7 cores" in said
    assert "name another partition under [master] in the slurm.toml" in said
    accepted = cli("run", "model.py", *options, "--cpus-per-trial", 7)
    assert accepted.code == 0, accepted.err


@pytest.mark.usefixtures("slurm")
def test_a_study_whose_jobs_all_fail_says_so_later_too(
    cli: InProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with modules that do not exist."""
    for name in ("POLL_SECONDS", "SUBMITTED_POLL_SECONDS", "SLOWEST_POLL_SECONDS"):
        monkeypatch.setattr(shell, name, 0.01)
    monkeypatch.setattr(commands, "SECONDS_OF_A_CALL", 0.0)
    count = cli.directory / "count"
    count.write_text("0\n")
    submit = f"cat > /dev/null; n=$(($(cat {count}) + 1)); echo $n > {count}; echo $n"
    cli.file("bin/sbatch", f"#!/bin/bash\n{submit}\n")
    show = (
        "for each; do case $each in --name=*) name=${each#--name=};; esac; done\n"
        f"for n in $(seq $(cat {count})); do "
        'echo "${n}_0|$name|FAILED|NonZeroExitCode|cpu|n1|N/A|N/A|N/A"; done'
    )
    cli.file("bin/squeue", f"#!/bin/bash\n{show}\n")
    cli.file("bin/scancel", "#!/bin/sh\n").chmod(0o700)
    cli.file("model.py", "def objective(hp, trial):\n    return hp.Float('x', 0, 1)\n")
    options = ("--slurm", "slurm.toml", "--gpus-per-trial", 0, "--insecure", "-q")
    ended = cli("run", "model.py", *options, "--study", "study", "--max-jobs", 1)
    said = " ".join(ended.err.split())
    assert ended.code == 1, said
    assert "3 jobs in a row ended before their worker had joined" in said
    assert "`hptune doctor --slurm slurm.toml` checks" in said
    status = " ".join(cli("status", "study").out.split())
    assert "state not running: 3 jobs in a row ended before their worker had joined" in status


def test_a_study_that_runs_elsewhere_gets_no_second_master(cli: InProcess, slurm: None) -> None:
    study = stored_study(cli)
    (study / "lease").write_text("damaged")
    ended = cli("resume", study, "--detach")
    assert ended.code == 1
    assert "is already run by a process on an unknown machine. Follow it with" in ended.err
