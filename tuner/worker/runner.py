"""Runs attempts in children of a warm parent, and tells what becomes of them."""

from __future__ import annotations

import contextlib
import logging
import signal
import threading
import time
from collections.abc import Callable
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from ..config.model_file import ObjectiveSource
from ..core.messages import AttemptEnded, AttemptStarted, Event, Measured, Reported
from ..core.trial import AttemptId, Cause, Ending, Halt, Usage
from ..errors import StudyError
from ..storage.attempt_journal import HEARTBEAT_SECONDS, AttemptJournal
from ..storage.lease import STALE_SECONDS
from .attempt import AttemptProcess, EarlyStops
from .forkserver.client import Client, ForkServer
from .monitoring.gpu import GpuUsage
from .monitoring.master_liveness import Master, MasterLiveness
from .monitoring.usage import Meter
from .monitoring.watchdog import MemoryWatchdog, Watchdog, ending_grace
from .orders import AttemptOrder

logger = logging.getLogger(__name__)

GRACE_SECONDS = 10.0
"""An attempt that was told to stop and has not done so by then is killed."""

LOOK_SECONDS = 1.0
"""How often attempts are looked at; how thoroughly, their `Watchdog` decides."""

_POLL_SECONDS = 0.2


class AttemptRunner:
    """One worker's attempts.

    All methods may be called from any thread. Events go to `listener`, from a thread of the
    runner's own, stamped with time 0: who receives them knows the time.

    Args:
        source: The user's code.
        listener: Takes each event; must not raise.
        warm_address: Address of a warm parent that is there already; where it is None, or nobody
            answers there, the runner starts one of its own.
    """

    def __init__(
        self,
        source: ObjectiveSource,
        listener: Callable[[Event], None],
        *,
        warm_address: str | None = None,
    ) -> None:
        self._source = source
        self._listener = listener
        self._warm_address = warm_address
        self._own_parent: ForkServer | None = None
        self._client: Client | None = None
        self._lost: list[Client] = []
        self._runs: dict[AttemptId, AttemptProcess] = {}
        self._starting: set[AttemptId] = set()
        self._connecting = threading.Lock()
        self._stopped_early = EarlyStops()
        self._lock = threading.RLock()
        self._wake_reader, self._wake_writer = _pipe()
        self._closing = False
        self._gpu_usage = GpuUsage()
        self._thread = threading.Thread(target=self._watch, name="hptune-attempts", daemon=True)
        self._thread.start()
        self._look_now = threading.Event()
        self._memory = MemoryWatchdog()
        self._master: MasterLiveness | None = None
        self._touch_from = 0.0
        self._looker = threading.Thread(target=self._look, name="hptune-usage", daemon=True)
        self._looker.start()

    def start(self, order: AttemptOrder) -> None:
        """Start an attempt; whatever becomes of it, `AttemptEnded` follows exactly once."""
        with self._lock:
            if self._closing:
                # Nobody would watch it, and its devices are given to others.
                ending = Ending(Cause.RELEASED, reason="its worker has ended")
                self._listener(AttemptEnded(0.0, order.attempt, ending))
                return
            if halt := self._stopped_early.take(order.attempt):
                self._end_unstarted(order.attempt, halt)
                return
            self._starting.add(order.attempt)
        try:
            # This may take as long as a framework needs; who is told to stop does not wait for it.
            client = self._connected()
            with self._lock:
                if order.attempt not in self._starting:
                    return
                channel = client.fork(order.attempt, order)
                timeout = order.brief.trial_timeout_seconds
                timeout_at = None if timeout is None else time.monotonic() + timeout
                run = self._runs[order.attempt] = AttemptProcess(order, channel, client, timeout_at)
                if order.brief.master_grace_seconds:
                    run.spool = AttemptJournal(order.directory, order.attempt)
                    if self._master is None:
                        study = Path(order.brief.directory)
                        self._master = MasterLiveness(study, order.brief.master)
                self._starting.discard(order.attempt)
        except (OSError, StudyError) as error:
            self._lose_parent(self._client)
            with self._lock:
                if order.attempt not in self._starting:
                    return
                self._starting.discard(order.attempt)
            reason = f"no process could be started for it: {error}"
            ending = Ending(Cause.WORKER_LOST, reason=reason)
            self._listener(AttemptEnded(0.0, order.attempt, ending))
        self._wake()

    def stop(self, attempt: AttemptId, halt: Halt = Halt.LET_GO) -> None:
        """Tell an attempt to stop; after a grace time it is killed, unless it may end its epoch.

        Over already: no matter.
        """
        with self._lock:
            run = self._runs.get(attempt)
            if run is not None:
                self._stop(run, halt)
            elif attempt in self._starting:
                self._starting.discard(attempt)
                self._end_unstarted(attempt, halt)
            else:
                # Over, or not begun: this order may have overtaken the order to start.
                self._stopped_early.add(attempt, halt)
        self._wake()

    def _end_unstarted(self, attempt: AttemptId, halt: Halt) -> None:
        """It was told to stop, and has no process yet."""
        ending = Ending(halt.cause, reason=f"told to {halt}")
        self._listener(AttemptEnded(0.0, attempt, ending))

    def _stop(self, run: AttemptProcess, halt: Halt) -> None:
        if run.halt is not None or run.ends_as is not None:
            return
        run.halt = halt
        if not run.order.brief.stop_at.may_end_epoch(halt):
            run.kill_at = time.monotonic() + GRACE_SECONDS
        # Else an epoch takes what it takes; a second Ctrl-C and the time limits end it too.
        with contextlib.suppress(OSError):
            run.channel.send(halt)

    def close(self) -> None:
        """Kill what runs and end; no events follow."""
        with self._lock:
            if self._closing:
                return
            self._closing = True
            self._starting.clear()
        self._wake()
        self._look_now.set()
        self._thread.join()
        # A file system that hangs keeps it; it ends when that answers.
        self._looker.join(GRACE_SECONDS)
        with self._lock:
            for run in self._runs.values():
                run.channel.close()
            self._runs.clear()
            self._lose_parent(self._client)
            self._close_lost()
            if self._own_parent is not None:
                self._own_parent.close()
        self._wake_reader.close()
        self._wake_writer.close()

    # --- the warm parent --------------------------------------------------------------------

    def _connected(self) -> Client:
        """A connection to the warm parent, when that is ready; not to be called with the lock."""
        with self._connecting:
            if self._client is not None:
                return self._client
            client = None
            if self._warm_address is not None:
                with contextlib.suppress(OSError):
                    client = Client(self._warm_address)
            if client is None:
                client = self._client_of_own_parent()
            with self._lock:
                self._client = client
            return client

    def _client_of_own_parent(self) -> Client:
        self._warm_address = None
        if self._own_parent is not None:
            self._own_parent.close()
        with self._lock:
            if self._closing:
                raise StudyError("its worker has ended")
            self._own_parent = ForkServer(self._source)
        self._own_parent.wait_ready()
        return Client(self._own_parent.address)

    def _lose_parent(self, client: Client | None) -> None:
        """The warm parent is gone, or of no use any more, and its children with it."""
        if client is None:
            return
        with self._lock:
            for run in self._runs.values():
                if run.client is client and run.exit_status is None:
                    run.parent_lost = True
                    run.exit_status = -signal.SIGKILL
            if self._client is client:
                self._client = None
                self._lost.append(client)

    def _close_lost(self) -> None:
        # By the watching thread alone: closing what another thread waits for confuses it.
        with self._lock:
            lost, self._lost = self._lost, []
        for client in lost:
            client.close()

    # --- the thread -------------------------------------------------------------------------

    def _watch(self) -> None:
        while not self._closing:
            try:
                self._watch_once()
            except Exception:
                # Whatever it was, no attempt may wait for ever: end them, and begin anew.
                logger.exception("Lost sight of the attempts; they are run again.")
                self._lose_parent(self._client)
                time.sleep(0.1)

    def _watch_once(self) -> None:
        self._close_lost()
        with self._lock:
            client = self._client
            channels = {run.channel: run for run in self._runs.values() if not run.channel_closed}
            times = [(run.kill_at, run.timeout_at) for run in self._runs.values()]
            deadlines = [each for both in times for each in both if each is not None]
            is_settled = any(run.exit_status is not None for run in self._runs.values())
        watched: list[Any] = [self._wake_reader, *channels]
        if client is not None:
            watched.append(client.connection)
        seconds = max(0.0, min(deadlines) - time.monotonic()) if deadlines else None
        ready = wait(watched, 0.0 if is_settled else seconds)
        if self._wake_reader in ready:
            self._wake_reader.recv()
        for channel, run in channels.items():
            if channel in ready:
                self._read(run)
        if client is not None and client.connection in ready:
            self._read_exit(client)
        self._end_overdue()
        self._settle_ended()

    def _read(self, run: AttemptProcess) -> None:
        try:
            event = run.channel.recv()
        except (EOFError, OSError):
            run.channel_closed = True
            return
        if isinstance(event, AttemptStarted):
            run.watch = self._watch_of(run, event.pid)
        elif isinstance(event, Reported) and run.watch is not None:
            is_first = run.watch.reported(event.report.step)
            if is_first:
                self._look_now.set()
        if isinstance(event, Measured):
            if run.watch is not None:
                run.watch.meter.add(event.usage)
        elif isinstance(event, AttemptEnded):
            # Told when the process is gone and its devices are free.
            run.ending = event.ending
            # What it does on its way out (an upload, say) must not hold its place for ever.
            run.kill_at = time.monotonic() + GRACE_SECONDS
            run.timeout_at = None
        else:
            self._tell(run, event)

    def _read_exit(self, client: Client) -> None:
        try:
            attempt, status = client.connection.recv()
        except (EOFError, OSError):
            self._lose_parent(client)
            return
        with self._lock:
            if run := self._runs.get(attempt):
                run.parent_lost = status is None  # it could not fork
                run.exit_status = -signal.SIGKILL if status is None else status

    def _end_overdue(self) -> None:
        now = time.monotonic()
        with self._lock:
            for attempt, run in self._runs.items():
                if run.timeout_at is not None and run.timeout_at <= now:
                    run.timeout_at = None
                    seconds = run.order.brief.trial_timeout_seconds or 0.0
                    reason = f"ran longer than the {seconds:g} s allowed"
                    self._end_early(run, Ending(Cause.TIMED_OUT, reason=reason), GRACE_SECONDS)
                if run.kill_at is not None and run.kill_at <= now:
                    run.kill_at = None
                    if self._client is not None:
                        with contextlib.suppress(OSError):
                            self._client.kill(attempt)

    def _end_early(self, run: AttemptProcess, ending: Ending, seconds: float) -> None:
        """End an attempt that nobody has told to stop, after so much time to write a checkpoint."""
        with self._lock:
            if run.halt is not None or run.ends_as is not None or run.ending is not None:
                return
            run.ends_as = ending
            run.kill_at = time.monotonic() + seconds
            with contextlib.suppress(OSError):
                if ending.cause is Cause.HUNG:
                    run.client.dump_stacks(run.order.attempt)
                else:
                    run.channel.send(Halt.LET_GO)
        self._wake()

    def _settle_ended(self) -> None:
        with self._lock:
            ended = [
                run
                for run in self._runs.values()
                if run.exit_status is not None and (run.channel_closed or not run.channel.poll())
            ]
            for run in ended:
                del self._runs[run.order.attempt]
                run.channel.close()
        for run in ended:
            try:
                self._tell_end(run)
            except Exception:
                logger.exception("The end of %s cannot be told.", run.order.attempt)

    def _tell_end(self, run: AttemptProcess) -> None:
        if run.watch is not None and (usage := run.watch.meter.usage) is not None:
            self._tell(run, self._measured(run, usage))
        self._tell(run, AttemptEnded(0.0, run.order.attempt, run.how_it_ended(self._memory)))

    # --- the thread that measures -----------------------------------------------------------

    def _watch_of(self, run: AttemptProcess, pid: int) -> Watchdog:
        placement, brief = run.order.placement, run.order.brief
        meter = Meter(
            pid,
            placement.gpus,
            is_alone=placement.gpu_share == 1 and not brief.packs_gpus,
            gpu_usage=self._gpu_usage,
        )
        return Watchdog(meter, placement, brief.hang_timeout_seconds, self._gpu_usage)

    def _look(self) -> None:
        while not self._closing:
            self._look_now.wait(LOOK_SECONDS)
            self._look_now.clear()
            with self._lock:
                runs = [run for run in self._runs.values() if run.watch is not None]
            if not runs or self._closing:
                continue
            try:
                self._look_for_the_master(runs)
                self._memory.look()
                for run in runs:
                    self._look_at(run, beside=len(runs))
            except Exception:
                logger.exception("An attempt could not be measured; it goes on.")

    def _look_for_the_master(self, runs: list[AttemptProcess]) -> None:
        """Let the attempts of a master that is gone go on for a while, and then leave."""
        now = time.monotonic()
        if self._master is None:
            return
        if now >= self._touch_from:
            self._touch_from = now + HEARTBEAT_SECONDS
            for run in runs:
                if run.spool is not None:
                    run.spool.touch()
                    if run.spool.is_superseded:
                        self.stop(run.order.attempt, Halt.RELEASE)
        standing = self._master.look()
        if standing is Master.LIVES:
            return
        for run in runs:
            grace = run.order.brief.master_grace_seconds
            is_over = self._master.silent_seconds > STALE_SECONDS + grace
            if grace and (standing is Master.REPLACED or is_over):
                self.stop(run.order.attempt)

    def outlive_master(self) -> None:
        """The master seems gone: wait until no attempt runs, or its grace time is over.

        Attempts that still run then leave, each with a checkpoint; so do they as soon as the
        master turns out to live, for it runs them elsewhere. Where no grace was given, it returns
        at once.
        """
        gone_at = time.monotonic()
        while not self._closing:
            with self._lock:
                runs = {name: run.order.brief for name, run in self._runs.items()}
            if not any(brief.master_grace_seconds for brief in runs.values()):
                return
            if self._master is not None:
                self._master.look()
            for name, brief in runs.items():
                if self._master is not None and self._master.outlived(gone_at):
                    self.stop(name, Halt.RELEASE)
                elif time.monotonic() - gone_at > brief.master_grace_seconds:
                    self.stop(name)
            time.sleep(_POLL_SECONDS)

    def _look_at(self, run: AttemptProcess, *, beside: int) -> None:
        if run.watch is None or not run.watch.look(beside):
            return
        with self._lock:
            # Nothing follows the attempt's end.
            if run.order.attempt not in self._runs:
                return
            if (usage := run.watch.meter.news()) is not None:
                self._tell(run, self._measured(run, usage))
        ending = run.watch.judgement(self._memory)
        if ending is not None:
            self._end_early(run, ending, ending_grace(ending))

    def _measured(self, run: AttemptProcess, usage: Usage) -> Measured:
        return Measured(0.0, run.order.attempt, usage, self._memory.free_share)

    def _tell(self, run: AttemptProcess, event: Event) -> None:
        if run.spool is not None:
            run.spool.add(event)
        self._listener(event)

    def _wake(self) -> None:
        with contextlib.suppress(OSError):
            self._wake_writer.send(None)


def _pipe() -> tuple[Connection[Any, Any], Connection[Any, Any]]:
    from multiprocessing import Pipe

    reader, writer = Pipe(duplex=False)
    return reader, writer
