"""A private Slurm of this test session, with three nodes on this machine."""

from __future__ import annotations

import contextlib
import os
import random
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

COMMANDS = ("munged", "slurmctld", "slurmd", "sbatch", "squeue", "scontrol", "sinfo", "scancel")
SYSTEM_PATHS = "/usr/sbin:/usr/local/sbin:/sbin"

NODES = ("g1", "g2", "c1")
"""Nodes: two with two GPUs each, one without; each has four cores and 4 GB."""

CONFIGURATION = """\
ClusterName=hptune
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller_port}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={here}/munge.socket,cred_expire=5
CredType=cred/munge
StateSaveLocation={here}/state
SlurmdSpoolDir={here}/spool.%n
SlurmctldPidFile={here}/slurmctld.pid
SlurmdPidFile={here}/slurmd.%n.pid
SlurmctldLogFile={here}/slurmctld.log
SlurmdLogFile={here}/slurmd.%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
GresTypes=gpu
ReturnToService=2
SlurmdTimeout=10
SchedulerParameters=sched_interval=1,bf_interval=1,batch_sched_delay=0
SlurmdParameters=config_overrides
EnforcePartLimits=ALL
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
KillWait=5
MinJobAge=60
PriorityType=priority/basic
NodeName=g1 NodeHostname={host} NodeAddr=127.0.0.1 Port={port_g1} Gres=gpu:small:2 {shape}
NodeName=g2 NodeHostname={host} NodeAddr=127.0.0.1 Port={port_g2} Gres=gpu:small:2 {shape}
NodeName=c1 NodeHostname={host} NodeAddr=127.0.0.1 Port={port_c1} {shape}
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP
PartitionName=gpu Nodes=g1,g2 MaxTime=1-00:00:00 State=UP
PartitionName=cpu Nodes=c1 MaxTime=02:00:00 State=UP
PartitionName=short Nodes=g1,g2 MaxTime=00:05:00 State=UP
PartitionName=closed Nodes=c1 AllowAccounts=others MaxTime=02:00:00 State=UP
"""
SHAPE = "CPUs=4 Sockets=1 CoresPerSocket=4 ThreadsPerCore=1 RealMemory=4000 State=UNKNOWN"
# Slurm counts existing device files; any will stand in for GPUs, but not what others depend on.
DEVICES = """\
NodeName=g[1-2] Name=gpu Type=small File=/dev/full
NodeName=g[1-2] Name=gpu Type=small File=/dev/zero
"""


def missing() -> str:
    """Return why no Slurm can be started here; empty if one can."""
    absent = [command for command in COMMANDS if _which(command) is None]
    if absent:
        return (
            f"{', '.join(absent)} not found; install Slurm with "
            "`apt-get install slurm-wlm munge` (or let `.ci/run` do it)"
        )
    return ""


def _which(command: str) -> str | None:
    return shutil.which(command, path=f"{os.environ.get('PATH', '')}:{SYSTEM_PATHS}")


def free_ports(count: int) -> list[int]:
    """Return ports for servers that start later, perhaps again and again.

    The kernel gives none of them to anything else, such as a connection of another test.
    """
    its_own = Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()
    found: list[int] = []
    while len(found) < count:
        port = random.randrange(10_000, max(int(its_own[0]), 11_000))
        with contextlib.suppress(OSError), socket.socket() as tried:
            tried.bind(("0.0.0.0", port))
            if port not in found:
                found.append(port)
    return found


def wait_until(condition: Callable[[], bool], what: str, *, seconds: float = 200.0) -> None:
    """Wait until a condition holds.

    Raises:
        TimeoutError: It has not come true.
    """
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {seconds:g} s for {what}")
        time.sleep(0.1)


class PrivateSlurm:
    """Munge, one slurmctld and three slurmd with ports, keys and directories of their own.

    Attributes:
        environment: What points Slurm's commands at it.
    """

    def __init__(self) -> None:
        # A short path: munge's socket lies in it.
        self.directory = Path(tempfile.mkdtemp(prefix="hs", dir="/tmp"))
        self.environment: Mapping[str, str] = {"SLURM_CONF": str(self.directory / "slurm.conf")}
        self._daemons: dict[str, subprocess.Popen[bytes]] = {}

    def start(self) -> None:
        """Start all daemons; returns when all nodes are idle."""
        here = self.directory
        (here / "state").mkdir()
        for node in NODES:
            (here / f"spool.{node}").mkdir()
        ports = free_ports(1 + len(NODES))
        (here / "slurm.conf").write_text(
            self._configuration().format(
                host=socket.gethostname().partition(".")[0],
                here=here,
                user=_user(),
                controller_port=ports[0],
                shape=SHAPE,
                **{f"port_{node}": port for node, port in zip(NODES, ports[1:], strict=True)},
            )
        )
        (here / "gres.conf").write_text(DEVICES)
        key = here / "munge.key"
        key.write_bytes(secrets.token_bytes(128))
        key.chmod(0o600)
        self._start(
            "munged",
            "--foreground",
            "--force",
            f"--socket={here / 'munge.socket'}",
            f"--key-file={key}",
            f"--pid-file={here / 'munged.pid'}",
            f"--log-file={here / 'munged.log'}",
            f"--seed-file={here / 'munged.seed'}",
        )
        wait_until((here / "munge.socket").exists, "munge's socket")
        self._before_controller()
        self._start("slurmctld", "-D", "-i")
        for node in NODES:
            self.start_node(node)
        self.wait_until_idle(seconds=200)

    def _configuration(self) -> str:
        """Return the template of the slurm.conf."""
        return CONFIGURATION

    def _before_controller(self) -> None:
        """Start what the controller needs beside munge."""

    def wait_until_idle(self, *, seconds: float) -> None:
        """Wait until all nodes are there and have nothing to do.

        Raises:
            TimeoutError: They are not; says what Slurm shows.
        """
        try:
            wait_until(self.all_idle, "three idle nodes", seconds=seconds)
        except TimeoutError as error:
            log = (self.directory / "slurmctld.log").read_text()[-3000:]
            shown = self.run("sinfo", "-N", "-l") + self.run("squeue", "--states=all")
            raise TimeoutError(f"{error}; Slurm shows\n{shown}and says\n{log}") from None

    def stop_controller(self) -> None:
        """Make Slurm silent: its commands fail, and its jobs run on."""
        daemon = self._daemons.pop("slurmctld")
        daemon.terminate()
        daemon.wait()

    def start_controller(self) -> None:
        """Start a controller, which finds the state that the last one left."""
        self._start("slurmctld", "-D")
        wait_until(self._answers, "a controller that answers")

    def _answers(self) -> bool:
        try:
            self.run("squeue", "--noheader")
        except subprocess.CalledProcessError:
            return False
        return True

    def start_node(self, node: str) -> None:
        """Start a node's slurmd."""
        self._start("slurmd", "-D", "-N", node, name=node)

    def mend_node(self, node: str) -> None:
        """Bring a killed node back, as an administrator does.

        A job that was cancelled while its node was silent would be completing for minutes.
        """
        self.run("scontrol", "update", f"NodeName={node}", "State=DOWN", "Reason=killed")
        self.start_node(node)  # ReturnToService: the node is up as soon as it registers

    @contextlib.contextmanager
    def failing_prolog(self, node: str) -> Iterator[None]:
        """Let no job start on a node, as its prolog fails there, which Slurm then drains."""
        file, prolog = self.directory / "slurm.conf", self.directory / "prolog"
        before = file.read_text()
        prolog.write_text(f'#!/bin/sh\n[ "$SLURMD_NODENAME" != {node} ]\n')
        prolog.chmod(0o755)
        file.write_text(f"{before}Prolog={prolog}\n")
        self.run("scontrol", "reconfigure")
        try:
            yield
        finally:
            file.write_text(before)
            self.run("scontrol", "reconfigure")
            self.clear()
            self.run("scontrol", "update", f"NodeName={node}", "State=RESUME")
            self.wait_until_idle(seconds=200)

    def kill_node(self, node: str) -> None:
        """Make a node fail: its slurmd and all that it started die at once."""
        daemon = self._daemons.pop(node)
        daemon.kill()
        daemon.wait()
        for pid in self._processes_of_jobs(node):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def run(self, *command: str) -> str:
        """Return the output of a Slurm command."""
        done = subprocess.run(
            [_which(command[0]) or command[0], *command[1:]],
            env={**os.environ, **self.environment},
            capture_output=True,
            text=True,
            check=True,
            timeout=200,
        )
        return done.stdout

    def jobs(self) -> list[str]:
        """Return all jobs that are not over, one line each."""
        return self.run("squeue", "--noheader", "--array", "-o", "%i %T %j %r %N").splitlines()

    def clear(self) -> list[str]:
        """End all jobs; return those that there were."""
        left = self.jobs()
        if left:
            self.run("scancel", "--user", _user())
            with contextlib.suppress(TimeoutError):
                wait_until(lambda: not self.jobs(), "an empty queue")
        return left

    def stop(self) -> None:
        """End all daemons and all processes of jobs, and remove the directory."""
        with contextlib.suppress(Exception):
            self.clear()
        for daemon in reversed(self._daemons.values()):
            daemon.terminate()
        for daemon in self._daemons.values():
            try:
                daemon.wait(timeout=10)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()
        for pid in self._processes_of_jobs():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        shutil.rmtree(self.directory, ignore_errors=True)

    def _start(self, command: str, *arguments: str, name: str = "") -> None:
        log = (self.directory / f"{name or command}.out").open("ab")
        with log:
            self._daemons[name or command] = subprocess.Popen(
                [_which(command) or command, *arguments],
                env={**os.environ, **self.environment},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def all_idle(self) -> bool:
        """Return whether all nodes wait for jobs."""
        try:
            states = self.run("sinfo", "--noheader", "-p", "main", "-N", "-o", "%N %T").splitlines()
        except subprocess.CalledProcessError:
            return False
        return sorted(states) == sorted(f"{node} idle" for node in NODES)

    def _processes_of_jobs(self, node: str = "") -> list[int]:
        """Return the processes that this Slurm's jobs left, by their environment."""
        wanted = f"SLURM_CONF={self.environment['SLURM_CONF']}".encode()
        found = []
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit() or int(entry.name) == os.getpid():
                continue
            with contextlib.suppress(OSError):
                variables = (entry / "environ").read_bytes().split(b"\0")
                here = b"SLURMD_NODENAME=" + node.encode()
                if wanted in variables and any(each.startswith(here) for each in variables):
                    found.append(int(entry.name))
        return found


def _user() -> str:
    import pwd

    return pwd.getpwuid(os.getuid()).pw_name
