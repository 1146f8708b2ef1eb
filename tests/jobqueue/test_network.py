"""The network on which the scheduler listens if none is specified."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import psutil
import pytest

from commands import Commands
from hptune_jobqueue.cluster import ClusterOrder, SlurmCluster, check
from hptune_jobqueue.config import parse_config
from hptune_jobqueue.errors import JobQueueError
from hptune_jobqueue.scheduler import address_towards


class Probe(socket.socket):
    """Socket of a machine with two networks, 10.1 and 10.2."""

    def connect(self, address: object) -> None:
        assert isinstance(address, tuple)
        self._node = str(address[0])
        if self._node == "unknown":
            raise OSError("Name or service not known")

    def getsockname(self) -> tuple[str, int]:
        network = self._node.rpartition(".")[0]
        return (f"{network}.100" if network != "127.0.0" else "127.0.0.1", 5000)


def test_it_is_the_one_to_the_nodes_of_the_studys_partitions(
    commands: Commands, tmp_path: Path
) -> None:
    """Of another partition's nodes, which may be in another network, none is asked for."""
    asked = commands.folder / "asked"
    line = "gpu|up|infinite|8|64000|(null)|3|idle"
    commands.make("sinfo", f'echo "$@" >> {asked}; echo "{line}"')
    commands.make("sbatch", "cat > /dev/null; echo 7")
    order = ClusterOrder(
        config=parse_config('partition = "gpu"\nwalltime = "01:00:00"'),
        name="hptune-a",
        directory=tmp_path,
        module="worker",
        max_jobs=1,
    )
    SlurmCluster(order, check(order), notify=print).close()
    assert "--partition=gpu" in asked.read_text().splitlines()[-1]


def test_nobody_listens_for_a_cluster_that_cannot_be_opened(
    commands: Commands, tmp_path: Path
) -> None:
    """As on a full disk, on which an earlier master's jobs wait for this one's address."""
    commands.make("sinfo", 'echo "gpu|up|infinite|8|64000|(null)|3|idle"')
    commands.make("sbatch", "cat > /dev/null; echo 7")
    order = ClusterOrder(
        config=parse_config('partition = "gpu"\nwalltime = "01:00:00"'),
        name="hptune-a",
        directory=tmp_path,
        module="worker",
        max_jobs=1,
    )
    (tmp_path / "scheduler.json").touch()
    (tmp_path / f"scheduler.{os.getpid()}").mkdir()

    def ports() -> set[int]:
        connections = psutil.Process().net_connections(kind="tcp")
        return {each.laddr.port for each in connections if each.status == psutil.CONN_LISTEN}

    before = ports()
    with pytest.raises(JobQueueError, match="cannot be written"):
        SlurmCluster(order, check(order), notify=print)
    assert ports() <= before


@pytest.mark.parametrize(
    ("nodes", "way"),
    [
        (["10.1.0.1", "10.1.0.2"], "10.1.0.100"),
        (["10.1.0.1", "127.0.0.1", "unknown"], "10.1.0.100"),
        (["10.1.0.1", "10.2.0.1"], None),
        (["127.0.0.1"], None),
        (["unknown"], None),
        ([], None),
        ([f"10.1.0.{i}" for i in range(250)], "10.1.0.100"),
    ],
)
def test_it_is_the_one_that_leads_to_all_nodes(
    monkeypatch: pytest.MonkeyPatch, nodes: list[str], way: str | None
) -> None:
    monkeypatch.setattr(socket, "socket", Probe)
    assert address_towards(nodes) == way
