"""Ranks in plain processes on loopback, without a study: for tests of what runs inside a rank."""

from __future__ import annotations

import contextlib
import importlib
import os
import subprocess
import sys
import tempfile
from multiprocessing.connection import Client, Connection, Listener
from pathlib import Path
from typing import Any

from hptune.core.meeting import Member
from hptune.training.parallel.ranks import Ranks
from hptune.training.ports import ReservedPorts
from hptune.worker.forkserver import environment

_SECRET = b"of this test"
_KEY = b"of the pipes"


class RankFailed(Exception):
    """A rank raised, or ended without a result."""


def run_ranks(
    world_size: int,
    function: str,
    *arguments: object,
    environment: dict[str, str] | None = None,
    timeout_seconds: float = 250.0,
) -> list[Any]:
    """Call a function in one process per rank; return what each of them returned, rank 0's first.

    Each process has the environment variables of its rank when it calls the function.

    Args:
        world_size: Number of ranks.
        function: `module:name`, called with the process's `Ranks` and the arguments.
        arguments: Picklable.
        environment: Further environment variables.
        timeout_seconds: The longest time for a message of a rank; all are killed after it.

    Raises:
        RankFailed: A rank raised; with its output.
    """
    support = Path(__file__).parent
    paths = os.pathsep.join((str(support.parents[1]), str(support)))
    with Listener(("127.0.0.1", 0), authkey=_KEY) as listener, contextlib.ExitStack() as stack:
        processes = []
        for rank in range(world_size):
            output = stack.enter_context(tempfile.TemporaryFile("w+"))
            process = subprocess.Popen(
                [sys.executable, __file__, str(listener.address[1]), str(rank)],
                env={**os.environ, "PYTHONPATH": paths, **(environment or {})},
                stdout=output,
                stderr=subprocess.STDOUT,
            )
            stack.callback(process.wait)
            stack.callback(process.kill)
            processes.append((process, output))
        pipes: dict[int, Connection[Any, Any]] = {}
        members = []
        for _ in range(world_size):
            pipe: Connection[Any, Any] = listener.accept()
            member = pipe.recv()
            pipes[member.rank] = pipe
            members.append(member)
        members.sort(key=lambda each: each.rank)
        for pipe in pipes.values():
            pipe.send((function, arguments, tuple(members)))
        results = []
        for rank in range(world_size):
            try:
                if not pipes[rank].poll(timeout_seconds):
                    raise EOFError
                results.append(pipes[rank].recv())
            except EOFError:
                shown: list[str] = []
                for process, output in processes:
                    process.kill()
                    process.wait()
                    output.seek(0)
                    shown.append(f"rank {len(shown)}:\n{output.read()}")
                raise RankFailed("\n".join(shown)) from None
        return results


def _main(port: int, rank: int) -> None:
    ports = ReservedPorts("127.0.0.1")
    with Client(("127.0.0.1", port), authkey=_KEY) as pipe:
        pipe.send(Member(rank, "127.0.0.1", "here", ports.ports))
        function, arguments, members = pipe.recv()
        ranks = Ranks.connect(rank, members, ports, secret=_SECRET)
        os.environ |= environment.of_rank(ranks)
        module, _, name = function.partition(":")
        result = getattr(importlib.import_module(module), name)(ranks, *arguments)
        pipe.send(result)
        # A framework's tear-down may wait for the other ranks.
        sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    _main(int(sys.argv[1]), int(sys.argv[2]))
