"""A private Grid Engine of this test session, with one node of four slots on this machine."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from private_slurm import free_ports, wait_until

PROGRAMS = Path("/usr/lib/gridengine")
"""Where Debian has them."""

SHARED = Path("/usr/share/gridengine")

QUEUE = "main.q"
SLOTS = 4

BOOTSTRAP = """\
admin_user none
default_domain none
ignore_fqdn true
spooling_method classic
spooling_lib libspoolc
spooling_params {here}/default/common;{here}/qmaster
binary_path {programs}
qmaster_spool_dir {here}/qmaster
security_mode none
listener_threads 2
worker_threads 2
scheduler_threads 1
"""

CONFIGURATION = {"execd_spool_dir": "{here}/execd", "min_uid": "0", "min_gid": "0",
                 "load_report_time": "00:00:01", "mailer": "/bin/true"}  # fmt: skip

HOST = """\
hostname {host}
load_scaling NONE
complex_values NONE
user_lists NONE
xuser_lists NONE
projects NONE
xprojects NONE
usage_scaling NONE
report_variables NONE
"""

PARALLEL = """\
pe_name smp
slots 99
user_lists NONE
xuser_lists NONE
start_proc_args NONE
stop_proc_args NONE
allocation_rule $pe_slots
control_slaves TRUE
job_is_first_task TRUE
urgency_slots min
accounting_summary TRUE
qsort_args NONE
"""

OF_QUEUE = {"qname": QUEUE, "hostlist": "{host}", "pe_list": "smp", "slots": str(SLOTS),
            "load_thresholds": "NONE", "tmpdir": "{here}/tmp",
            "shell_start_mode": "unix_behavior"}  # fmt: skip

SCHEDULE = {"schedule_interval": "0:0:1", "flush_submit_sec": "1", "flush_finish_sec": "1",
            "job_load_adjustments": "NONE"}  # fmt: skip


def missing() -> str:
    """Return why no Grid Engine can be started here; empty if one can."""
    for program in ("sge_qmaster", "sge_execd", "qsub"):
        if not (PROGRAMS / program).exists():
            return (
                f"{PROGRAMS / program} not found; install Grid Engine with `apt-get install "
                "gridengine-master gridengine-exec gridengine-client` (or let `.ci/run` do it)"
            )
    return "" if os.geteuid() == 0 else "Grid Engine's daemons need root"


class PrivateGridEngine:
    """A qmaster and an execd with ports and directories of their own.

    Attributes:
        environment: What points Grid Engine's commands at it.
    """

    def __init__(self) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="ge", dir="/tmp"))
        master, execution = free_ports(2)
        self.environment: Mapping[str, str] = {
            "SGE_ROOT": str(self.directory),
            "SGE_CELL": "default",
            "SGE_QMASTER_PORT": str(master),
            "SGE_EXECD_PORT": str(execution),
        }
        self._host = socket.gethostname().partition(".")[0]
        self._daemons: list[subprocess.Popen[bytes]] = []

    def start(self) -> None:
        """Start the daemons; returns when jobs can run."""
        here, common = self.directory, self.directory / "default" / "common"
        for name in ("default/common", "qmaster/job_scripts", "execd", "tmp", "bin", "utilbin"):
            (here / name).mkdir(parents=True)
        architecture = self.run(str(SHARED / "util" / "arch")).strip()
        for name in ("bin", "utilbin"):
            (here / name / architecture).symlink_to(PROGRAMS)
        (here / "util").symlink_to(SHARED / "util")
        (common / "bootstrap").write_text(BOOTSTRAP.format(here=here, programs=PROGRAMS))
        (common / "act_qmaster").write_text(f"{self._host}\n")
        # The host's name may be an alias of localhost.
        (common / "host_aliases").write_text(f"{self._host} localhost\n")
        spool = f"{common};{here / 'qmaster'}"
        self.run(str(PROGRAMS / "spoolinit"), "classic", "libspoolc", spool, "init")
        defaults = str(PROGRAMS / "spooldefaults")
        given = (SHARED / "default-configuration").read_text()
        resources = SHARED / "util" / "resources"
        self.run(defaults, "configuration", self._file(self._changed(given, CONFIGURATION)))
        self.run(defaults, "complexes", str(resources / "centry"))
        self.run(defaults, "usersets", str(resources / "usersets"))
        self.run(defaults, "managers", "root")
        self._start("sge_qmaster")
        wait_until(self._answers, "a qmaster that answers")
        self.run("qconf", "-Ae", self._file(HOST.format(host=self._host)))
        self.run("qconf", "-as", self._host)
        self.run("qconf", "-Ap", self._file(PARALLEL))
        self.run("qconf", "-Aq", self._file(self._changed(self.run("qconf", "-sq"), OF_QUEUE)))
        schedule = self._changed(self.run("qconf", "-ssconf"), SCHEDULE)
        self.run("qconf", "-Msconf", self._file(schedule))
        self._start("sge_execd")
        wait_until(lambda: " BIP " in (shown := self.run("qstat", "-f")) and " au" not in shown,
                   "a node that can run jobs")  # fmt: skip

    def run(self, *command: str) -> str:
        """Return the output of a command."""
        done = subprocess.run(
            command,
            env={**os.environ, **self.environment},
            capture_output=True,
            text=True,
            check=False,
            timeout=200,
        )
        assert done.returncode == 0, (command, done)
        return done.stdout

    def jobs(self) -> dict[str, str]:
        """Return the states of all jobs by their ids, such as r and qw."""
        rows = [line.split() for line in self.run("qstat", "-u", "*").splitlines()[2:]]
        return {row[0]: row[4] for row in rows}

    def clear(self) -> list[str]:
        """End all jobs; return those that there were."""
        if left := list(self.jobs()):
            self.run("qdel", "-f", *left)
        return left

    def stop(self) -> None:
        """End all daemons and all processes of jobs, and remove the directory."""
        with contextlib.suppress(Exception):
            self.clear()
        for daemon in self._daemons:
            daemon.kill()  # what they would write down is removed
            daemon.wait()
        for pid in self._processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        shutil.rmtree(self.directory, ignore_errors=True)

    def _start(self, daemon: str) -> None:
        with (self.directory / f"{daemon}.out").open("ab") as log:
            self._daemons.append(
                subprocess.Popen(
                    [PROGRAMS / daemon],
                    env={**os.environ, **self.environment, "SGE_ND": "1"},  # in the foreground
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
            )

    def _answers(self) -> bool:
        with contextlib.suppress(AssertionError):
            return bool(self.run("qconf", "-sh"))
        return False

    def _changed(self, text: str, changes: Mapping[str, str]) -> str:
        """Return a configuration with other values."""
        given = dict(line.split(maxsplit=1) for line in text.splitlines() if line[:1] not in "# ")
        values = {
            key: value.format(here=self.directory, host=self._host)
            for key, value in changes.items()
        }
        return "".join(f"{key} {value}\n" for key, value in {**given, **values}.items())

    def _file(self, text: str) -> str:
        path = self.directory / f"given-{time.monotonic_ns()}"
        path.write_text(text)
        return str(path)

    def _processes(self) -> list[int]:
        """Return the processes that this Grid Engine's jobs left, by their environment."""
        wanted, found = f"SGE_ROOT={self.directory}".encode(), []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit() and int(entry.name) != os.getpid():
                with contextlib.suppress(OSError):
                    if wanted in (entry / "environ").read_bytes().split(b"\0"):
                        found.append(int(entry.name))
        return found
