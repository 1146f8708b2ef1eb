"""The process of one attempt (or of a question): a child of the fork server.

It owns its process group, its log and its devices; it talks to the worker through one channel;
it ends without running the interpreter's tear-down, which frameworks make slow and fragile.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import faulthandler
import os
import signal
import sys
import tempfile
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from ...config.model_file import load
from ...config.user_errors import one_line, storable, user_traceback
from ...core.attempt import Cause, Ending, Halt
from ...core.messages import AttemptEnded, AttemptStarted, Event, Measured, ParametersUsed, Reported
from ...core.trial import ParamValue
from ...errors import ProgramFailed
from .. import devices
from ..monitoring import memory, usage
from ..orders import AttemptOrder, Order
from . import error_causes, isolation, orphans, questions
from .channel import Channel, UnreadableMessage

if TYPE_CHECKING:
    from .rank import Rank

_PR_SET_PDEATHSIG = 1
_LEAST_BYTES = 1_000_000
_MOST_CHARACTERS = 1000
"""Characters of a reason, which is one line for people."""

_CLAIMED_SLOTS = 2**16
"""Pointers in half of a chunk of 1 MiB: the other half is 32 chunks of the usual size."""

DUMP_STACKS = signal.SIGRTMIN + 7
"""Signal on which a child writes the stacks of all its threads into its log, and continues."""


def main(order: Order, channel: Channel) -> NoReturn:
    """Carry out the order, send the result through the channel, and end the process."""
    status = 1
    try:
        _leave_the_parent()
        task = _attempt if isinstance(order, AttemptOrder) else questions.answer
        _with_ample_stack(task, order, channel)
        status = 0
    except BaseException:  # the process ends here, whatever it was
        sys.excepthook(*sys.exc_info())
    finally:
        with contextlib.suppress(BaseException):
            # Run what the user's code registered, then leave without the interpreter's tear-down.
            atexit._run_exitfuncs()  # noqa: SLF001 - there is no public way
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
        os._exit(status)


def _with_ample_stack(function: Callable[..., None], *arguments: Any) -> None:
    function(*arguments)


# CPython keeps the frames of Python functions in chunks of 16 KiB, and unmaps a chunk when its last
# frame ends. A loop whose calls cross the end of a chunk therefore maps, faults in and unmaps one
# in each call: thousands of times in a short training, depending on how deep it is called. A frame
# that claims so large a stack gets a chunk of its own, whose other half holds all later frames.
# The kernel provides no memory for what is claimed and never used.
_with_ample_stack.__code__ = _with_ample_stack.__code__.replace(co_stacksize=_CLAIMED_SLOTS)


def _leave_the_parent() -> None:
    """Undo what was inherited and must not be shared with the fork server."""
    os.setsid()
    orphans.tag()
    parent = os.getppid()
    with contextlib.suppress(OSError, AttributeError):
        # A trial process must never outlive its fork server.
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)
    signal.set_wakeup_fd(-1)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    for number in (signal.SIGCHLD, signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    if devices.is_slurm_job():
        leave_sigterm_to_the_worker()
    atexit._clear()  # noqa: SLF001 - the parent's clean-up is not ours to run
    nothing = os.open(os.devnull, os.O_RDONLY)
    if nothing:
        os.dup2(nothing, 0)
        os.close(nothing)


def leave_sigterm_to_the_worker() -> None:
    """Slurm tells every process of a job to end; the worker alone knows what to do then.

    It tells its attempts to write checkpoints. Processes that a trial starts end as they would.
    """
    signal.signal(signal.SIGTERM, lambda *_: None)
    os.register_at_fork(after_in_child=lambda: signal.signal(signal.SIGTERM, signal.SIG_DFL))


# --- attempts -----------------------------------------------------------------------------------


def _attempt(order: AttemptOrder, channel: Channel) -> None:
    from ...training.context import AttemptStopped, NonFiniteMetric, UnknownMetric
    from ...training.resume.checkpoint import FULL, NoRoom, room_needed

    own, began = os.getpid(), False

    def send(event: Event) -> None:
        # A process that the user's code forks may report. It may also return to here by itself.
        if isinstance(event, Reported) or os.getpid() == own:
            channel.send(event)

    rank: Rank | None = None
    try:
        with room_needed("the trial's log", order.directory):
            order.directory.mkdir(parents=True, exist_ok=True)
            _write_output_to(order.log)
        rank = _rank_of(order)
        began = True
        isolation.be_the_first_to_go()
        isolation.schedule_as_batch()
        isolation.confine(order.placement)
        send(AttemptStarted(0.0, order.attempt, os.getpid()) if rank is None else rank.ready())
        ending = _train(order, channel, send, rank)
        if rank is not None:
            rank.leave(ending)
    except AttemptStopped as stopped:
        ending = Ending(stopped.halt.cause, reason=stopped.reason)
        if rank is not None:
            with contextlib.suppress(Exception):  # its own ending counts
                rank.leave(ending)
    except NonFiniteMetric as error:
        ending = Ending(Cause.NON_FINITE, reason=str(error))
    except UnknownMetric as error:
        ending = Ending(Cause.UNKNOWN_METRIC, reason=str(error))
    except NoRoom as error:
        is_own = isinstance(error.__cause__, PermissionError) and _is_to_blame(order.directory)
        ending = Ending(Cause.EXCEPTION if is_own else Cause.NO_ROOM, reason=str(error))
    except SystemExit as error:
        ending = Ending(
            Cause.EXITED, reason=f"sys.exit({error.code!r})", detail=user_traceback(error)
        )
    except BaseException as error:  # the boundary of the user's code
        with contextlib.suppress(OSError):
            if isinstance(error, ProgramFailed):
                sys.stderr.write(f"{error.message}\n")  # the log has what the program wrote
            else:
                sys.excepthook(*sys.exc_info())
        # A full disk is the machine's fault, not the configuration's.
        if isinstance(error, OSError) and error.errno in FULL:
            cause = Cause.NO_ROOM if _is_full(order.directory) else Cause.WORKER_LOST
        elif isinstance(error, OSError) and not began:
            cause = Cause.WORKER_LOST  # its node does not reach the study's directory, say
        else:
            cause = error_causes.cause_of(error, has_gpu=bool(order.placement.gpus))
        ending = Ending(cause, reason=one_line(error), detail=user_traceback(error))
    ending = replace(ending, reason=storable(ending.reason, _MOST_CHARACTERS))
    with contextlib.suppress(OSError):
        # It was asked for and not used; if anything lies in it, it stays.
        if not order.attempt.rank:
            (order.directory / "checkpoint").rmdir()
    if (used := usage.own_usage()) is not None:
        send(Measured(0.0, order.attempt, used))
    send(AttemptEnded(0.0, order.attempt, ending))
    if rank is not None:
        rank.exit_if_failed(ending)


def _rank_of(order: AttemptOrder) -> Rank | None:
    if order.parallel is None:
        return None
    from .rank import Rank

    return Rank(order, order.parallel)


def _is_to_blame(directory: Path) -> bool:
    """Return whether the trial itself has forbidden writing to its directory, not the study's."""
    try:
        is_mine = directory.stat().st_uid == os.geteuid()
    except OSError:
        return False
    return is_mine and os.access(directory.parent, os.W_OK | os.X_OK)


def _is_full(directory: Path) -> bool:
    """Return whether the study's directory takes no more, so that other attempts would fail too.

    Only a write shows whether a quota is used up.
    """
    from ...training.resume.checkpoint import FULL

    try:
        with tempfile.TemporaryFile(dir=directory) as file:
            file.write(os.urandom(_LEAST_BYTES))
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        return error.errno in FULL
    return False


def _train(order: AttemptOrder, channel: Channel, send: Any, rank: Rank | None) -> Ending:
    from ...core.space.space import SearchSpace
    from ...training import context, function_objective
    from ...training.data_cache.data_cache import cached
    from ...training.hyperparameters import make_hyperparameters
    from ...training.keras import objective as keras_objective
    from ...training.resume.randomness import seed_everything

    brief = order.brief
    with contextlib.suppress(OSError):
        os.chdir(brief.working_directory)
    trial = context.TrialContext(
        attempt=order.attempt,
        params=order.params,
        seed=order.seed,
        directory=order.directory,
        goals=brief.goals,
        epochs=brief.limits.epochs,
        resumed_from=order.resume_from,
        checkpoint_every=brief.limits.checkpoint_every,
        keeps_last=order.keep_last,
        stop_at=brief.limits.stop_at,
        send=send,
    )
    context.enter(trial)
    threading.Thread(target=_listen, args=(channel, trial, rank), daemon=True).start()
    if rank is not None:
        trial.join(rank.meet(trial.leave_if_told))
    code = load(brief.source)
    isolation.look_for_no_gpu(order.placement)
    code = cached(
        code,
        brief.directory,
        brief.source,
        limit_bytes=brief.limits.cache_bytes,
        is_wanted=brief.limits.wants_cache,
        free_memory_bytes=lambda: memory.free_bytes()[0],
        hang_timeout_seconds=brief.limits.hang_timeout_seconds,
        while_waiting=trial.leave_if_told,
    )
    isolation.cap_gpu_memory(order.placement)
    strategy = None if code.objective is not None else _strategy(order, trial)
    seed_everything(order.seed, deterministic=brief.deterministic and not order.placement.gpus)
    hp = make_hyperparameters(order.space, order.params)
    hp.tunes_new = code.tune_new_entries
    declared = len(hp.space)
    try:
        if order.measure is not None:
            from ...training.keras import step_times

            return step_times.run(code, hp, trial, order.measure, strategy)
        if code.objective is not None:
            return function_objective.run(code, hp, trial)
        return keras_objective.run(
            code,
            hp,
            trial,
            epochs=brief.limits.epochs or 1,
            incumbents=order.incumbents,
            strategy=strategy,
        )
    except Exception as error:
        if context.stated_cause(error) is not Cause.PRUNED:
            raise
        halt = trial.halt or Halt.PRUNE
        return Ending(halt.cause, reason=one_line(error))
    finally:
        # The result is that of what was suggested, also where the user's code sets other values: it
        # does so each time, and a search could not learn from values outside of its space.
        given, space = dict(order.params), hp.get_config()["space"]
        names = {str(each["config"]["name"]) for each in space}.intersection(hp.values)
        drawn = {name: _plain_value(hp.values[name]) for name in names.difference(given)}
        if drawn and not order.attempt.rank:
            active = {each.name for each in SearchSpace.from_json(space).active(given | drawn)}
            if used := {name: value for name, value in drawn.items() if name in active}:
                new = tuple(space[declared:])
                send(ParametersUsed(0.0, order.attempt, new, given | used))


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


def _plain_value(value: object) -> ParamValue:
    """Return the value that the user's code has set, in a form that any process can read."""
    from ...core.space.parameters.checks import plain

    value = plain(value)
    # A class of the user's own cannot be read elsewhere.
    is_builtin = type(value).__module__ == "builtins"
    if value is None or (is_builtin and isinstance(value, bool | int | float | str)):
        return value
    return str(value)


def _listen(channel: Channel, trial: Any, rank: Rank | None) -> None:
    # The order to stop is the last one; a closed channel means that the worker is gone.
    with contextlib.suppress(OSError, EOFError, UnreadableMessage):
        while not isinstance(order := channel.recv(), Halt):
            if rank is not None:
                rank.told(order)
        trial.request_stop(order)


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
