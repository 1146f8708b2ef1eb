"""Choice of a run's cluster, and how one that starts jobs is opened and closed."""

from __future__ import annotations

import logging
import subprocess
from pathlib import Path
from typing import Any

import pytest

from hptune.clusters.base import Cluster
from hptune.clusters.choice import choose_cluster
from hptune.clusters.existing import ClientWorkers, ExistingScheduler
from hptune.clusters.jobs import JobQueueCluster, JobWorkers, translated_errors
from hptune.clusters.layout import WorkerLayout, resolve_layout
from hptune.clusters.local import LocalWorkers
from hptune.clusters.slurm_jobs import SlurmWorkers, check_jobs, order_of
from hptune.clusters.slurm_submission import script_texts
from hptune.config.asked import Asked, asked
from hptune.config.settings import StudySettings
from hptune.core.resources import Resources
from hptune.errors import StudyError, UsageError
from hptune.user_code.source import ObjectiveSource, SourceKind
from hptune_jobqueue.commands import Slurm
from hptune_jobqueue.errors import ConfigError, JobsFailError, ShapesFailError
from hptune_jobqueue.nodes import parse_sinfo


def request(**given: Any) -> Asked:
    source = ObjectiveSource(SourceKind.FILE, "model.py")
    return asked(StudySettings(source=source, working_directory="/", **given))


def test_the_settings_choose_the_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    slurm = tmp_path / "slurm.toml"
    slurm.write_text('partition = "gpu"\nwalltime = "10"')
    kinds: dict[type[Cluster], Asked] = {
        LocalWorkers: request(),
        ExistingScheduler: request(connect="tls://node1:8786"),
        SlurmWorkers: request(slurm=str(slurm)),
    }
    for kind, wanted in kinds.items():
        cluster = choose_cluster(wanted, tmp_path / "study")
        assert type(cluster) is kind
        assert cluster.is_local is (kind is LocalWorkers)
        assert cluster.outlives_master is (kind is not LocalWorkers)
    assert type(choose_cluster(request(), tmp_path, client=object())) is ClientWorkers


def test_what_the_model_file_may_say_is_refused_when_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the nodes without GPUs have the cores; RESOURCES may ask for no GPU."""
    text = "main|up|infinite|64|8000|(null)|1|idle\nmain|up|infinite|4|8000|gpu:2|2|idle\n"
    nodes = parse_sinfo(text)
    monkeypatch.setattr(Slurm, "partitions", lambda _: nodes)
    monkeypatch.setattr(Slurm, "check", lambda *_: None)
    slurm = tmp_path / "slurm.toml"
    slurm.write_text('partition = "main"\nwalltime = "10"')
    told: list[str] = []
    order = order_of(slurm, tmp_path)
    check_jobs(order, Resources(8), told.append, is_certain=False)
    assert "Only its nodes without GPUs hold a trial" in told[0]
    assert "This is submitted nevertheless" in told[0]
    for resources, said in (
        (Resources(8), "Only its nodes without GPUs hold a trial"),
        (Resources(8, gpus=1), "a trial needs 8 cores and 1 GPU"),
    ):
        with pytest.raises(UsageError, match=said):
            check_jobs(order, resources, pytest.fail, is_certain=True)
    check_jobs(order, Resources(8, gpus=0), pytest.fail, is_certain=True)


def test_a_job_asks_for_no_more_cores_than_the_user_gives_its_trials(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nodes = parse_sinfo("main|up|infinite|16|8000|gpu:2|2|idle\n")
    monkeypatch.setattr(Slurm, "partitions", lambda _: nodes)
    slurm = tmp_path / "slurm.toml"
    slurm.write_text('partition = "main"\nwalltime = "10"\ntrials_per_job = 1')
    for resources, cpus in ((Resources(cpus=1), 1), (Resources(), 8), (Resources(gpus=0), 1)):
        (script,) = script_texts(slurm, tmp_path, resources)
        assert f"#SBATCH --cpus-per-task={cpus}\n" in script


@pytest.mark.parametrize(("agent", "backend"), [("", ""), ("a b", "jax")])
def test_the_job_of_a_master_knows_which_agent_asked_for_it_and_the_backend(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, agent: str, backend: str
) -> None:
    monkeypatch.setenv("HPTUNE_AGENT", agent)
    monkeypatch.setenv("KERAS_BACKEND", backend)
    nodes = parse_sinfo("main|up|infinite|16|8000||2|idle\n")
    monkeypatch.setattr(Slurm, "partitions", lambda _: nodes)
    slurm = tmp_path / "slurm.toml"
    slurm.write_text('partition = "main"\nwalltime = "10"\n[master]\nwalltime = "10"')
    *_, script = script_texts(slurm, tmp_path, Resources())
    assert ("export HPTUNE_AGENT='a b'\n" in script) == bool(agent)
    told = [line for line in script.splitlines() if "KERAS_BACKEND" in line]
    assert len(told) == bool(backend)
    for own, used in (("", backend), ("torch", "torch")) if told else ():
        shown = f"KERAS_BACKEND={own}\n{told[0]}\necho $KERAS_BACKEND"
        assert subprocess.check_output(["bash", "-euc", shown], text=True) == f"{used}\n"
    assert "hptune run MODEL_FILE" in script


def test_a_job_on_one_node_uses_this_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("SLURM_JOB_NUM_NODES", "SLURM_NNODES"):
        monkeypatch.setenv(name, "1")
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    monkeypatch.setenv("SLURMD_NODENAME", "n1")
    cluster = choose_cluster(request(), tmp_path)
    assert (type(cluster), cluster.notes) == (LocalWorkers, ())


def test_local_workers_say_what_each_trial_holds() -> None:
    wanted = request(cpus_per_trial=1, pack="off")
    workers = LocalWorkers(wanted.settings)
    layout = resolve_layout(wanted, {}, workers.capacity)
    cores = len(workers.capacity.cpus)
    count = "1 trial" if cores == 1 else f"{cores} trials"
    assert workers.trials_at_once(layout) == cores
    assert workers.text(layout).startswith(f"{count} at once on this machine, 1 core")


class FakeJobs:
    """Records the calls of a cluster of `hptune_jobqueue`."""

    address = "tls://node1:8786"

    def __init__(self) -> None:
        self.calls: list[str] = []

    def scale_down(self) -> None:
        self.calls.append("scale_down")

    def close(self, *, force: bool = False) -> None:
        self.calls.append("close by force" if force else "close")


class FakeWorkers(JobWorkers[JobQueueCluster]):
    def __init__(self, made: FakeJobs | Exception) -> None:
        super().__init__(Path("nowhere"), insecure=True)
        self._made = made

    def _make(self, security: Any) -> JobQueueCluster:
        if isinstance(self._made, Exception):
            raise self._made
        return self._made

    def text(self, layout: WorkerLayout) -> str:
        return "in jobs"


def test_jobs_are_closed_once_also_if_no_scheduler_answers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refused(address: str, *, name: str, identity: None) -> None:
        raise StudyError(f"no scheduler answers at {address} ({name})")

    monkeypatch.setattr("hptune.executors.dask_client.connect", refused)
    jobs = FakeJobs()
    workers = FakeWorkers(jobs)
    run: Any = type("Run", (), {"name": "hptune-1"})()
    with pytest.raises(StudyError, match="no scheduler answers at tls://node1:8786"):
        workers.open(run)
    workers.close(force=True)
    workers.close()
    workers.close()
    assert jobs.calls == ["close by force", "close"]


def test_dask_logs_nothing_where_a_program_shows_all_logs(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Logging(FakeWorkers):
        def _make(self, security: Any) -> JobQueueCluster:
            logging.getLogger("distributed.scheduler").info("Scheduler at: tls://node1")
            return super()._make(security)

    caplog.set_level(logging.INFO, "distributed")
    run: Any = type("Run", (), {"name": "hptune-1"})()
    with pytest.raises(UsageError, match="no partition"):
        Logging(ConfigError("there is no partition 'gpu'")).open(run)
    assert caplog.messages == []


def test_a_cluster_that_cannot_be_made_can_be_closed() -> None:
    workers = FakeWorkers(ConfigError("there is no partition 'gpu'"))
    run: Any = type("Run", (), {"name": "hptune-1"})()
    with pytest.raises(UsageError, match="no partition 'gpu'"):
        workers.open(run)
    workers.scale_down()
    workers.close(force=True)
    workers.close()


def test_errors_of_jobqueue_are_the_commands_before_a_study_and_the_studys_later() -> None:
    with pytest.raises(UsageError, match="walltime is 0"), translated_errors():
        raise ConfigError("walltime is 0")
    with (
        pytest.raises(StudyError, match=r"walltime .* Continue with `hptune resume DIR`"),
        translated_errors(is_running=True),
    ):
        raise ConfigError("walltime is 0")
    with pytest.raises(StudyError) as caught, translated_errors(is_running=True):
        raise ShapesFailError(
            "3 jobs in a row ended. The last one wrote into 7.log:\nno such module"
        )
    message, detail = caught.value.message, caught.value.detail
    shown = "3 jobs in a row ended. The last one wrote into 7.log; its last lines are shown."
    assert (message.startswith(shown), detail) == (True, "no such module")
    assert "`hptune doctor --slurm slurm.toml` checks what jobs need" in message
    with pytest.raises(StudyError) as caught, translated_errors(is_running=True):
        raise JobsFailError("no worker is left\nno such module")
    assert (caught.value.message, caught.value.detail) == ("no worker is left", "no such module")
