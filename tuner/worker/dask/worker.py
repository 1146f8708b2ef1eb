"""`hptune worker`: this machine as a Dask worker that joins studies, and leaves in good order."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Any

from distributed import Worker

from ...config.kinds import is_scheduler_address
from ...core.resources import Capacity
from ...errors import StudyError, UsageError
from .. import device_locks, devices
from ..addresses import address_of, refusal
from .plugin import StudyPlugin

_POLL_SECONDS = 0.5
_REACH_SECONDS = 5.0
_START_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Offer:
    """What this worker gives, and to whom.

    Attributes:
        meeting: The scheduler's address, or the path of a file that has it.
        capacity: Cores, GPUs and memory.
        name: What Dask is to call it; empty for its address.
        death_timeout_seconds: Leave when no scheduler answered for so long; None for never.
        interface: The network interface to use; None for the one that leads out.
        local_directory: Where Dask puts its files; None for where it likes.
        note: What the user should know of it; empty if there is nothing.
    """

    meeting: str
    capacity: Capacity
    name: str = ""
    death_timeout_seconds: float | None = None
    interface: str | None = None
    local_directory: str | None = None
    note: str = ""


def offered(
    meeting: str,
    *,
    cpus: int | None,
    gpus: int | None,
    memory_bytes: int | None,
    name: str = "",
    death_timeout_seconds: float | None = None,
    interface: str | None = None,
    local_directory: str | None = None,
    granted: tuple[int | None, int | None] = (None, None),
) -> Offer:
    """An offer of what this machine grants, or of a part of it.

    Args:
        meeting: The scheduler's address, or the path of a file that has it.
        cpus: How many cores to give; None for all.
        gpus: How many GPUs to give; None for all.
        memory_bytes: Memory to give, 0 to count none; None for as large a part as of the cores.
        name: As `Offer` has it, like all that follows.
        death_timeout_seconds: As above.
        interface: As above.
        local_directory: As above.
        granted: The cores and the memory in bytes that a batch system granted, where it does not
            keep its jobs to them by itself: no more is taken for there.

    Raises:
        UsageError: More is offered than there is, or there can be no scheduler there.
    """
    if not is_scheduler_address(meeting):
        raise UsageError(
            f"the scheduler is {meeting!r}; allowed are an address such as tcp://node1:8786, as "
            "`hptune scheduler` prints it, and the path of its scheduler file (.json)"
        )
    machine = devices.capacity()
    has = _within(machine, *granted)
    for what, asked, there in (("cores", cpus, has.cpus), ("GPUs", gpus, has.gpus)):
        if asked is not None and asked > len(there):
            raise UsageError(
                f"{asked} {what} are offered, but this process may use {len(there)}; offer at "
                "most as many"
            )
    part = 1.0 if cpus is None else cpus / len(has.cpus)
    memory = int(part * has.memory_bytes) if memory_bytes is None else memory_bytes
    if has.memory_bytes and memory > has.memory_bytes:
        raise UsageError(
            f"{memory / 1e9:.3g} GB of memory are offered, but this process may use "
            f"{has.memory_bytes / 1e9:.3g} GB; offer at most as much"
        )
    if cpus == 0:
        raise UsageError("0 cores are offered; offer at least 1")
    most = len(has.gpus) if gpus is None else gpus
    free = device_locks.lock_gpus(has.gpus, most)
    if gpus is not None and len(free) < gpus:
        raise UsageError(
            f"{gpus} GPUs are offered, but other workers on this machine offer all but "
            f"{len(free)} of its {len(has.gpus)}; offer at most as many, or end one of them"
        )
    capacity = replace(_within(has, cpus, memory), gpus=free)
    note = _note_on(capacity, machine)
    return Offer(meeting, capacity, name, death_timeout_seconds, interface, local_directory, note)


def _note_on(given: Capacity, machine: Capacity) -> str:
    """That others give all of this machine, too, where this is all of it; else nothing."""
    gives_all = (given.cpus, given.memory_bytes) == (machine.cpus, machine.memory_bytes)
    if not gives_all or device_locks.lock_core_set(machine.cpus):
        return ""
    return (
        "another worker or study of yours has all cores and all memory of this machine, too, "
        "which may run out: start each worker with its part (--cpus, --memory)"
    )


def _within(has: Capacity, cores: int | None, memory_bytes: int | None) -> Capacity:
    memory = has.memory_bytes if memory_bytes is None else min(has.memory_bytes, memory_bytes)
    # What others hold is taken from what is not offered first.
    taken = max(0, has.memory_taken_bytes - (has.memory_bytes - memory))
    return replace(has, cpus=has.cpus[:cores], memory_bytes=memory, memory_taken_bytes=taken)


def join(offer: Offer, *, say: Callable[[str], None], is_quiet: bool = False) -> None:
    """Work for the studies that use the scheduler, until SIGINT or SIGTERM.

    Then the attempts that run here write checkpoints and are released, to go on elsewhere; a
    second signal ends all at once. A scheduler that is not there, or not there any more, is
    waited for.

    Args:
        offer: What to give, and to whom.
        say: Is told what happens, in lines; may be called from any thread.
        is_quiet: Whether nothing is told of studies and their trials.

    Raises:
        StudyError: No scheduler came in time, or no study can use this worker because of what is
            installed here.
    """
    logging.getLogger("distributed").setLevel(logging.CRITICAL + 1)
    asyncio.run(_Joining(offer, say, is_quiet=is_quiet).run())


class _Worker(Worker):
    """Dask's worker, which tells its study_plugins what it grants, and hears from them.

    Attributes:
        granted: What studies may use.
        study_plugins: Those of the studies that came to it.
        say: Is told what happens, in lines; may be called from any thread.
        is_closing: Set when it closes, whoever wanted that.
        is_of_no_use: Set when no study can use it.
    """

    def __init__(
        self, *arguments: Any, granted: Capacity, say: Callable[[str], None], **options: Any
    ) -> None:
        super().__init__(*arguments, **options)
        self.granted = granted
        self.say = say
        self.study_plugins: list[StudyPlugin] = []
        self.is_closing = asyncio.Event()
        self.is_of_no_use = asyncio.Event()

    async def close(self, *arguments: Any, **options: Any) -> Any:
        """As Dask has it; called by Dask when the scheduler is gone."""
        self.is_closing.set()
        return await super().close(*arguments, **options)

    def was_refused(self, *, is_of_versions: bool) -> None:
        """A study refused this worker."""
        if is_of_versions:
            self.loop.call_later(1.0, self._look_for_studies)

    def _look_for_studies(self) -> None:
        if not any(plugin.is_accepted for plugin in self.study_plugins):
            self.is_of_no_use.set()


class _Joining:
    def __init__(self, offer: Offer, say: Callable[[str], None], *, is_quiet: bool) -> None:
        self._offer = offer
        self._say = say
        self._tell_of_trials = _nothing if is_quiet else say
        self._signal = ""
        self._leave = asyncio.Event()

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        for each in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(each, self._on_signal, each)
        if self._offer.note:
            self._say(self._offer.note)
        while (worker := await self._joined()) is not None:
            self._say(f"joined {worker.scheduler.address} with {_words(self._offer.capacity)}")
            await _first(self._leave.wait(), worker.is_closing.wait(), worker.is_of_no_use.wait())
            if worker.is_of_no_use.is_set():
                await worker.close()
                raise StudyError("no study here can use this worker; the reason is above.")
            await self._left(worker)
        self._say("left")

    async def _left(self, worker: _Worker) -> None:
        if not self._leave.is_set():
            self._say("the scheduler is gone; waiting for one to come back")
            finished: Awaitable[object] = worker.finished()  # type: ignore[no-untyped-call]  # Dask's
            await _first(self._leave.wait(), finished)
        if self._leave.is_set():
            self._say(f"{self._signal}: what runs here is released, to go on elsewhere")
            await asyncio.gather(
                *(
                    asyncio.to_thread(plugin.release, self._signal)
                    for plugin in worker.study_plugins
                )
            )
        await worker.close()

    def _on_signal(self, number: int) -> None:
        if self._leave.is_set():
            # What runs here notices, and ends too.
            os._exit(130)
        self._signal = "Ctrl-C" if number == signal.SIGINT else signal.Signals(number).name
        self._leave.set()

    async def _joined(self) -> _Worker | None:
        """A worker that a scheduler knows; None when it is to leave before there is one."""
        seconds = self._offer.death_timeout_seconds
        deadline = None if seconds is None else time.monotonic() + seconds
        is_told = False
        while not self._leave.is_set():
            address = address_of(self._offer.meeting)
            if address and (worker := await self._started(address)):
                return worker
            if deadline is not None and time.monotonic() > deadline:
                raise StudyError(
                    f"no scheduler answered at {self._offer.meeting} within {seconds:g} s. "
                    "Start one with `hptune scheduler`."
                )
            if not is_told:
                self._say(f"waiting for a scheduler at {self._offer.meeting}")
                is_told = True
            await _first(self._leave.wait(), asyncio.sleep(_POLL_SECONDS))
        return None

    async def _started(self, address: str) -> _Worker | None:
        if await asyncio.to_thread(refusal, address, timeout_seconds=_REACH_SECONDS):
            return None
        worker = _Worker(
            address,
            granted=self._offer.capacity,
            say=self._tell_of_trials,
            nthreads=len(self._offer.capacity.cpus),
            name=self._offer.name or None,
            interface=self._offer.interface,
            local_directory=self._offer.local_directory,
            # Trials are processes of their own, which Dask's limit does not see.
            memory_limit=0,
            dashboard_address="127.0.0.1:0",
            death_timeout=_START_SECONDS,
        )
        try:
            await worker
        except (OSError, TimeoutError):
            return None
        except (RuntimeError, ValueError) as error:
            cause = error.__cause__ or error
            if isinstance(cause, OSError | TimeoutError):
                return None
            raise StudyError(f"the scheduler at {address} takes no such worker: {cause}") from error
        return worker


async def _first(*awaited: Awaitable[object]) -> None:
    """Wait for any of them; the others are cancelled."""
    tasks = [asyncio.ensure_future(each) for each in awaited]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()


def _nothing(line: str) -> None:
    del line


def _words(capacity: Capacity) -> str:
    cores = len(capacity.cpus)
    parts = [f"{cores} core" + ("s" if cores > 1 else "")]
    if capacity.gpus:
        parts.append(f"{len(capacity.gpus)} GPUs ({', '.join(capacity.gpus)})")
    parts.append(f"{capacity.memory_bytes / 1e9:.3g} GB of memory")
    return ", ".join(parts)
