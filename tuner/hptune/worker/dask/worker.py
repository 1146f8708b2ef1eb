"""`hptune worker`: this machine as a Dask worker that joins studies and leaves cleanly."""

from __future__ import annotations

import asyncio
import errno
import math
import os
import signal
import threading
import time
from asyncio import FIRST_COMPLETED
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import dask
from distributed import Worker

from ...core.resources import Capacity
from ...errors import StudyError
from ...security.certificates import Identity
from ...security.handshake import identity_for, why_refused
from ...text import duration, moment
from .. import devices
from ..addresses import address_of, has_ended, is_over, reach
from ..health import announce, health_folder
from ..private_folder import server_folder
from .connection_limit import limit_connections
from .dask_settings import DASK_SETTINGS, silence
from .encryption import security
from .offer import Offer, WorkerOptions
from .plugin import StudyPlugin
from .words import capacity_text

_POLL_SECONDS = 0.5
"""Seconds between two attempts to reach the scheduler."""

_REACH_SECONDS = 5.0
"""Seconds to wait for the scheduler's port."""

_OVER_SECONDS = 15.0
"""Seconds for which a scheduler file must say that no worker is needed; a master that continues the
study writes its address there some seconds after it has stopped the trials of the last one."""

_NEAR_END_SECONDS = 600.0
"""Seconds before the end of a job's walltime in which a signal is explained by it, where it is
unknown when the job is told to leave."""

_EARLY_SECONDS = 75.0
"""The same before a Slurm job's notice is due: Slurm may signal a minute earlier."""

_LATE_SECONDS = 30.0
"""How long after a Slurm job's notice is due a worker leaves that has got none.

Slurm sends none if an administrator has given the job more time. Studies start no trials on the
worker nevertheless, because it told them its end when it joined. Of other batch systems a worker
expects no notice.
"""

_LEAVES_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)
"""Signals on which a worker leaves, as on SIGHUP, but under nohup. Grid Engine and LSF announce the
end of a job by the last two."""

_OTHERS_SECONDS = 5.0
"""Seconds for other studies to ask for a worker that one has refused because of its versions."""

_SILENT = "it has not answered yet"

_START_SECONDS = 30.0
"""Seconds to wait for the scheduler to accept the worker."""

HEARTBEAT_SECONDS = 10.0
"""Least number of seconds between two heartbeats. Schedulers ask for up to two a second, which cost
them a millisecond each, and give a worker up after minutes without one."""


def join(
    options: WorkerOptions, offer: Offer, *, say: Callable[[str], None], is_quiet: bool = False
) -> None:
    """Work for the studies of the scheduler until a signal, or the end of the job's walltime.

    Then the attempts on this worker write checkpoints and are released, to continue elsewhere. A
    second signal ends them at once. While there is no scheduler, the worker waits for one.

    Args:
        options: The scheduler, and how to reach it.
        offer: The resources.
        say: Called with each line of output, from any thread.
        is_quiet: Whether to print no lines about studies and their trials.

    Raises:
        StudyError: No scheduler answered in time, it refuses the certificate, or no study can use
            this worker because of its installed versions.
    """
    silence()
    devices.set_walltime(options.walltime_seconds)
    with (
        dask.config.set(DASK_SETTINGS),
        server_folder(options.local_directory) as scratch,
        health_folder() as health,
    ):
        asyncio.run(_Joining(options, offer, say, scratch, health, is_quiet=is_quiet).run())


class _Worker(Worker):
    """A Dask worker with the attributes that `StudyPlugin` uses.

    Attributes:
        granted: The resources that studies may use.
        study_plugins: The plugins of the studies that use this worker.
        say: Called with each line of output, from any thread.
        is_closing: Set when the worker closes, for whatever reason.
        is_useless: Set when no study can use the worker.
    """

    def __init__(
        self, *arguments: Any, granted: Capacity, say: Callable[[str], None], **options: Any
    ) -> None:
        super().__init__(*arguments, **options)
        self.granted = granted
        self.say = say
        self.study_plugins: list[StudyPlugin] = []
        self.is_closing = asyncio.Event()
        self.is_useless = asyncio.Event()

    async def heartbeat(self) -> None:
        """Send the scheduler a heartbeat; the next one follows after `HEARTBEAT_SECONDS` or more.

        A lost worker or scheduler is noticed by its connection, which does not need heartbeats.
        """
        await super().heartbeat()
        timer = self.periodic_callbacks["heartbeat"]
        timer.callback_time = max(timer.callback_time, 1000 * HEARTBEAT_SECONDS)

    async def close(self, *arguments: Any, **options: Any) -> Any:
        """Close; called also by Dask when the scheduler is gone."""
        self.is_closing.set()
        return await super().close(*arguments, **options)

    def was_refused(self, *, is_of_versions: bool) -> None:
        """Note that a study refused this worker; called by its plugin."""
        if is_of_versions:
            self.loop.call_later(_OTHERS_SECONDS, self._look_for_studies)

    def _look_for_studies(self) -> None:
        # Not if one still joins: its files may be on their way.
        if all(plugin.announcement and not plugin.is_accepted for plugin in self.study_plugins):
            self.is_useless.set()


class _Joining:
    def __init__(
        self,
        options: WorkerOptions,
        offer: Offer,
        say: Callable[[str], None],
        scratch: Path,
        health: Path,
        *,
        is_quiet: bool,
    ) -> None:
        self._options = options
        self._offer = offer
        self._scratch, self._health = scratch, health
        self._say = say
        self._say_of_trials = (lambda _: None) if is_quiet else say
        self._is_joined = False
        self._joined_lock = threading.Lock()
        self._refusal = ""
        self._unreached = self._told = ""
        self._why = ""
        self._is_signalled = False
        self._leave = asyncio.Event()

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        closes = () if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN else (signal.SIGHUP,)
        for each in (*_LEAVES_ON, *closes):
            loop.add_signal_handler(each, self._on_signal, each)
        if (leaves_at := devices.leaves_at()) is not None:
            late = _LATE_SECONDS if devices.is_slurm_job() else 0.0
            loop.call_later(leaves_at - time.time() + late, self._on_time_up)
        if self._offer.note:
            self._say(self._offer.note)
        while (worker := await self._joined()) is not None:
            self._say_joined(worker.scheduler.address)
            await _first(self._leave.wait(), worker.is_closing.wait(), worker.is_useless.wait())
            if worker.is_useless.is_set():
                await worker.close()
                raise StudyError("no study here can use this worker; the reason is above.")
            announce(self._health, None)
            await self._left(worker)
            self._is_joined = False
        self._say("left")

    def _say_joined(self, address: str) -> None:
        with self._joined_lock:  # no line of a trial, which another thread says, comes before it
            if not self._is_joined:
                until = devices.leaves_at()
                leaves = "" if until is None else f"; leaves at {moment(until)}"
                self._say(f"joined {address} with {capacity_text(self._offer.capacity)}{leaves}")
                self._is_joined = True

    async def _left(self, worker: _Worker) -> None:
        if not self._leave.is_set():
            self._say("the scheduler is gone")
            await _first(self._leave.wait(), worker.finished())  # type: ignore[no-untyped-call]
        if self._leave.is_set():
            self._say(f"{self._why}: trials here are released, to run elsewhere")
            await asyncio.gather(
                *(
                    asyncio.to_thread(plugin.attempts.release, self._why)
                    for plugin in worker.study_plugins
                )
            )
        await worker.close()

    def _on_signal(self, number: int) -> None:
        if number != signal.SIGHUP:  # which comes twice when a terminal is closed
            if self._is_signalled:
                # The attempts notice, and end too.
                os._exit(130)
            self._is_signalled = True
        if not self._leave.is_set():
            self._why = _signal_text(number, _seconds_to_near_end())
            self._leave.set()

    def _on_time_up(self) -> None:
        """Leave without a signal: no study starts a trial here any more."""
        if not self._leave.is_set():
            self._why = "the end of the job's walltime, as it was when the job began"
            self._leave.set()

    async def _joined(self) -> _Worker | None:
        """Return a worker that a scheduler accepted; None on a signal before that."""
        seconds = self._options.death_timeout_seconds
        needed_at = time.monotonic()
        deadline, self._told = needed_at + (math.inf if seconds is None else seconds), ""
        while not self._leave.is_set():
            if not is_over(self._options.scheduler):
                needed_at = time.monotonic()
            elif has_ended(self._options.scheduler) or time.monotonic() - needed_at > _OVER_SECONDS:
                self._say("no study needs this worker now")
                return None
            address = address_of(self._options.scheduler)
            if address and (worker := await self._answered(address, deadline)):
                return worker
            if self._leave.is_set():
                break
            self._say_waiting(address)
            if time.monotonic() > deadline:
                raise StudyError(self._refusal or self._late_text(address, seconds or 0.0))
            await _first(self._leave.wait(), asyncio.sleep(_POLL_SECONDS))
        return None

    async def _answered(self, address: str, deadline: float) -> _Worker | None:
        """Return a worker that the scheduler accepted; None if it has not, or on a signal."""
        starting = asyncio.ensure_future(self._started(address))
        leaving = asyncio.ensure_future(self._leave.wait())
        either = {starting, leaving}
        await asyncio.wait(either, timeout=_REACH_SECONDS, return_when=FIRST_COMPLETED)
        if not starting.done() and not leaving.done():
            self._unreached = _SILENT
            self._say_waiting(address)
            left = max(0.0, deadline - time.monotonic())
            await asyncio.wait(either, timeout=left, return_when=FIRST_COMPLETED)
        leaving.cancel()
        starting.cancel()
        await asyncio.wait({starting})
        return None if starting.cancelled() else starting.result()

    def _say_waiting(self, address: str) -> None:
        if (waiting := self._waiting_text(address)) != self._told:
            self._say(waiting)
            self._told = waiting

    def _waiting_text(self, address: str) -> str:
        scheduler = self._options.scheduler
        if not address:
            there = "" if Path(scheduler).exists() else ", which this machine does not see"
            return f"waiting for a scheduler at {scheduler}{there}"
        which = address if address == scheduler else f"{address} (by {scheduler})"
        why = f": {self._unreached}" if self._unreached else ""
        return f"waiting for a scheduler at {which}{why}"

    def _late_text(self, address: str, seconds: float) -> str:
        """Return the error of a worker that no scheduler has accepted in time."""
        scheduler = self._options.scheduler
        if self._unreached not in ("", os.strerror(errno.ECONNREFUSED)):
            return (
                f"{address} cannot be reached from this machine ({self._unreached}); {seconds:g} s "
                "have passed. Check the network between the machines, and its firewall; in a "
                "slurm.toml, `interface` names the network."
            )
        of_study = "" if "://" in scheduler else ", or continue the study with `hptune resume DIR`"
        return (
            f"no scheduler answered at {scheduler} within {seconds:g} s. Start one with "
            f"`hptune scheduler`{of_study}."
        )

    async def _started(self, address: str) -> _Worker | None:
        self._unreached = ""
        try:
            # Not on all networks: only the scheduler and its other workers connect to a worker.
            host = await asyncio.to_thread(reach, address, timeout_seconds=_REACH_SECONDS)
            identity = await asyncio.to_thread(self._identity, address)
        except OSError as error:
            self._unreached = str(error.strerror or error)
            return None
        except StudyError as error:
            self._refused(error.message)
            return None

        def say_of_study(line: str) -> None:
            # A study may have asked for the worker before Dask returns it.
            self._say_joined(address)
            self._say_of_trials(line)

        worker = _Worker(
            address,
            security=security(identity),
            granted=self._offer.capacity,
            say=say_of_study,
            nthreads=len(self._offer.capacity.cpus),
            name=self._options.name or None,
            host=None if self._options.interface else host,
            interface=self._options.interface,
            local_directory=str(self._scratch),
            # Trials are separate processes, which Dask's limit does not cover.
            memory_limit=0,
            dashboard_address="127.0.0.1:0",
            death_timeout=_START_SECONDS,
        )
        try:
            await worker
        except asyncio.CancelledError:
            await worker.close()
            raise
        except (OSError, RuntimeError, ValueError) as error:
            cause = error.__cause__ or error
            if isinstance(error, OSError) or isinstance(cause, OSError):
                return None
            if "name taken" in str(cause):  # by this one, say, before it lost its connection
                name = self._options.name
                self._unreached = self._refusal = f"it has another worker called {name!r}"
                return None
            raise StudyError(f"the scheduler at {address} takes no such worker: {cause}") from error
        limit_connections(worker)
        announce(self._health, worker.http_server.port)  # type: ignore[attr-defined]  # Dask's
        return worker

    def _identity(self, address: str) -> Identity | None:
        """Return the certificate that the scheduler accepts; None for no encryption.

        Raises:
            StudyError: It refuses the certificate, or there is none.
        """
        identity = identity_for(address, certs=self._options.certs, insecure=self._options.insecure)
        if why := why_refused(address, identity, timeout_seconds=_REACH_SECONDS):
            raise StudyError(f"no connection to the scheduler at {address}: {why}.")
        return identity

    def _refused(self, why: str) -> None:
        """Report once why a scheduler refuses this worker.

        A worker that reads a scheduler file waits: the next scheduler may write another address.

        Raises:
            StudyError: There will be no other scheduler.
        """
        if "://" in self._options.scheduler:
            raise StudyError(why)
        if why != self._refusal:
            self._refusal = why
            self._say(why)


async def _first(*awaited: Awaitable[object]) -> None:
    """Wait for the first of these, and cancel the others."""
    tasks = [asyncio.ensure_future(each) for each in awaited]
    try:
        await asyncio.wait(tasks, return_when=FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()


def _seconds_to_near_end() -> float | None:
    """Return how long the job may still run; None if that does not explain a signal."""
    ends_at, leaves_at = devices.ends_at(), devices.leaves_at()
    if ends_at is None or leaves_at is None:
        return None
    early = _EARLY_SECONDS if leaves_at < ends_at else _NEAR_END_SECONDS
    now = time.time()
    return ends_at - now if now > leaves_at - early else None


def _signal_text(number: int, seconds_left: float | None) -> str:
    """Return a signal's name for the user, with the end of the job's time if that is near.

    >>> _signal_text(signal.SIGTERM, 118.2), _signal_text(signal.SIGINT, None)
    ("SIGTERM, 1m58s before the end of the job's walltime", 'Ctrl-C')

    Args:
        number: The signal.
        seconds_left: How long the job may still run; None if that is not near.
    """
    name = "Ctrl-C" if number == signal.SIGINT else signal.Signals(number).name
    if number == signal.SIGINT or seconds_left is None:
        return name
    return f"{name}, {duration(max(0.0, seconds_left))} before the end of the job's walltime"
