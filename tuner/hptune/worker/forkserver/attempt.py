"""One attempt in its own process: its log, its devices, the training, and what it sends."""

from __future__ import annotations

import contextlib
import faulthandler
import os
import signal
import socket
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...core.attempt import CameBack, Ending, Halt
from ...core.messages import AttemptEnded, AttemptStarted, Continue, Event, Measured, Reported
from ...training import context
from ...training.resume.checkpoint import room_needed
from ...user_code.model_file import UserCode, load
from ...user_code.user_errors import storable
from ..monitoring import memory, usage
from ..orders import AttemptOrder
from . import isolation
from .channel import Channel, UnreadableMessage
from .error_causes import Where, ending_by_order, ending_of

if TYPE_CHECKING:
    from .rank import Rank

_MOST_CHARACTERS = 1000
"""Characters of a reason, which is one line for people."""

DUMP_STACKS = signal.SIGRTMIN + 7
"""Signal on which an attempt writes the stacks of all its threads into its log, and continues."""


def carry_out(order: AttemptOrder, channel: Channel) -> None:
    """Carry out an order, and send what happens; this process is the attempt's."""
    _Attempt(order, channel).run()


class _Attempt:
    def __init__(self, order: AttemptOrder, channel: Channel) -> None:
        self._order = order
        self._channel = channel
        self._process = os.getpid()
        self._rank: Rank | None = None
        self._port: socket.socket | None = None  # held for as long as the attempt runs
        self._has_begun = False

    def run(self) -> None:
        try:
            ending = self._carried_out()
        except BaseException as error:  # the boundary of the user's code
            ending = self._ended_by(error)
        self._end(replace(ending, reason=storable(ending.reason, _MOST_CHARACTERS)))

    def _carried_out(self) -> Ending:
        order = self._order
        with room_needed("the trial's log", order.directory):
            order.directory.mkdir(parents=True, exist_ok=True)
            _write_output_to(order.log)
        if order.parallel is not None:
            from .rank import Rank

            self._rank = Rank(order, order.parallel)
        self._has_begun = True
        isolation.be_the_first_to_go()
        isolation.schedule_as_batch()
        isolation.confine(order.placement)
        if self._rank is None:
            self._port = isolation.be_alone(order.placement)
        started = AttemptStarted(0.0, order.attempt, os.getpid())
        self._send(started if self._rank is None else self._rank.ready())
        ending = self._train()
        if self._rank is not None:
            self._rank.finish(ending)
        return ending

    def _ended_by(self, error: BaseException) -> Ending:
        order = self._order
        where = Where(order.directory, bool(order.placement.gpus), self._has_begun)
        ending = ending_of(error, where)
        if self._rank is not None and isinstance(error, context.AttemptStopped):
            with contextlib.suppress(Exception):  # its own ending counts
                self._rank.finish(ending)
        return ending

    def _end(self, ending: Ending) -> None:
        order = self._order
        with contextlib.suppress(OSError):
            # It was asked for and not used; if anything lies in it, it stays.
            if not order.attempt.rank:
                (order.directory / "checkpoint").rmdir()
        if (used := usage.own_usage()) is not None:
            self._send(Measured(0.0, order.attempt, used))
        self._send(AttemptEnded(0.0, order.attempt, ending))
        if self._rank is not None:
            self._rank.exit_if_failed(ending)

    def _send(self, event: Event) -> None:
        # A process that the user's code forks may report. It may also return to here by itself.
        if isinstance(event, Reported) or os.getpid() == self._process:
            self._channel.send(event)

    def _train(self) -> Ending:
        from ...training.hyperparameters import make_hyperparameters
        from ...training.resume.randomness import seed_everything

        # Before the user's code, after which no file may be left to import with.
        from .used_parameters import used_parameters

        order = self._order
        with contextlib.suppress(OSError):
            os.chdir(order.brief.working_directory)
        trial = self._trial()
        context.enter(trial)
        threading.Thread(target=self._listen, args=(trial,), daemon=True).start()
        if self._rank is not None:
            trial.ranks = self._rank.meet(trial.end_if_told)
        code = self._code(trial)
        isolation.cap_gpu_memory(order.placement)
        strategy = None if code.objective is not None else _strategy(order, trial)
        is_deterministic = order.brief.deterministic and not order.placement.gpus
        seed_everything(order.start.seed, deterministic=is_deterministic)
        hp = make_hyperparameters(order.space, order.start.params)
        hp.tunes_new = code.tune_new_entries
        # A process of the user's may ask for values, which is not seen here.
        os.register_at_fork(before=lambda: setattr(hp, "asks_all", True))
        declared, is_over = len(hp.space), False
        try:
            ending = _run(order, code, hp, trial, strategy)
            is_over = not trial.has_read_params
            return ending
        except (Exception, SystemExit) as error:
            if (by_order := ending_by_order(error, trial.obeyed(CameBack.NOTHING))) is None:
                raise
            return by_order
        finally:
            used = used_parameters(
                order.attempt, order.start.params, hp, declared=declared, is_over=is_over
            )
            if used is not None and not order.attempt.rank:
                self._send(used)

    def _trial(self) -> context.TrialContext:
        order, brief = self._order, self._order.brief
        return context.TrialContext(
            order.start,
            directory=order.directory,
            goals=brief.goals,
            epochs=brief.limits.epochs,
            checkpoint_every=brief.limits.checkpoint_every,
            stop_at=brief.limits.stop_at,
            send=self._send,
        )

    def _listen(self, trial: context.TrialContext) -> None:
        # A closed channel means that the worker is gone.
        with contextlib.suppress(OSError, EOFError, UnreadableMessage):
            while True:
                order = self._channel.recv()
                if isinstance(order, Halt):
                    trial.request_stop(order)
                elif isinstance(order, Continue):
                    trial.may_continue(order.step)
                elif self._rank is not None:
                    self._rank.told(order)

    def _code(self, trial: context.TrialContext) -> UserCode:
        """Return the user's code, whose `load_data` takes the node's cache."""
        from ...training.data_cache.data_cache import cached

        brief = self._order.brief
        code = load(brief.source)
        isolation.look_for_no_gpu(self._order.placement)
        return cached(
            code,
            brief.directory,
            brief.source,
            limit_bytes=brief.limits.cache_bytes,
            is_wanted=brief.limits.wants_cache,
            free_memory_bytes=lambda: memory.free_bytes()[0],
            hang_timeout_seconds=brief.limits.hang_timeout_seconds,
            while_waiting=trial.end_if_told,
        )


def _run(
    order: AttemptOrder, code: UserCode, hp: Any, trial: context.TrialContext, strategy: Any
) -> Ending:
    """Measure the configuration's steps, call the user's objective, or train a Keras model."""
    if order.measure is not None:
        from ...training.keras import step_times

        gpus = len(order.placement.gpus)
        return step_times.run(code, hp, trial, order.measure, strategy, gpus=gpus)
    if code.objective is not None:
        from ...training import function_objective

        return function_objective.run(code, hp, trial)
    from ...training.keras import objective as keras_objective

    return keras_objective.run(
        code,
        hp,
        trial,
        epochs=order.brief.limits.epochs or 1,
        incumbents=order.start.incumbents,
        strategy=strategy,
    )


def _strategy(order: AttemptOrder, trial: Any) -> Any:
    """Return what trains on several devices, which the framework now knows; None for one."""
    from ...training.strategies.choose import choose, divide_cores, may_be_needed

    devices, asked = len(order.placement.gpus), order.brief.limits.data_parallel
    if order.measure is not None and order.measure.host_devices > 1:
        devices = order.measure.host_devices
        divide_cores(devices)
    if trial.ranks is None and not may_be_needed(devices, asked):
        return None
    strategy = choose(trial.ranks, devices, asked)
    if strategy is not None:
        strategy.enter()
    return strategy


def _write_output_to(path: Path) -> None:
    # Not blocking, in case an earlier attempt has put a pipe there.
    log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NONBLOCK, 0o644)
    for target in (1, 2):
        os.dup2(log, target)
    os.close(log)
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(line_buffering=True)  # type: ignore[union-attr]  # os files, no test's
    faulthandler.enable(file=2)
    faulthandler.register(DUMP_STACKS, file=2, all_threads=True)
