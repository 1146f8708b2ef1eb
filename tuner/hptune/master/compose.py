"""A run's parts, put together: from its plan to the loop and to the event that opens it."""

from __future__ import annotations

from dataclasses import dataclass

from ..core.data_parallel import DataParallel
from ..core.engine.engine import Engine
from ..core.resources import Amount
from ..executors.base import Executor
from ..files.file_errors import storage_errors
from ..registry import shown_name
from ..reporting.terminal.progress import RunHeader
from ..storage.artifacts import StudyFiles
from ..storage.directory import StudyDirectory
from ..storage.ledger import Ledger
from ..storage.lock import MasterLock
from ..user_code.code_copy import copies_of
from ..user_code.source import SourceKind
from ..worker.dask.study_access import StudyAccess, prepare_access
from ..worker.orders import AttemptLimits, StudyBrief
from .loop import SplitChooser, StudyLoop
from .observers import RunObservers, StudyRecorder
from .plan import RunPlan
from .stop_requests import StopRequests
from .suggester import sampler_maker, sized
from .workforce import UNLIMITED_TRIALS, Workforce


@dataclass(frozen=True, slots=True)
class Run:
    """A run of a study: what its master works with.

    Attributes:
        plan: What was settled before the first trial.
        workers: The workers, and what reads the user's code.
        directory: Where the study is.
        lock: The right to write to it.
        ledger: Its ledger, open for writing.
        engine: Its engine, in the state that the last master left.
    """

    plan: RunPlan
    workers: Workforce
    directory: StudyDirectory
    lock: MasterLock
    ledger: Ledger
    engine: Engine

    @property
    def trials_to_run(self) -> int:
        """How many trials run or could begin once the study is opened."""
        total = self.plan.settings.budget_trials
        if total is None:
            return UNLIMITED_TRIALS
        trials = tuple(self.engine.trials)
        if self.plan.settings.first and not trials:
            return 1
        unfinished = sum(not trial.state.is_final for trial in trials)
        searched = sum(trial.confirms is None for trial in trials)
        again = len(self.plan.go_on) + len(self.plan.retried)
        return unfinished + max(0, total - searched) + again

    def header(self, *, began_at: float) -> RunHeader:
        """Return what is shown at the start; the time is that of the user's command."""
        plan, settings, cluster = self.plan, self.plan.settings, self.workers.cluster
        return RunHeader(
            study=str(self.directory),
            search=shown_name(settings.search),
            goal=str(plan.goals),
            trials=settings.budget_trials,
            parallelism=cluster.text(plan.layout),
            notes=(*plan.notes, *cluster.notes),
            epochs=plan.epochs,
            confirm=settings.confirm,
            confirm_times=settings.confirm_times,
            budget="" if settings.device_budget is None else str(settings.device_budget),
            timeout_seconds=settings.timeout_seconds or None,
            trial_timeout_seconds=settings.trial_timeout_seconds or None,
            began_at=began_at,
            earlier_seconds=self.engine.active_seconds,
            stops_early=settings.pruner not in (None, "none"),
        )


def compose(
    run: Run,
    *,
    executor: Executor,
    requests: StopRequests,
    observers: RunObservers,
    split: SplitChooser | None,
) -> StudyLoop:
    """Return the loop that runs the study."""
    plan, workers = run.plan, run.workers
    make_sampler = sampler_maker(
        plan.asked.sampler,
        plan.settings,
        goals=plan.goals,
        seed=plan.seed,
        studies=plan.studies,
    )
    return StudyLoop(
        engine=run.engine,
        recorder=StudyRecorder(run.ledger, observers.notifications),
        make_sampler=sized(make_sampler, workers.sized),
        space=plan.space,
        executor=executor,
        clock=workers.clock,
        brief=brief(run),
        files=_files(run),
        observer=observers,
        requests=lambda: [*workers.take_excluded(), *requests()],
        required_workers=workers.cluster.required_workers,
        split=split,
    )


def study_access(run: Run) -> StudyAccess | None:
    """Return how workers on other machines find the study; None if all are on this one.

    The study gets a copy of the model file in any case, to load its models with.
    """
    settings, source = run.plan.settings, run.plan.settings.source
    if source.kind is SourceKind.FILE:
        for copy in copies_of(source, run.directory.path):
            run.directory.draft(copy)
    path, token = run.directory.path, run.lock.owner.token
    with storage_errors(path):
        access = prepare_access(path, token, source, limit_bytes=settings.file_limit_bytes)
    return None if run.workers.cluster.is_local else access


def _files(run: Run) -> StudyFiles:
    """Return the study's files, without those of finished trials that need not be kept."""
    plan, engine = run.plan, run.engine
    keeps = plan.settings.keep_checkpoints > 0
    files = StudyFiles(run.directory, plan.goals, keep_checkpoints=keeps)
    kept = engine.kept
    unneeded = {t.number for t in engine.trials if t.state.is_final and t.number not in kept}
    files.sweep(unneeded, engine.checkpoints)
    return files


def brief(run: Run) -> StudyBrief:
    """Return what every attempt needs to know of the study."""
    plan, settings = run.plan, run.plan.settings
    outlives_master = run.workers.cluster.outlives_master
    limits = AttemptLimits(
        epochs=plan.epochs,
        trial_timeout_seconds=settings.trial_timeout_seconds or None,
        hang_timeout_seconds=settings.hang_timeout_seconds or None,
        checkpoint_every=settings.checkpoint_every,
        cache_bytes=settings.cache_bytes,
        wants_cache=settings.wants_cache,
        stop_at=settings.stop_at,
        data_parallel=DataParallel(settings.strategy, settings.batch_rule, settings.warm_up_epochs),
        master_grace_seconds=settings.master_grace_seconds if outlives_master else 0.0,
    )
    return StudyBrief(
        name=run.workers.name,
        directory=str(run.directory.path),
        source=settings.source,
        goals=plan.goals,
        limits=limits,
        deterministic=settings.seed is not None,
        packs_gpus=Amount.GPUS in plan.layout.measured,
        master=run.lock.owner.token,
    )
