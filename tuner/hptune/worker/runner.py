"""`AttemptRunner`: the attempts of one worker, in processes forked from a fork server.

`runner_state` decides; this module delivers its events and carries out its instructions. Two
threads do so: one waits for messages, exits and deadlines, the other measures. Each attempt has a
further one until its process is forked.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from multiprocessing import Pipe
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

from ..core.attempt import AttemptId, Cause, Ending, Halt, Usage
from ..core.clock import polls
from ..core.messages import AttemptEnded, AttemptStarted, Measured, Reported
from ..core.resources import Placement
from ..errors import StudyError
from ..storage.attempt_journal import HEARTBEAT_SECONDS, AttemptJournal
from ..storage.lease import STALE_SECONDS
from ..user_code.source import ObjectiveSource
from .addresses import outward
from .forkserver.channel import Channel, NoFilesLeft, UnreadableMessage
from .forkserver.client import Client
from .gpus.machine import Gpus
from .monitoring.energy import EnergyMeter, Processors
from .monitoring.master_liveness import MasterLiveness, MasterState
from .monitoring.trial_log import limit_log
from .monitoring.usage import Meter
from .monitoring.watchdog import MemoryWatchdog, StopWatch, Watchdog
from .orders import AttemptOrder, ProcessOrder, StopOrder
from .runner_state import (
    GRACE_SECONDS,
    AttemptEvent,
    Drain,
    DumpStacks,
    EndAttempt,
    Instructions,
    Kill,
    RunnerState,
)
from .server_connection import ServerConnection

logger = logging.getLogger(__name__)

LOOK_SECONDS = 1.0
"""Seconds between two looks at the attempts; each attempt's `Watchdog` decides what to measure."""

NO_FILES_SECONDS = 60.0
"""Seconds for which an attempt waits to start while this process can open no more files: many
connections of a stranger, say, must not use up the attempts that a trial has."""

_POLL_SECONDS = 0.2
_MOST_SECONDS = 86400.0
"""Longest wait at once; the system takes no more than 24 days."""
_GARBLED = "it wrote to a file descriptor of hptune; a trial must only use those that it opened"


@dataclass(slots=True)
class _Process:
    """The process of an attempt.

    Attributes:
        order: What it carries out.
        channel: The connection to it; read and closed by the waiting thread alone.
        client: The connection to the fork server that forked it.
        watchdog: What measures it; None until its process id is known.
        stop_watch: What sees that it is stopped; None for an attempt of one process.
        journal: Where its events are stored; None if it ends with its master.
    """

    order: AttemptOrder
    channel: Channel
    client: Client
    watchdog: Watchdog | None = None
    stop_watch: StopWatch | None = None
    journal: AttemptJournal | None = None


class AttemptRunner:
    """The runner of one worker's attempts.

    All methods may be called from any thread. Events go to `listener` one at a time, from any
    thread, with time 0: the receiver stamps them. They are sent without the lock, so that an order
    to stop does not wait for a file system or a connection that blocks.

    Args:
        source: The user's code.
        listener: Takes each event; must not raise.
        fork_server_address: Address of a fork server. If it is None, or there is no answer, the
            runner starts a fork server of its own.
        host: The address at which the ranks of other nodes reach this one; empty for the address
            of the default interface.
        memory_bytes: As `of_bytes` of `MemoryWatchdog`.
    """

    def __init__(
        self,
        source: ObjectiveSource,
        listener: Callable[[AttemptEvent], object],
        *,
        fork_server_address: str | None = None,
        host: str = "",
        memory_bytes: int = 0,
    ) -> None:
        self._listener = listener
        self._host = host
        self._server = ServerConnection(source, fork_server_address)
        self._gpu_usage = Gpus()
        self._processors = Processors()
        self._memory = MemoryWatchdog(memory_bytes)
        # The lock protects the state, the processes, and the order of the events in the outbox.
        self._lock = threading.RLock()
        self._outbox: deque[tuple[AttemptJournal | None, AttemptEvent]] = deque()
        self._sending = threading.Lock()
        self._state = RunnerState()
        self._processes: dict[AttemptId, _Process] = {}
        self._lost: list[Client] = []
        self._master: MasterLiveness | None = None
        self._touch_at = 0.0
        self._is_closing = False
        self._look_now = threading.Event()
        self._wake_reader, self._wake_writer = Pipe(duplex=False)
        self._waiter = threading.Thread(target=self._wait, name="hptune-attempts", daemon=True)
        self._measurer = threading.Thread(target=self._measure, name="hptune-usage", daemon=True)
        self._waiter.start()
        self._measurer.start()

    def start(self, order: AttemptOrder) -> None:
        """Start an attempt, without waiting; `AttemptEnded` follows once, whatever happens."""
        attempt = order.attempt
        self._deliver(lambda _: self._state.start(attempt, order.brief))
        with self._lock:
            if not self._state.is_starting(attempt):
                return
        thread = threading.Thread(target=self._fork_soon, args=(order,), daemon=True)
        thread.name = f"hptune-fork-{attempt}"
        try:
            thread.start()
        except RuntimeError as error:  # no thread is left
            reason = str(error)
            self._deliver(lambda _: self._state.fork_failed(attempt, reason))

    def stop(self, attempt: AttemptId, halt: Halt = Halt.STOP) -> None:
        """Tell an attempt to stop; it is killed after a grace time, unless it may end its epoch.

        An attempt that is over is ignored. One that has not started yet will not start.
        """
        self._deliver(lambda now: self._state.stop(attempt, halt, now=now))

    def tell(self, order: ProcessOrder) -> None:
        """Give an attempt's process an order; one that is over is ignored."""
        with self._lock, contextlib.suppress(OSError):
            if (process := self._processes.get(order.attempt)) is not None:
                process.channel.send(order)

    def outlive_master(self) -> None:
        """Wait until no attempt runs that may continue without its master, which seems gone.

        Attempts whose grace time is over stop with a checkpoint. If the master is alive after
        all, all of them stop, because it runs them elsewhere.
        """
        gone_at = time.monotonic()
        while not self._is_closing:
            with self._lock:
                if not self._state.may_outlive_master:
                    return
            if self._master is not None:
                self._master.look()
            if self._master is not None and self._master.outlived(gone_at):
                self._stop_survivors(Halt.RELEASE)
            else:
                self._stop_survivors(Halt.STOP, time.monotonic() - gone_at)
            time.sleep(_POLL_SECONDS)

    def close(self) -> None:
        """Kill the attempts that run, send the events so far, and end; no events follow."""
        with self._lock:
            if self._is_closing:
                return
            self._is_closing = True
            self._state.close()
        self._wake()
        self._look_now.set()
        self._waiter.join()
        # A file system that hangs blocks this thread; it ends when the file system answers.
        self._measurer.join(GRACE_SECONDS)
        self._send(waits=True)
        with self._lock:
            for process in self._processes.values():
                process.channel.close()
            self._processes.clear()
            for client in self._lost:
                client.close()
            self._server.close()
        self._wake_reader.close()
        self._wake_writer.close()

    # --- the threads that start attempts ---------------------------------------------------------

    def _fork_soon(self, order: AttemptOrder) -> None:
        client = None
        try:
            # This takes some seconds if a framework must be imported.
            client = self._server.client()
            # Without the lock, too: the study's file system may not answer.
            may_outlive = order.brief.limits.master_grace_seconds > 0
            journal = AttemptJournal(order.directory, order.attempt) if may_outlive else None
            self._fork_when_possible(order, client, journal)
        except Exception as error:  # whatever it is: no other thread would end the attempt
            reason = error.message if isinstance(error, StudyError) else str(error) or repr(error)
            if client is not None and isinstance(error, OSError):
                self._lose(client)
            self._deliver(lambda _: self._state.fork_failed(order.attempt, reason))
        self._wake()

    # --- instructions -------------------------------------------------------------------------

    def _deliver(self, event: Callable[[float], Instructions]) -> None:
        """Deliver an event to the state, and carry out its instructions."""
        with self._lock:
            self._carry_out(event(time.monotonic()))
        if threading.current_thread() is not self._waiter:
            self._send()
            self._wake()

    def _carry_out(self, instructions: Instructions) -> None:
        for instruction in instructions:
            match instruction:
                case Drain(attempt):
                    process = self._processes[attempt]
                    while process.channel.poll() and self._read(process):
                        pass
                    self._carry_out(self._state.channel_closed(attempt))
                case EndAttempt():
                    self._finish(instruction)
                case StopOrder() | DumpStacks() | Kill():
                    # If the process or the fork server has ended, its exit is an event of its own.
                    with contextlib.suppress(OSError):
                        self._order(self._processes[instruction.attempt], instruction)
                case _:
                    self._emit(instruction)

    def _order(self, process: _Process, instruction: StopOrder | DumpStacks | Kill) -> None:
        match instruction:
            case StopOrder(_, halt):
                process.channel.send(halt)
            case DumpStacks(attempt):
                process.client.dump_stacks(attempt)
            case Kill(attempt):
                process.client.kill(attempt)

    def _fork_when_possible(
        self, order: AttemptOrder, client: Client, journal: AttemptJournal | None
    ) -> None:
        """Fork the process, perhaps after others have closed files that this process needs.

        Raises:
            NoFilesLeft: They have not.
        """
        for is_last in polls(NO_FILES_SECONDS, _POLL_SECONDS):
            try:
                with self._lock:
                    if self._state.is_starting(order.attempt):
                        self._fork(order, client, journal)
                    return
            except NoFilesLeft:
                if is_last:
                    raise

    def _fork(self, order: AttemptOrder, client: Client, journal: AttemptJournal | None) -> None:
        attempt, brief = order.attempt, order.brief
        if order.parallel is not None:
            order = replace(order, parallel=replace(order.parallel, host=self._host or outward()))
        process = _Process(order, client.fork(attempt, order), client, journal=journal)
        if journal is not None and self._master is None:
            self._master = MasterLiveness(Path(brief.directory), brief.master)
        self._processes[attempt] = process
        self._state.forked(attempt, now=time.monotonic())

    def _finish(self, finish: EndAttempt) -> None:
        process, ending = self._processes[finish.attempt], finish.ending
        meter = None if process.watchdog is None else process.watchdog.meter
        if finish.was_sigkilled:
            held_bytes = 0 if meter is None else meter.memory_bytes
            if evidence := self._memory.evidence(held_bytes):
                ending = Ending(Cause.OUT_OF_MEMORY, reason=f"{ending.reason}: {evidence}")
        if meter is not None and meter.energy is not None:
            meter.energy.take_processors(meter.cpu_seconds)
        if meter is not None and (usage := meter.usage) is not None:
            self._emit(self._measured(finish.attempt, usage))
        self._emit(AttemptEnded(0.0, finish.attempt, ending))
        del self._processes[finish.attempt]
        process.channel.close()

    def _emit(self, event: AttemptEvent) -> None:
        process = self._processes.get(event.attempt)
        self._outbox.append((None if process is None else process.journal, event))

    def _send(self, *, waits: bool = False) -> None:
        """Send the events in the outbox; call this without the lock.

        Args:
            waits: Whether to wait for another thread that sends. Otherwise that thread sends all.
        """
        while (waits or self._outbox) and self._sending.acquire(blocking=waits):
            waits = False
            try:
                while self._outbox:
                    journal, event = self._outbox.popleft()
                    if journal is not None:
                        journal.add(event)
                    self._listener(event)
            finally:
                self._sending.release()

    def _measured(self, attempt: AttemptId, usage: Usage) -> Measured:
        return Measured(0.0, attempt, usage, self._memory.free_share)

    # --- the thread that waits ----------------------------------------------------------------

    def _wait(self) -> None:
        while not self._is_closing:
            try:
                self._wait_once()
            except Exception:
                # No attempt may wait forever: they end, and the study runs them again.
                logger.exception("the attempts of this worker are lost; they run again")
                with self._lock:
                    for client in {process.client for process in self._processes.values()}:
                        self._lose(client)
                time.sleep(0.1)

    def _wait_once(self) -> None:
        with self._lock:
            self._end_lost()
            client = self._server.current
            can_send = [self._processes[attempt] for attempt in self._state.open_channels]
            channels = {process.channel: process for process in can_send}
            deadline = self._state.next_deadline
        self._send()
        watched: list[Any] = [self._wake_reader, *channels]
        if client is not None:
            watched.append(client.connection)
        left = _MOST_SECONDS if deadline is None else max(0.0, deadline - time.monotonic())
        ready: list[Any] = wait(watched, min(left, _MOST_SECONDS))
        while self._wake_reader.poll():
            self._wake_reader.recv()
        for channel, process in channels.items():
            if channel in ready:
                self._read(process)
        if client is not None and client.connection in ready:
            self._read_exit(client)
        self._deliver(lambda now: self._state.tick(now=now))

    def _read(self, process: _Process) -> bool:
        """Read one message; return False if the channel is closed."""
        attempt = process.order.attempt
        try:
            event = process.channel.recv()
            if not isinstance(event, AttemptEvent) or event.attempt != attempt:
                raise UnreadableMessage(f"it is no event of the attempt: {event!r:.100}")
        except (EOFError, OSError):
            self._deliver(lambda _: self._state.channel_closed(attempt))
            return False
        except (NoFilesLeft, UnreadableMessage) as error:
            ending = Ending(Cause.EXITED, reason=_GARBLED, detail=str(error))
            if isinstance(error, NoFilesLeft):
                ending = Ending(Cause.WORKER_LOST, reason=error.message)
            self._deliver(lambda now: self._state.end_early(attempt, ending, now=now))
            return True
        watchdog = process.watchdog
        if isinstance(event, AttemptStarted):
            process.watchdog = self._watchdog_of(process.order, event.pid)
            self._look_for_energy(process.watchdog)
            if process.order.parallel is not None:
                process.stop_watch = StopWatch(event.pid)
        elif isinstance(event, Reported) and watchdog is not None:
            if watchdog.reported(event.report.step):
                self._look_now.set()
        elif isinstance(event, Measured):
            if watchdog is not None:
                watchdog.ends(event.usage)
                self._look_for_energy(watchdog)
            return True
        self._deliver(lambda now: self._state.message(attempt, event, now=now))
        return True

    def _read_exit(self, client: Client) -> None:
        try:
            attempt, status = client.connection.recv()
        except (EOFError, OSError):
            self._lose(client)
            return
        self._deliver(lambda _: self._state.exited(attempt, status))

    def _lose(self, client: Client) -> None:
        """Give up a fork server, which failed; the waiting thread ends its attempts."""
        with self._lock:
            self._server.lose(client)
            self._lost.append(client)

    def _end_lost(self) -> None:
        lost, self._lost = self._lost, []
        for client in lost:
            # What the attempts started must not run beside their next attempts.
            client.close_lost()
            for attempt, process in list(self._processes.items()):
                if process.client is client:
                    self._carry_out(self._state.exited(attempt, None))

    # --- the thread that measures -------------------------------------------------------------

    def _watchdog_of(self, order: AttemptOrder, pid: int) -> Watchdog:
        placement, brief = order.placement, order.brief
        meter = Meter(
            pid,
            placement.gpus,
            is_alone=placement.gpu_share == 1 and not brief.packs_gpus,
            gpu_usage=self._gpu_usage,
            energy=self._energy_of(placement),
        )
        return Watchdog(meter, placement, brief.limits.hang_timeout_seconds, self._gpu_usage)

    def _energy_of(self, placement: Placement) -> EnergyMeter | None:
        if not placement.gpus and not self._processors.can_be_read:
            return None

        def gpu_part() -> float:
            others = [each.order.placement for each in list(self._processes.values())]
            held = sum(each.gpu_share for each in others if {*each.gpus} & {*placement.gpus})
            return placement.gpu_share / max(held, placement.gpu_share)

        return EnergyMeter(self._processors, placement.gpus, self._gpu_usage, gpu_part)

    def _look_for_energy(self, watchdog: Watchdog) -> None:
        """Look at once at an attempt that begins or ends, as its energy counts in between."""
        if watchdog.meter.energy is not None:
            self._look_now.set()

    def _measure(self) -> None:
        while not self._is_closing:
            self._look_now.wait(LOOK_SECONDS)
            self._look_now.clear()
            with self._lock:
                processes = [each for each in self._processes.values() if each.watchdog is not None]
            if not processes or self._is_closing:
                continue
            try:
                self._look_at_master(processes)
                self._memory.look()
                # Before a counter begins again twice: the next look at an attempt may be far.
                self._processors.take()
                for process in processes:
                    self._look_at(process, attempts=len(processes))
                    limit_log(process.order.log)
            except Exception:
                logger.exception("an attempt could not be measured; it continues")

    def _look_at_master(self, processes: list[_Process]) -> None:
        """Touch the journals, and stop the attempts that must not continue without the master."""
        if (master := self._master) is None:
            return
        if time.monotonic() >= self._touch_at:
            self._touch_at = time.monotonic() + HEARTBEAT_SECONDS
            for process in processes:
                if process.journal is not None:
                    process.journal.touch()
                    if process.journal.is_superseded:
                        self.stop(process.order.attempt, Halt.RELEASE)
        state = master.look()
        if state is MasterState.REPLACED:
            self._stop_survivors(Halt.STOP)
        elif state is MasterState.LOST:
            self._stop_survivors(Halt.STOP, master.silent_seconds - STALE_SECONDS)

    def _stop_survivors(self, halt: Halt, lost_seconds: float | None = None) -> None:
        """Stop attempts that may outlive their master; see the state."""
        stop = self._state.stop_survivors
        self._deliver(lambda now: stop(halt, now=now, lost_seconds=lost_seconds))

    def _look_at(self, process: _Process, *, attempts: int) -> None:
        attempt, watchdog = process.order.attempt, process.watchdog
        if process.stop_watch is not None and (
            stopped := process.stop_watch.ending(time.monotonic())
        ):
            self._deliver(lambda _: self._state.kill(attempt, stopped))
        if watchdog is None or not watchdog.look(attempts):
            return
        with self._lock:
            if self._is_closing or attempt not in self._processes:
                return  # nothing follows the attempt's end
            if (usage := watchdog.meter.new_usage()) is not None:
                self._emit(self._measured(attempt, usage))
        self._send()
        if ending := watchdog.broken_limit(self._memory):
            self._deliver(lambda now: self._state.end_early(attempt, ending, now=now))

    def _wake(self) -> None:
        with contextlib.suppress(OSError):
            self._wake_writer.send(None)
