"""A private Slurm with accounting, QOS and preemption, on three nodes of this machine."""

from __future__ import annotations

import os
import pwd
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))

from private_slurm import PrivateSlurm, free_ports, wait_until

REPLACED = {
    "AccountingStorageType=accounting_storage/none": """\
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=127.0.0.1
AccountingStoragePort=ACCOUNTING_PORT
AccountingStoragePass={here}/munge.socket
AccountingStorageTRES=gres/gpu
AccountingStorageEnforce=associations,limits,qos""",
    "JobAcctGatherType=jobacct_gather/none": """\
JobAcctGatherType=jobacct_gather/linux
JobAcctGatherFrequency=5""",
    "PriorityType=priority/basic": """\
PriorityType=priority/multifactor
PriorityWeightQOS=10000
PreemptType=preempt/qos
PreemptMode=REQUEUE""",
    # As elsewhere: a requeued job waits for two minutes, and a cancelled one has half a minute.
    ",cred_expire=5": "",
    "KillWait=5": "KillWait=30",
}
"""Lines of the plain Slurm's configuration, and what stands in their place."""

DATABASE_DAEMON = """\
AuthType=auth/munge
AuthInfo=socket={here}/munge.socket
DbdHost=localhost
DbdPort={accounting_port}
SlurmUser={user}
LogFile={here}/slurmdbd.log
PidFile={here}/slurmdbd.pid
StorageType=accounting_storage/mysql
StorageHost=127.0.0.1
StoragePort={database_port}
StorageUser=slurm
StoragePass=slurm
StorageLoc=slurm
"""

GRANT = """\
CREATE OR REPLACE USER slurm@'127.0.0.1' IDENTIFIED BY 'slurm';
CREATE OR REPLACE USER slurm@localhost IDENTIFIED BY 'slurm';
GRANT ALL ON slurm.* TO slurm@'127.0.0.1';
GRANT ALL ON slurm.* TO slurm@localhost;
"""

QOS = ("low", "high", "gpumin")


class AccountingSlurm(PrivateSlurm):
    """A private Slurm whose jobs of QOS `high` preempt those of `low`, the default.

    QOS `gpumin` refuses jobs without a GPU. Needs the packages slurmdbd and mariadb-server.
    """

    def __init__(self) -> None:
        super().__init__()
        self._ports = free_ports(2)

    def start(self) -> None:
        """Start all daemons, and add the account and its QOS."""
        super().start()
        wait_until(lambda: "gpu" in self.run("sacctmgr", "-n", "show", "tres"), "GPUs to account")
        self._manage("add", "qos", "low", "Priority=1", "PreemptMode=requeue")
        self._manage("add", "qos", "high", "Priority=1000", "Preempt=low")
        self._manage("add", "qos", "gpumin", "MinTRES=gres/gpu=1", "Flags=DenyOnLimit")
        allowed = ("DefaultQOS=low", f"QOS={','.join(QOS)}")
        self._manage("add", "account", "proj", *allowed)
        self._manage("add", "user", _user(), "account=proj", "DefaultAccount=proj", *allowed)

    def _configuration(self) -> str:
        text = super()._configuration()
        for before, after in REPLACED.items():
            text = text.replace(before, after)
        return text.replace("ACCOUNTING_PORT", str(self._ports[0]))

    def _before_controller(self) -> None:
        here, data, socket = self.directory, self.directory / "db", self.directory / "db.socket"
        common = ("--no-defaults", f"--datadir={data}", f"--user={_user()}")
        made = ("mariadb-install-db", *common, "--auth-root-authentication-method=normal")
        subprocess.run(made, check=True, capture_output=True)
        self._start(
            "mariadbd",
            *common,
            f"--socket={socket}",
            f"--port={self._ports[1]}",
            "--bind-address=127.0.0.1",
            f"--pid-file={here / 'db.pid'}",
            "--innodb-buffer-pool-size=64M",
        )
        client = ("mariadb", "--no-defaults", f"--socket={socket}", f"-u{_user()}", "-e", GRANT)
        wait_until(
            lambda: subprocess.run(client, capture_output=True, check=False).returncode == 0,
            "the database",
        )
        file = here / "slurmdbd.conf"
        file.write_text(
            DATABASE_DAEMON.format(
                here=here,
                user=_user(),
                accounting_port=self._ports[0],
                database_port=self._ports[1],
            )
        )
        file.chmod(0o600)
        self._start("slurmdbd", "-D")
        wait_until(self._keeps_accounts, "slurmdbd")
        self._manage("add", "cluster", "hptune")

    def _keeps_accounts(self) -> bool:
        try:
            self.run("sacctmgr", "-n", "show", "cluster")
        except subprocess.CalledProcessError:
            return False
        return True

    def _manage(self, *words: str) -> None:
        self.run("sacctmgr", "-i", *words)


def _user() -> str:
    return pwd.getpwuid(os.getuid()).pw_name
