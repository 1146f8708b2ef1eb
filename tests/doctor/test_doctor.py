"""hptune doctor: checks that pass here, and real failures."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

import pytest

from commands import Commands
from gpu_nodes import mi250x
from hptune.doctor import one_off_job
from hptune.doctor.examination import CHECKS, Check, examine
from hptune.doctor.findings import Finding, Status, Subject, passed
from hptune.doctor.framework import needs_network
from hptune.doctor.machine import check_machine, check_slurm, check_versions
from hptune.doctor.report import DoctorReport
from hptune.doctor.slurm_jobs import examine_jobs
from hptune.doctor.storage import check_storage
from hptune.files.filesystem import Mount
from hptune.worker.gpus import vendor
from hptune_jobqueue.config import parse_config
from hptune_jobqueue.script import NOTICE
from in_process import InProcess
from real_runs import Hptune, wait_for
from requirements import unavailable

BY_NAME = {check.name: check for check in CHECKS}
OBJECTIVE = "def objective(hp, trial):\n    trial.report(1, value=1.0)\n    raise RuntimeError\n"


def examined(subject: Subject, *names: str) -> dict[str, Finding]:
    """Return the findings of some checks, by their names."""
    checks = [BY_NAME[name] for name in names]
    return {finding.name: finding for finding in examine(subject, checks)}


def in_a_small_tmpfs(script: str, directory: Path) -> str:
    """Return the output of a Python script that gets a file system of 1 MB as its first argument.

    The mount is in a namespace of its own, which ends with the script.
    """
    directory.mkdir()
    command = f"mount -t tmpfs -o size=1m none {directory} && exec {sys.executable} -c '{script}'"
    done = subprocess.run(
        ["unshare", "--map-root-user", "--mount", "sh", "-c", f"{command} {directory}"],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode and "unshare" in done.stderr:
        unavailable(f"this kernel lends no namespaces: {done.stderr.strip()}")
    assert done.returncode == 0, done.stderr
    return done.stdout


# --- the whole --------------------------------------------------------------------------------


def test_all_checks_pass_here(hptune: Hptune) -> None:
    model = hptune.file("model.py", OBJECTIVE)
    # Another test has TensorFlow, whose import takes twice as long.
    ended = hptune("doctor", model, "--study", hptune.study(), "--json", KERAS_BACKEND="jax")
    answer = json.loads(ended.out)
    findings = {each["name"]: each for each in answer["findings"]}
    failing = [each for each in answer["findings"] if each["status"] == "fail"]
    assert (ended.code, answer["ok"], failing) == (0, True, []), ended.err
    assert all(each["advice"] for each in findings.values() if each["status"] != "pass")
    assert {
        *("Python", "packages", "cores", "memory", "GPUs", "study's directory", "room", "locks"),
        *("SQLite", "network", "workers", "clocks", "files", "framework", "one batch"),
    } <= set(findings)
    assert "up to its first report" in findings["one batch"]["found"]
    assert [path.name for path in hptune.directory.iterdir()] == ["model.py"]
    hptune.assert_nothing_left()


def test_each_line_has_a_gap_after_its_name() -> None:
    shown = io.StringIO()
    DoctorReport(shown).show(passed("study's directory", "is writable"))
    assert shown.getvalue().endswith("study's directory is writable\n")


def test_a_broken_file_fails_without_a_traceback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KERAS_BACKEND", "jax")
    model = tmp_path / "model.py"
    model.write_text("def build_model(hp):\n    import nothing_of_the_name\n")
    found = examined(Subject(study=str(tmp_path / "study"), model_file=str(model)), "training")
    (failed,) = [each for each in found.values() if each.status is Status.FAIL]
    assert "No module named 'nothing_of_the_name'; install it in this" in failed.found
    assert failed.advice.startswith("correct the file, then run hptune doctor")
    assert "Traceback" not in failed.found


def test_data_that_cannot_be_downloaded_are_no_fault_of_the_file() -> None:
    with pytest.raises(URLError) as refused:
        urlopen("http://127.0.0.1:1/mnist.npz")
    assert needs_network(refused.value)
    assert needs_network(Exception("URL fetch failure on https://a/b.npz: None -- no route"))
    assert not needs_network(FileNotFoundError(2, "no file", "data.npz"))


def test_an_interrupt_ends_all_of_it(hptune: Hptune) -> None:
    started = hptune.start("doctor", "--study", hptune.study())
    # Not all of them: on a busy machine the first have ended when the last begin.
    wait_for(lambda: len(hptune.processes()) > len(CHECKS) // 2, "the checks")
    started.interrupt()
    assert started.wait().code == 130
    hptune.assert_nothing_left()
    assert list(hptune.directory.glob("*")) == []


def test_an_interrupt_while_checks_are_started_ends_all_of_it(hptune: Hptune) -> None:
    ended = hptune.script(
        """
        import os, signal, subprocess, threading
        from hptune.doctor.examination import examine
        from hptune.doctor.findings import Subject

        handled, start, started = threading.Event(), subprocess.Popen, []

        def interrupted(_, **options):
            started.append(start(["sleep", "60"], **options))
            if len(started) == 2:
                os.kill(os.getpid(), signal.SIGINT)
                handled.wait(1)
            return started[-1]

        subprocess.Popen = interrupted
        try:
            list(examine(Subject(study="study")))
        except KeyboardInterrupt:
            print({each.returncode for each in started})
            handled.set()
        """
    ).wait()
    assert ended.out == "{-9}\n", ended
    hptune.assert_nothing_left()


def test_a_file_that_is_not_there_is_a_usage_error(cli: InProcess) -> None:
    ended = cli("doctor", "modle.py")
    assert ended.code == 2
    assert "there is no file modle.py" in ended.err


# --- versions and the machine -----------------------------------------------------------------


def test_packages_with_wrong_versions_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = ["dask>=9999", "no-such-package", 'other>=1; extra == "gpu"']
    monkeypatch.setattr("importlib.metadata.requires", lambda _: asked)
    found = {finding.name: finding for finding in check_versions(Subject(study=str(tmp_path)))}
    assert found["packages"].status is Status.FAIL
    assert "no-such-package is not installed" in found["packages"].found
    assert "does not meet >=9999" in found["packages"].found
    assert "other" not in found["packages"].found


def test_one_core_of_many_is_a_warning(tmp_path: Path) -> None:
    if (os.cpu_count() or 1) == 1:
        pytest.skip("this machine has one core")
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(before)})
    try:
        found = examined(Subject(study=str(tmp_path)), "machine")
    finally:
        os.sched_setaffinity(0, before)
    assert found["cores"].status is Status.WARN
    assert found["cores"].found.startswith(f"1 of {os.cpu_count()} available")


def test_hidden_gpus_are_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    found = examined(Subject(study=str(tmp_path)), "machine")
    assert found["GPUs"].status is Status.WARN


def test_gpus_of_amd_and_what_is_set_against_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mi250x(tmp_path)
    monkeypatch.setattr(vendor, "ROOT", tmp_path)
    monkeypatch.setenv("ROCR_VISIBLE_DEVICES", "2,3")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,3")
    seen, against = [f for f in check_machine(Subject(study="s")) if f.name == "GPUs"]
    ways = "ROCR_VISIBLE_DEVICES and CUDA_VISIBLE_DEVICES"
    assert seen.found == f"2 available: amd:2, amd:3 (AMD, by {ways})"
    assert (against.status, against.found[: len(ways)]) == (Status.WARN, ways)


@pytest.mark.parametrize(
    ("granted", "status"),
    [
        ({}, Status.PASS),
        ({"SLURM_CPUS_PER_TASK": "4", "SLURM_GPUS_ON_NODE": "2"}, Status.PASS),
        ({"SLURM_CPUS_ON_NODE": "8"}, Status.WARN),
        ({"SLURM_GPUS_ON_NODE": "1"}, Status.WARN),
    ],
)
def test_slurm_and_the_process_must_agree(granted: dict[str, str], status: Status) -> None:
    (finding,) = check_slurm({"SLURM_JOB_ID": "7", **granted}, cores=4, gpus=2)
    assert finding.status is status


def test_who_did_not_start_the_job_is_not_told_to_start_it_otherwise() -> None:
    granted = {"SLURM_JOB_ID": "7", "SLURM_CPUS_ON_NODE": "8"}
    (own,) = check_slurm(granted, cores=4, gpus=0)
    (ours,) = check_slurm({**granted, NOTICE: "120"}, cores=4, gpus=0)
    assert "start with srun" in own.advice
    assert "start with srun" not in ours.advice
    assert "administrators" in ours.advice


def test_the_number_of_gpus_that_slurm_granted_may_have_sockets() -> None:
    granted = {"SLURM_JOB_ID": "7", "SLURM_GPUS_ON_NODE": "8(S:0-1)"}
    (finding,) = check_slurm(granted, cores=4, gpus=2)
    assert "Slurm granted 8 GPUs, this process sees 2" in finding.found
    (finding,) = check_slurm({"SLURM_JOB_ID": "7", "SLURM_CPUS_ON_NODE": "1"}, cores=4, gpus=0)
    assert "Slurm granted 1 core, this process may use 4" in finding.found


# --- the file system --------------------------------------------------------------------------


def test_a_directory_that_takes_no_files(tmp_path: Path) -> None:
    found = examined(Subject(study="/proc/studies"), "file system")
    assert list(found) == ["study's directory"]
    assert found["study's directory"].status is Status.FAIL
    assert "--study" in found["study's directory"].advice


def test_a_full_file_system(tmp_path: Path) -> None:
    script = """
import os, sys
from hptune.doctor.report import DoctorReport
from hptune.doctor.slurm_jobs import examine_jobs
from hptune.doctor.storage import check_storage
from hptune.doctor.findings import Subject
with open(sys.argv[1] + "/filler", "wb") as filler:
    try:
        while True:
            os.write(filler.fileno(), b"x" * 4096)
    except OSError:
        pass
for each in check_storage(Subject(study=sys.argv[1])):
    print(each.name, each.status, each.found, sep="|")
"""
    lines = in_a_small_tmpfs(script.replace("'", '"'), tmp_path / "full").splitlines()
    found = {line.split("|")[0]: line.split("|")[1:] for line in lines}
    assert found["room"][0] == "fail"
    assert found["SQLite"][0] == "fail"
    assert found["study's directory"][0] == "warn"  # it is in memory, too
    assert "No space left" in " ".join(lines)


@pytest.fixture
def _commits_may_take_any_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that is busy for a moment has no slow file system."""
    monkeypatch.setattr("hptune.doctor.storage.SLOW_COMMIT_SECONDS", 1e6)


@pytest.mark.usefixtures("_commits_may_take_any_time")
def test_nothing_is_left_beside_the_study(tmp_path: Path) -> None:
    found = list(check_storage(Subject(study=str(tmp_path / "a" / "b"))))
    assert {each.status for each in found if each.name in ("locks", "SQLite")} == {Status.PASS}
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("_commits_may_take_any_time")
def test_locks_that_other_machines_do_not_see(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mount = Mount(str(tmp_path), "nfs", ("rw", "local_lock=all"))
    monkeypatch.setattr("hptune.doctor.storage.mount_of", lambda _: mount)
    monkeypatch.setattr("hptune.storage.lock.mount_of", lambda _: mount)
    found = {each.name: each for each in check_storage(Subject(study=str(tmp_path)))}
    assert found["locks"].status is Status.WARN
    assert "may hold on this machine only (mount option local_lock=all)" in found["locks"].found
    assert found["SQLite"].status is Status.PASS


# --- workers ----------------------------------------------------------------------------------


def test_the_workers_of_a_scheduler(hptune: Hptune) -> None:
    file = hptune.directory / "scheduler.json"
    hptune.start("scheduler", "--port", 0, "--scheduler-file", file)
    wait_for(file.exists, "the scheduler")
    subject = Subject(study=str(hptune.study()), connect=str(file))
    found = examined(subject, "a worker")
    assert found["workers"].status is Status.WARN
    assert f"hptune worker {file}" in found["workers"].advice
    for _ in range(2):
        hptune.start("worker", file, "--cpus", 1, "--memory", "2GB")

    def both() -> dict[str, Finding] | None:
        """Return what is found where two workers answer, unless the machine is very busy now."""
        found = examined(subject, "a worker")
        is_busy = found["workers"].advice == "the network or this machine is very busy"
        return found if "2 workers answered" in found["workers"].found and not is_busy else None

    found = wait_for(both, "both workers")
    assert {each.status for each in found.values()} == {Status.PASS}
    offer = found["worker resources"].found
    assert offer.startswith("2 workers, each 1 core, no GPU, 2 GB of memory, on "), offer
    here = examined(subject, "machine")
    assert list(here) == ["this machine"]
    assert [path.name for path in hptune.directory.iterdir()] == ["scheduler.json"]


def test_a_scheduler_that_is_not_there(tmp_path: Path) -> None:
    found = examined(Subject(study=str(tmp_path), connect="tls://127.0.0.1:9"), "a worker")
    assert found["workers"].status is Status.FAIL
    assert "tls://127.0.0.1:9" in found["workers"].found


# --- the framework ----------------------------------------------------------------------------


def test_a_framework_that_cannot_be_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "keras.py").write_text("raise ImportError('libcudnn.so.9 is not there')\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    found = examined(Subject(study=str(tmp_path)), "training")
    assert found["framework"].status is Status.FAIL
    assert "ImportError: libcudnn.so.9 is not there" in found["framework"].found
    assert list(found) == ["framework"]


def test_a_framework_that_sees_fewer_gpus_than_there_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1,2,3,4,5,6,7,8,9")
    found = examined(Subject(study=str(tmp_path)), "training")
    assert found["framework"].status is Status.FAIL
    assert "of 10 GPUs" in found["framework"].found
    assert found["one batch"].status is Status.PASS
    assert "9 weights" in found["one batch"].found


# --- checks that break down -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "words", "limit_seconds"),
    [
        ("raise RuntimeError('of its own')", "exit status 1): RuntimeError: of its own", 60),
        ("import os; os.kill(os.getpid(), 11)", "killed by SIGSEGV", 60),
        ("import signal; signal.pause()", "not done after 2 seconds", 2),
    ],
)
def test_a_check_that_breaks_down_takes_nothing_with_it(
    body: str,
    words: str,
    limit_seconds: float,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # The check's own module stands in the way of what it needs.
    (tmp_path / "psutil.py").write_text(body)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    broken = Check("machine", "machine:check_machine", limit_seconds, "try nvidia-smi")
    found = list(examine(Subject(study=str(tmp_path)), [broken, BY_NAME["versions"]]))
    assert found[0].name == "machine"
    assert found[0].status is Status.FAIL
    assert words in found[0].found
    assert found[0].advice == "try nvidia-smi"
    assert [each.name for each in found[1:]] == ["Python", "packages"]


def test_a_study_without_gpus_needs_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    found = examined(Subject(study=str(tmp_path), gpus_per_trial=0), "machine")
    assert found["GPUs"].status is Status.PASS


# --- a Slurm job ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sbatch", "advice"),
    [
        ("echo 'sbatch: error: Invalid account' >&2; exit 1", "correct the slurm.toml: "),
        ("echo 'partition not available (inactive or drain)' >&2; exit 1", "try again later"),
        ("echo 7", "increase --wait"),
    ],
)
def test_a_job_that_does_not_start_has_the_advice_that_helps(
    commands: Commands,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    sbatch: str,
    advice: str,
) -> None:
    monkeypatch.setattr(one_off_job, "_POLL_SECONDS", 0.0)
    monkeypatch.setattr(one_off_job, "_GONE_SECONDS", 0.0)
    commands.make("sinfo", "echo 'gpu*|up|infinite|8|64000|(null)|2|idle'")
    commands.make("sbatch", f"cat > {tmp_path}/script; {sbatch}")
    commands.make("scancel", "")
    name = f"$(sed -n 's/^#SBATCH -J //p' {tmp_path}/script)"
    commands.make("squeue", f'echo "7_0|{name}|PENDING|Priority|gpu||N/A|N/A|N/A"')
    config = parse_config('partition = "gpu"\nwalltime = "10"')
    _, found = examine_jobs(Subject(study=str(tmp_path)), config, wait_seconds=0)
    assert found.status is Status.FAIL
    assert found.advice.startswith(advice), found
