"""The collective calls of the ranks of a parallel trial."""

from __future__ import annotations

import json
import os
import socket
import threading
from typing import Any

import pytest

from hptune.core.attempt import Halt
from hptune.core.meeting import Member
from hptune.training.parallel import ranks as ranks_module
from hptune.training.parallel.ranks import RankLost, Ranks, RanksOutOfStep
from hptune.training.ports import ReservedPorts
from hptune.worker.forkserver import environment
from rank_processes import RankFailed, run_ranks
from rank_threads import HERE, together


def test_collective_calls_give_all_ranks_the_same() -> None:
    def call(ranks: Ranks) -> Any:
        own = str(ranks.rank).encode()
        return (
            ranks.gather(own * (ranks.rank * 100_000)),
            ranks.broadcast(own),
        )

    gathered = [b"", b"1" * 100_000, b"2" * 200_000]
    assert together(3, call) == [(gathered, b"0")] * 3


@pytest.mark.parametrize("stop_at", [1, 7, 200])
def test_all_ranks_stop_at_the_same_step(stop_at: int) -> None:
    def call(ranks: Ranks) -> tuple[int, Halt | None]:
        for step in range(1, 100_000):
            told = Halt.PRUNE if ranks.rank == 0 and step >= stop_at else None
            if halt := ranks.agree(told):
                assert ranks.agree(None) is halt  # it stays so
                return step, halt
        return 0, None

    first, *others = together(3, call)
    assert first[0] >= stop_at
    assert first[1] is Halt.PRUNE
    assert others == [first, first]


def test_only_the_order_to_rank_0_counts() -> None:
    def call(ranks: Ranks) -> Any:
        return [ranks.agree(Halt.RELEASE if ranks.rank else None) for _ in range(20)]

    assert together(2, call) == [[None] * 20] * 2


def test_ranks_know_their_places_and_the_frameworks_their_variables() -> None:
    def call(ranks: Ranks) -> Any:
        place = (ranks.local_rank, ranks.local_world_size, ranks.node_rank)
        return place, ranks.address, environment.of_rank(ranks)

    found = together(4, call, nodes=2)
    assert [place for place, _, _ in found] == [(0, 2, 0), (1, 2, 0), (0, 2, 1), (1, 2, 1)]
    assert len({address for _, address, _ in found}) == 1
    host, _, port = found[0][1].partition(":")
    for rank, (_, address, given) in enumerate(found):
        assert (given["MASTER_ADDR"], given["MASTER_PORT"]) == (host, port)
        assert (given["RANK"], given["WORLD_SIZE"]) == (str(rank), "4")
        assert (given["LOCAL_RANK"], given["NODE_RANK"]) == (str(rank % 2), str(rank // 2))
        assert given["JAX_COORDINATOR_ADDRESS"] == address
        config = json.loads(given["TF_CONFIG"])
        assert config["task"] == {"type": "worker", "index": rank}
        assert config["cluster"]["worker"][0] == address


def test_a_rank_that_is_gone_is_an_error_of_the_others() -> None:
    def call(ranks: Ranks) -> None:
        if ranks.rank == 0:
            ranks.gather(b"")

    lost, _ = together(2, call)
    assert isinstance(lost, RankLost)
    assert str(lost) == "rank 1 of this trial is gone"


@pytest.mark.parametrize("halt", [None, Halt.PRUNE])
def test_rank_0_may_ask_alone_however_often(monkeypatch: pytest.MonkeyPatch, halt: Halt) -> None:
    monkeypatch.setattr(ranks_module, "_AGREE_SECONDS", 0.0)  # a message for each call

    def call(ranks: Ranks) -> Halt | None:
        asked = None
        if ranks.rank:
            ranks._peers[0]._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            asked_all.wait(60)
        else:
            ranks._peers[0]._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
            for step in range(20_000):
                asked = ranks.agree(halt if step == 19_999 else None)
            asked_all.set()
        ranks.finish()
        return asked

    asked_all = threading.Event()

    assert together(2, call) == [halt, None]


def test_a_rank_that_has_asked_must_ask_on() -> None:
    def call(ranks: Ranks) -> None:
        for _ in range(1 if ranks.rank else 1_000):
            ranks.agree(None)
        ranks.finish()

    _, error = together(2, call)
    assert isinstance(error, RanksOutOfStep)
    assert "rank 1 had finished its training when rank 0 asked whether to stop" in str(error)


def test_a_rank_that_ends_before_rank_0_leaves_no_result() -> None:
    def call(ranks: Ranks) -> None:
        if ranks.rank:
            ranks.close()
            ended.set()
            return
        ended.wait()
        ranks.finish()

    ended = threading.Event()
    lost, _ = together(2, call)
    assert isinstance(lost, RankLost)


def test_different_calls_are_an_error_that_says_so() -> None:
    def call(ranks: Ranks) -> object:
        return ranks.agree(None) if ranks.rank else ranks.broadcast(b"x")

    _, error = together(2, call)
    assert isinstance(error, RanksOutOfStep)
    assert "call should_stop at the same points" in str(error)


def test_a_stranger_is_refused_and_delays_nobody() -> None:
    ports = [ReservedPorts(HERE) for _ in range(2)]
    members = [Member(i, HERE, "node", each.ports) for i, each in enumerate(ports)]
    found: list[Ranks] = []
    first = threading.Thread(
        target=lambda: found.append(Ranks.connect(0, members, ports[0], secret=b"right"))
    )
    first.start()
    strange = ReservedPorts(HERE)
    with pytest.raises(RankLost):
        Ranks.connect(1, members, strange, secret=b"wrong")
    strange.close()
    second = Ranks.connect(1, members, ports[1], secret=b"right")
    first.join()
    assert found[0].world_size == 2
    for ranks in (found[0], second):
        ranks.close()


def test_a_rank_that_never_connects_is_named() -> None:
    ports = ReservedPorts(HERE)
    members = [Member(i, HERE, "node", ports.ports) for i in range(2)]
    with pytest.raises(RankLost, match=r"rank 1 of this trial did not connect .* within 0.3 s"):
        Ranks.connect(0, members, ports, secret=b"s", timeout_seconds=0.3)
    ports.close()


def _in_a_process(ranks: Ranks, text: str) -> tuple[str, str | None]:
    return f"{text} {ranks.gather(b'x')}", os.environ.get("RANK")


def _failing(ranks: Ranks) -> None:
    if ranks.rank:
        raise ValueError("on purpose")
    ranks.gather(b"")


def test_ranks_in_processes() -> None:
    found = run_ranks(2, f"{__name__}:_in_a_process", "got")
    assert found == [("got [b'x', b'x']", "0"), ("got [b'x', b'x']", "1")]
    with pytest.raises(RankFailed, match="on purpose"):
        run_ranks(2, f"{__name__}:_failing")
