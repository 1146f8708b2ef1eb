"""Slurm's commands that cannot be started, fail, or give unusual answers."""

from __future__ import annotations

import os
from types import SimpleNamespace

import pytest

from commands import Commands
from hptune_jobqueue.commands import Job, JobState, Slurm, parse_squeue
from hptune_jobqueue.errors import ClosedForNowError, SlurmUnavailableError, SubmissionError
from hptune_jobqueue.script import MASTER_NOTICE, NOTICE


def test_a_command_that_cannot_be_started_is_a_slurm_that_does_not_answer(
    commands: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(commands.folder))
    # The kernel refuses an unknown format, as it refuses a fork when there is no memory.
    commands.make("squeue", "").write_text("neither a script nor a program")
    with pytest.raises(SlurmUnavailableError, match="squeue cannot be started: Exec format error"):
        Slurm().jobs(["a"])


def test_bytes_that_are_no_text_are_borne(commands: Commands) -> None:
    line = r"7_0|a|PENDING|caf\351|gpu||N/A|N/A|N/A"
    commands.make("squeue", f"printf '{line}\\n'")
    (job,) = Slurm().jobs(None)
    assert (job.id, job.reason) == ("7_0", "caf\N{REPLACEMENT CHARACTER}")


def test_hidden_partitions_and_the_users_jobs_there_are_seen(commands: Commands) -> None:
    """Slurm shows them to its administrators, and to others only with --all."""

    def shown(line: str, *, hidden: str) -> str:
        first = f'echo "{line}"' if line else ":"
        return f'{first}; case " $* " in *" --all "*) echo "{hidden}" ;; esac'

    gpu = "gpu|up|infinite|8|64000|(null)|3|idle"
    commands.make("sinfo", shown(gpu, hidden=gpu.replace("gpu", "condo")))
    assert [each.name for each in Slurm().partitions()] == ["gpu", "condo"]
    assert [each.name for each in Slurm().partitions(with_hidden=False)] == ["gpu"]
    commands.make("squeue", shown("", hidden="7_0|a|RUNNING|None|condo|n1|N/A|N/A|N/A"))
    assert [job.id for job in Slurm().jobs(["a"])] == ["7_0"]
    commands.make("sinfo", shown("n1", hidden="n2"))
    assert Slurm().node_addresses() == ("n1", "n2")
    commands.make("squeue", shown("", hidden="7.0|n1|work"))
    commands.make("scancel", "")
    assert Slurm().signal_steps("7", "work") == {"n1"}


def test_a_job_that_has_the_id_of_its_array_is_not_taken_for_all_its_jobs(
    commands: Commands,
) -> None:
    """The last one has, and Slurm shows all of them by this id."""
    commands.make("squeue", r"printf '9 1700\n8 1800\n'")
    record = "JobId={} ArrayJobId=8 ArrayTaskId=1\n     Nodes={} CPU_IDs=0 Mem=1 GRES=gpu:1\n\n"
    records = record.format(9, "g[1-2]") + record.format(8, "g[2-3]")
    commands.make("scontrol", f"cat <<'E'\n{records}E")
    slurm = Slurm()
    assert slurm.end_of("8") == "1800"
    assert slurm.gpus_of("8") == {"g2": 1, "g3": 1}
    assert slurm.gpus_of("9") == {"g1": 1, "g2": 1}


def test_after_some_calls_a_short_pause_is_due(commands: Commands) -> None:
    commands.make("squeue", "")
    slurm = Slurm()
    for _ in range(5):
        assert slurm.rest_seconds() == 0.0
        slurm.jobs(None)
    assert 0.0 < slurm.rest_seconds() <= 14.0


@pytest.mark.parametrize("of_a_poll", [1, 2, 3, 4])
def test_a_study_calls_six_times_a_minute_at_most_and_never_rests_for_long(
    monkeypatch: pytest.MonkeyPatch, of_a_poll: int
) -> None:
    now, called_at, longest = 0.0, list[float](), 0.0
    monkeypatch.setattr("hptune_jobqueue.commands.time", SimpleNamespace(monotonic=lambda: now))
    slurm = Slurm()
    while now < 1200.0:
        for _ in range(of_a_poll):
            slurm._count_call()
            called_at.append(now)
        pause = max(2.0, slurm.rest_seconds())
        longest = max(longest, pause)
        now += pause
    most = max(sum(at <= each < at + 300.0 for each in called_at) for at in called_at)
    assert most <= 30
    assert longest <= 60.0


def test_jobs_that_cannot_be_cancelled_are_an_error(commands: Commands) -> None:
    commands.make("scancel", "echo 'scancel: error: busy' >&2\nexit 1")
    with pytest.raises(SlurmUnavailableError, match="scancel failed: busy"):
        Slurm().cancel(["7_0"])
    Slurm().cancel([])


def test_commands_do_not_hear_the_terminals_ctrl_c(commands: Commands) -> None:
    found = commands.folder / "session"
    commands.make("sbatch", f"ps -o sid= -p $$ > {found}\necho 7")
    assert Slurm().submit("#!/bin/sh", 2) == ("7_0", "7_1")
    assert int(found.read_text()) != os.getsid(0)


_FAILED = "sbatch: error: Batch job submission failed: "


@pytest.mark.parametrize(
    ("said", "error"),
    [
        # As sbatch of release 22.05 prints them.
        ("Required partition not available (inactive or drain)", ClosedForNowError),
        ("Unable to contact slurm controller (connect failure)", SlurmUnavailableError),
        ("Requested node configuration is not available", SubmissionError),
        ("QOSMaxSubmitJobPerUserLimit\nsbatch: error: Job violates policy", ClosedForNowError),
    ],
)
def test_refusals_that_pass_differ_from_others(
    commands: Commands, said: str, error: type[Exception]
) -> None:
    commands.make("sbatch", f"echo '{_FAILED}{said}' >&2\nexit 1")
    with pytest.raises(error) as caught:
        Slurm().submit("", 1)
    assert caught.type is error


def test_a_refusal_says_where_the_job_was_to_run_and_who_pays(
    commands: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands.make("sbatch", "echo 'sbatch: error: Invalid account' >&2; exit 1")
    script = "#!/bin/sh\n#SBATCH -p gpu\n"
    slurm = Slurm()
    for text, account, what, said in (
        (script, "", "the job", "the job in partition gpu, with your default account: Invalid"),
        (f"{script}#SBATCH -A mine\n", "others", "it", "it in partition gpu, with account mine:"),
        (script, "others", "it", "it in partition gpu, with account others: Invalid account"),
    ):
        monkeypatch.setenv("SBATCH_ACCOUNT", account)
        with pytest.raises(SubmissionError, match=f"^Slurm refuses {said}"):
            slurm.check(text, what=what)


def test_a_refused_memory_leads_to_memory_by_core(commands: Commands) -> None:
    for said, is_advised in (("Memory specification can not be satisfied", True), ("--mem", True),
                             ("Invalid account", False)):  # fmt: skip
        commands.make("sbatch", f"echo 'sbatch: error: {said}' >&2; exit 1")
        with pytest.raises(SubmissionError) as refused:
            Slurm().check("#!/bin/sh\n")
        assert ('["--mem-per-cpu=4G"]' in str(refused.value)) is is_advised


def test_a_banner_before_the_number_of_a_job_is_skipped(commands: Commands) -> None:
    commands.make("sbatch", "echo '--- Welcome to 2 systems ---'\necho\necho '7;gpu'")
    assert Slurm().submit("", 1) == ("7_0",)
    commands.make("sbatch", "echo Welcome")
    with pytest.raises(SlurmUnavailableError, match="prints no job's id, but 'Welcome'"):
        Slurm().submit("", 1)


def test_only_known_states_are_ends() -> None:
    """Slurm 25.05 has brought EXPEDITING, for a job that it runs again."""
    text = "\n".join(
        f"{i}|a|{state}|None|gpu|{node}|N/A|N/A|N/A"
        for i, (state, node) in enumerate([("EXPEDITING", ""), ("NEW", "n1"), ("BOOT_FAIL", "n1")])
    )
    states = [job.state for job in parse_squeue(text)]
    assert states == [JobState.PENDING, JobState.RUNNING, JobState.OVER]


@pytest.mark.parametrize(
    ("reason", "is_hopeless"),
    [
        # As squeue of release 22.05 shows them.
        ("QOSMinCpuNotSatisfied", True),
        ("QOSMaxGRESPerNode", True),
        ("QOSMaxCpuPerJobLimit", True),
        ("AssocMaxCpuMinutesPerJobLimit", True),
        ("MaxMemPerLimit", True),
        ("QOSMaxJobsPerUserLimit", False),
        ("AssocGrpCPUMinutesLimit", False),
        ("ReqNodeNotAvail, UnavailableNodes:n1", False),
    ],
)
def test_reasons_that_never_pass_differ_from_others(reason: str, is_hopeless: bool) -> None:
    assert Job("7_0", "a", JobState.PENDING, "PENDING", reason).is_hopeless is is_hopeless


def test_a_job_inherits_the_users_environment_but_nothing_of_the_master_or_its_commands(
    commands: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Options of Slurm count only where a script lacks them."""
    seen = commands.folder / "seen"
    named = "^(SBATCH|SALLOC|SRUN|SLURM|LC|HPTUNE_(MASTER|WORKER))_"
    commands.make("sbatch", f"env | grep -E '{named}' | sort > {seen}\necho 7")
    for name in (
        "SBATCH_ACCOUNT", "SBATCH_QOS", "SBATCH_WCKEY", "SBATCH_JOB_NAME", "SLURM_JOB_ID",
        "SRUN_CPUS_PER_TASK", "SRUN_EXPORT_ENV", "SALLOC_PARTITION", MASTER_NOTICE, NOTICE,
    ):  # fmt: skip
        monkeypatch.setenv(name, "mine")
    monkeypatch.setenv("LC_ALL", "C.UTF-8")
    monkeypatch.setenv("SLURM_CLUSTERS", "big")
    monkeypatch.setenv("SLURM_CONF", "/conf")
    Slurm().submit("#!/bin/sh\n#SBATCH -A project\n", 1)
    assert seen.read_text().split() == [
        "LC_ALL=C.UTF-8", "SBATCH_QOS=mine", "SBATCH_WCKEY=mine",
        "SLURM_CLUSTERS=big", "SLURM_CONF=/conf",
    ]  # fmt: skip
    Slurm().submit("#!/bin/sh\n#SBATCH --qos=high\n", 1)
    assert seen.read_text().split()[1] == "SBATCH_ACCOUNT=mine"
