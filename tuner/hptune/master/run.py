"""Start a study or resume it: read the user's code, find workers, run the loop."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ..clusters.choice import choose_cluster
from ..config.asked import Asked
from ..config.plugins import pruner_maker
from ..config.resolved import check_plug_ins, resolve
from ..config.settings import StudySettings
from ..core.clock import SystemClock
from ..core.engine.engine import Engine
from ..core.messages import Event, Finish, FinishReason
from ..core.space.space import SearchSpace
from ..errors import HptuneError, StudyError, UnknownMetricError, UsageError
from ..executors.parallel import ParallelExecutor
from ..files.access import exists, is_file
from ..registry import shown_name
from ..reporting.terminal.notifications import Notifications
from ..reporting.terminal.report_checks import ReportChecks
from ..storage.artifacts import StudyFiles
from ..storage.asking import note_agent
from ..storage.directory import StudyDirectory
from ..storage.ledger import Ledger
from ..storage.lock import MasterLock
from ..storage.turn import acquired
from ..storage.whose import Use
from ..text import duration, plural, sentence
from .code_reader import reading
from .compose import Run, compose, study_access
from .exit_errors import raise_finish
from .mirror import mirrored
from .notify import Notifier
from .observers import PackingLines, RunDisplay, RunObservers
from .past import Past
from .plan import check_named, plan_start
from .programs import BESIDE_PROGRAMS_SECONDS
from .recovery import discard_journals, recovered
from .resume_checks import refuse_without_code
from .resume_plan import Changes, allowed_changes, nothing_left, plan_resume, resume_request
from .stop_requests import STOP_POLL_SECONDS, StopRequests, end_process
from .user_requests import UserRequests
from .workforce import Workforce

if TYPE_CHECKING:
    from .chosen_split import ChosenSplit

Stored = Callable[[], contextlib.AbstractContextManager[object]]

_READING_NOTE_SECONDS = 2.0
_LOCKED_NOTE_SECONDS = 5.0
"""Time for which another program may keep the ledger locked before the user is told."""


@dataclass(frozen=True, slots=True)
class RunResult:
    """Outcome of a run.

    Attributes:
        finish: How it ended.
        left_behind: What could not be stopped, and how the user stops it; empty for nothing.
    """

    finish: Finish
    left_behind: str = ""


def start(
    request: Asked,
    directory: StudyDirectory,
    *,
    display: RunDisplay,
    client: Any = None,
    stored: Stored = contextlib.nullcontext,
) -> RunResult:
    """Start a study and run it to its end.

    Args:
        request: What the user asked for.
        directory: Where to keep the study; must not hold one yet.
        display: Where the progress is shown.
        client: A `distributed.Client` whose workers to use; None for the settings' choice.
        stored: Stores code and data in the directory. Called when this process has the study's
            lock, as the trials of another master may read those that are there.

    Raises:
        UsageError: Something in the request or in the user's code is wrong. No study was made.
        StudyError: The study had to stop; it can be resumed.
    """
    directory.check_place()
    try:
        check_named(request.settings)
        directory.create()
        # `hptune stop` finds this master, and waits for it, as soon as it has the lock.
        directory.requests.skip()
        note_agent(directory)
        with directory.acquire() as lock, contextlib.ExitStack() as stack:
            try:
                with lock.beating():
                    stack.enter_context(stored())
                workers = Workforce(request, choose_cluster(request, directory.path, client))
                return _start(request, directory, lock, workers, display)
            except UsageError as error:
                kept = any(directory.trials.glob("*")) and not isinstance(error, UnknownMetricError)
                if kept or not directory.has_ledger:
                    raise
                # It would keep its name from the corrected command.
                directory.remove()
                words = f"{sentence(error.message)} The study in {directory} was removed."
                raise type(error)(words, error.detail) from None
            finally:
                if not directory.has_ledger:
                    directory.remove()
    finally:
        directory.give_up()  # if no study was made


def _start(
    request: Asked,
    directory: StudyDirectory,
    lock: MasterLock,
    workforce: Workforce,
    display: RunDisplay,
) -> RunResult:
    with lock.beating():
        workforce.cluster.prepare(display.progress.note)
    settings = request.settings
    _note_reading(settings, directory, display)
    with workforce as workers:
        with lock.beating():
            found = workers.code.read(directory.path, display.progress.busy)
            plan = plan_start(resolve(request, found), workers, directory)
            facts = plan.first_facts(created_at=workers.clock.now())
        with Ledger.create(directory, facts, lock=lock, while_locked=_patience(display)) as ledger:
            run = Run(plan, workers, directory, lock, ledger, Engine(pruner_maker(settings)))
            return _run_and_stop(run, display)


def resume(
    directory: StudyDirectory,
    changes: Changes,
    *,
    display: RunDisplay,
    client: Any = None,
    stored: Stored = contextlib.nullcontext,
) -> RunResult:
    """Continue a study where its last master left it.

    Args:
        directory: Where the study is.
        changes: What the user asks of it.
        display: Where the progress is shown.
        client: As for `start`.
        stored: As for `start`.

    Raises:
        NoStudyError: There is no study.
        StudyLockedError: Another master runs it, or a job waits that is to be its master.
        SpaceChangedError: The model file declares another search space than before.
        UsageError: As for `start`.
        StudyError: The study had to stop; it can be resumed.
    """
    directory.open(Use.RUN)
    if directory.owner() is None:
        refuse_second_master(directory)
    # Requests are meant for this master as soon as it has the lock.
    directory.requests.skip()
    note_agent(directory)
    with contextlib.ExitStack() as stack:
        lock = stack.enter_context(acquired(directory))
        with lock.beating():
            stack.enter_context(stored())
        ledger = stack.enter_context(
            Ledger.open(directory, lock=lock, while_locked=_patience(display))
        )
        past = Past.begin(directory, ledger.facts)
        refuse_without_code(past)
        changes = allowed_changes(changes, past)
        with lock.beating():
            past.read(_noted_events(ledger, display))
        engine = past.engine
        engine.take_changes()
        ledger.check(engine.trials)
        # Checked before attempts of the last master, which may still run, are told to stop.
        request = resume_request(changes, past)
        settings = request.asked.settings
        _recover(ledger, past)
        if (over := nothing_left(request, past)) is not None:
            finish, lines = over
            _cancel_left_jobs(directory, display)
            for line in lines:
                display.note(line)
            return RunResult(finish)
        if not request.asked.cluster.takes_over:
            try:
                _cancel_left_jobs(directory, display)
            except StudyError as error:  # a study may continue where there is no Slurm
                display.note(
                    f"Slurm jobs of an earlier run may be left ({error.__cause__ or error}); they "
                    "end by themselves, as they find no master"
                )
        workforce = Workforce(request.asked, choose_cluster(request.asked, directory.path, client))
        with lock.beating():
            workforce.cluster.prepare(display.progress.note)
        _note_reading(settings, directory, display)
        with workforce as workers:
            with lock.beating():
                found = workers.code.read(directory.path, display.progress.busy)
                plan = plan_resume(request, past, found, workers)
                check_plug_ins(plan.resolved, seed=plan.seed)
            ledger.set_facts(plan.facts())
            run = Run(plan, workers, directory, lock, ledger, engine)
            return _run_and_stop(run, display)


def _noted_events(ledger: Ledger, display: RunDisplay) -> Iterator[Event]:
    """Yield every event; where a large study keeps the user waiting, say how far it is read."""
    note_at = time.monotonic() + _READING_NOTE_SECONDS
    count = ledger.event_count()
    for number, event in enumerate(ledger.events()):
        if time.monotonic() >= note_at and not display.is_quiet:
            note_at += 5 * _READING_NOTE_SECONDS
            display.note(f"reading the study's past: {number / count:.0%} of {count} events")
        yield event


def refuse_second_master(directory: StudyDirectory) -> None:
    """Check that no job waits that is to be the study's master.

    Raises:
        StudyLockedError: One does.
    """
    if not exists(directory.path / "jobs"):
        return
    from ..clusters import slurm_master  # loads what submits jobs

    slurm_master.refuse_second_master(directory)


def _cancel_left_jobs(directory: StudyDirectory, display: RunDisplay) -> None:
    """Cancel the Slurm jobs of an earlier master; this run has no use for them."""
    if not exists(directory.path / "jobs"):
        return
    from ..clusters.slurm_master import cancel_jobs  # loads what submits jobs

    if count := cancel_jobs(directory, is_master=True):
        display.note(f"cancelled {plural(count, 'Slurm job')} of an earlier run")


def _recover(ledger: Ledger, past: Past) -> None:
    """Record what attempts have reported while the study had no master."""
    events = recovered(past, SystemClock().now())
    if events:
        for event in events:
            past.handle(event)
        trials, attempts = past.engine.take_changes()
        ledger.append(events, trials=trials, attempts=attempts)
    discard_journals(past.directory)


def _run_and_stop(run: Run, display: RunDisplay) -> RunResult:
    """Run the study; the workers stop while this process still holds its lock."""
    settings = run.plan.settings
    notifier = Notifier(settings, str(run.directory.path.absolute()), display.note)
    # The mirror reads in the ledger of the end.
    with mirrored(settings, run.directory, display.note) as mirror:
        try:
            return _run(run, display, notifier, mirror)
        except BaseException as error:
            if left := run.workers.cluster.left_behind:
                display.note(left)
            with contextlib.suppress(StudyError):  # of a ledger that cannot be read or written
                if isinstance(error, HptuneError) and run.ledger.facts["ended"] is None:
                    _record_end(run, FinishReason.FAILED, error.message)
            if isinstance(error, Exception):  # a second Ctrl-C waits for nothing
                notifier.end(run.engine.snapshot, FinishReason.FAILED, str(error))
            raise


def _record_end(run: Run, finish_reason: FinishReason, reason: str) -> None:
    ended = {"finish_reason": str(finish_reason), "reason": reason}
    run.ledger.set_facts({"ended": ended})


def _run(
    run: Run, display: RunDisplay, notifier: Notifier, mirror: Callable[[], None]
) -> RunResult:
    plan, cluster = run.plan, run.workers.cluster
    executor = ParallelExecutor(cluster.executor(plan.layout, study_access(run)), run.workers.clock)
    requests = _requests(run, display)
    observers = replace(_observers(run, executor, display, notifier), mirror=mirror)
    split = _chosen_split(run, display)
    loop = compose(run, executor=executor, requests=requests, observers=observers, split=split)
    # From the first job until the workers are gone, Ctrl-C ends the run in good order.
    with (
        requests.from_signals(wake=executor.wake, end_at_once=observers.end_at_once),
        contextlib.closing(run.workers),
    ):
        # Workers that outlive this master are told by its last heartbeat that it has ended.
        with observers.until_stopped(), run.lock.beating():
            if not plan.retries_nodes:
                cluster.exclude(run.engine.workers.unfit_nodes)
            # A pause lasts until a user resumes the study.
            keeps_pause = cluster.was_requeued and bool(run.engine.snapshot.paused_by)
            cluster.scale_up(plan.layout.resources, 0 if keeps_pause else run.trials_to_run)
            run.ledger.set_facts({"measuring": False})
            display.progress.start(run.header(began_at=display.began_at))
            earlier = split.measured(executor, requests) if split is not None else ()
            splits = split is not None and split.is_known
            # A run's time begins with the user's command, and so with what all displays show.
            opened = plan.opened(at=display.began_at, splits=splits)
            finish = loop.run(replace(opened, keeps_pause=keeps_pause), earlier)
            requests.close()
        _record_end(run, finish.finish_reason, finish.reason)
        discard_journals(run.directory)
        if finish.finish_reason is not FinishReason.INTERRUPTED:
            # A login node first imports the framework, for which no job is to wait.
            cluster.scale_down()
            with run.lock.beating():
                _try_best_model(run)
    notifier.end(run.engine.snapshot, finish.finish_reason, finish.reason)
    raise_finish(finish, run)
    return RunResult(finish, cluster.left_behind)


def _chosen_split(run: Run, display: RunDisplay) -> ChosenSplit | None:
    """Return what chooses the devices of each trial; None if the user gave their number."""
    if not run.plan.settings.chooses_split:
        return None
    from .chosen_split import ChosenSplit  # loads what measures

    return ChosenSplit(run, display.progress.note)


def _observers(
    run: Run, executor: ParallelExecutor, display: RunDisplay, notifier: Notifier
) -> RunObservers:
    plan, known = run.plan, run.engine.snapshot
    has_own_epochs = any(parameter.name == "epochs" for parameter in plan.space)
    pruner = shown_name(plan.asked.pruner.name)
    notifications = Notifications(
        run.engine.workers,
        ReportChecks(pruner, plan.goals, plan.epochs, has_own_epochs=has_own_epochs),
        workers_are_known=run.workers.cluster.is_local,
        memory_bytes=plan.layout.resources.memory_bytes,
        has_checkpoint=StudyFiles(run.directory, plan.goals).can_continue,
    )
    packing = PackingLines((known.packing, known.packing_advice))
    return RunObservers(display, notifications, run.workers, executor, notifier, packing)


def _patience(display: RunDisplay) -> Callable[[float, str], None]:
    """Return what tells the user that another program has the ledger locked."""
    next_note = _LOCKED_NOTE_SECONDS

    def wait(seconds: float, what: str) -> None:
        nonlocal next_note
        if seconds < _LOCKED_NOTE_SECONDS:
            next_note = _LOCKED_NOTE_SECONDS
        elif seconds >= next_note:
            next_note = 10 * next_note
            display.note(
                f"{what}, for {duration(seconds)} now; trials continue, but the study waits until "
                "it is free (Ctrl-C twice leaves)"
            )

    return wait


def _try_best_model(run: Run) -> None:
    """Record how the best model can be loaded."""
    files = StudyFiles(run.directory, run.plan.goals)
    number, path = files.best_number(), files.model_path()
    if number is None or path is None or not is_file(path):
        return
    params = tuple(run.engine.trials)[number].params
    loader = run.workers.code.model_loader(path, run.ledger.facts["space"], params)
    if loader:
        run.ledger.set_facts({"model_loader": {"trial": number, "loader": loader}})


def _requests(run: Run, display: RunDisplay) -> StopRequests:
    def end(successor: str) -> None:
        if successor:
            reason = f"{successor}, and it continues the study by itself"
            with contextlib.suppress(StudyError):
                _record_end(run, FinishReason.HANDED_OVER, reason)
        display.progress.stop()
        end_process()

    users = UserRequests(
        run.directory.requests,
        run.engine,
        lambda: SearchSpace.from_json(run.ledger.facts["space"]),
        run.workers.sized,
        run.lock.owner.token,
    )
    return StopRequests(
        run.lock,
        run.workers.clock,
        users=users,
        timeout_seconds=run.plan.settings.timeout_seconds or None,
        counts_from=display.began_at - run.engine.active_seconds,
        overspent=run.engine.overspent,
        may_stop=run.workers.cluster.stops_on_signal(display.progress.note, end),
        poll_seconds=lambda: BESIDE_PROGRAMS_SECONDS if run.engine.leased else STOP_POLL_SECONDS,
    )


def _note_reading(settings: StudySettings, directory: StudyDirectory, display: RunDisplay) -> None:
    if warning := directory.writers_warning():
        display.note(warning)
    # Before the workers open, which loads Dask.
    display.progress.busy(reading(settings.source, directory.path))
