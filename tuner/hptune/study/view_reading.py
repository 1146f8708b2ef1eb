"""A study's view, read from its ledger in one transaction."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Protocol

from ..config.reference import in_python
from ..config.resolved import known_rungs, possible_trials
from ..config.settings import StudySettings
from ..core.goals import Goals
from ..core.messages import Finish, FinishReason, StopRequested
from ..core.space.space import SearchSpace
from ..core.trial import Trial, TrialState
from ..registry import shown_name
from ..reporting.results.view import TO_CONTINUE, StudyView
from ..storage.artifacts import StudyFiles
from ..storage.directory import StudyDirectory
from ..storage.ledger import LedgerReader, StudyFacts, damage_errors
from ..user_code.source import SourceKind


class MasterJob(Protocol):
    """What Slurm shows of the last job that was a study's master."""

    @property
    def is_gone(self) -> bool:
        """Whether Slurm has no such job any more."""

    @property
    def waits(self) -> bool:
        """Whether it waits to start."""


MasterJobOf = Callable[[StudyDirectory], MasterJob | None]
"""Returns what Slurm shows of a study's master; None if its master was no job, or if unknown."""


def settings_of(directory: StudyDirectory, facts: StudyFacts) -> StudySettings:
    """Return the settings in a ledger's facts.

    Raises:
        StudyError: They cannot be read.
    """
    with damage_errors(directory):
        return StudySettings.from_json(facts["settings"])


def judged(directory: StudyDirectory, goals: Goals, trials: Sequence[Trial]) -> list[Trial]:
    """Return a ledger's trials with what follows from their metrics.

    Raises:
        StudyError: A complete one lacks the value of an objective.
    """
    found = list(map(goals.judged, trials))
    with damage_errors(directory):
        for trial in found:
            if trial.state is TrialState.COMPLETE and len(trial.values) < len(goals.objectives):
                raise ValueError(f"trial {trial.number} is complete and has no value for {goals}")
    return found


class ViewReading:
    """What reads the view of a study. It looks at the files first, then at the ledger.

    So the ledger has the trials that the files are of.

    Args:
        directory: The study's directory.
        goals: Its goals.
        job_of: Asks Slurm for its master.
    """

    def __init__(
        self, directory: StudyDirectory, goals: Goals, job_of: MasterJobOf = lambda _: None
    ) -> None:
        self._directory = directory
        self._goals = goals
        files = StudyFiles(directory, goals)
        self._models = {number: str(path) for number, path in files.models().items()}
        self._best = files.best_number()
        self._master = directory.owner()
        # Before the ledger is read: nobody can write to it then, and Slurm may not answer at once.
        self._job = job_of(directory) if self._master is None else None

    def view(self, now: LedgerReader) -> StudyView:
        """Return the view, all of it of one state if the reader is that of a snapshot."""
        directory, goals, facts = self._directory, self._goals, now.facts()
        settings, space = settings_of(directory, facts), SearchSpace.from_json(facts["space"])
        tried = facts.get("model_loader", {})
        rungs = known_rungs(settings, facts["epochs"], goals)
        trials = _with_rungs(now, judged(directory, goals, now.trials()), rungs, goals)
        run = now.run_state()
        # Not asked only then: a master that ends now would count as killed.
        master = self._master or directory.owner()
        last = _last_finish(facts["ended"], None if master else run.stopping)
        is_submitted = facts.get("submitted", False)
        last = last if master else _with_job(last, self._job, is_submitted=is_submitted)
        is_queued = last is not None and last.finish_reason is FinishReason.HANDED_OVER
        # The first event of a run has the time of its command, before it was the master.
        is_beginning = master is not None and (
            run.is_closed or run.began_at < run.last_event_at < master.since
        )
        return StudyView(
            directory=str(directory.path),
            search=shown_name(settings.search),
            goals=goals,
            budget_trials=_total(settings.budget_trials, trials),
            trials=trials,
            attempts=now.attempts(),
            latest=now.last_reports(TO_CONTINUE),
            master=master,
            epochs=facts["epochs"],
            models=self._models,
            possible_trials=possible_trials(settings, space),
            space=space,
            device_budget=settings.device_budget,
            timeout_seconds=settings.timeout_seconds or None,
            last_finish=last,
            model_loader=tried["loader"] if tried and tried["trial"] == self._best else "study",
            workers=None if master is None or is_beginning else run.workers,
            is_beginning=is_beginning,
            is_measuring=master is not None and bool(facts.get("measuring")),
            # The job that Slurm starts again keeps it paused; a new one resumes it.
            paused_by=run.paused_by if master or (is_queued and not is_submitted) else "",
            notes=run.notes,
            run_seconds=run.run_seconds,
            last_event_at=run.last_event_at,
            remarks=_remarks(now, facts, settings, goals, trials),
            run_began_at=run.began_at,
            worded=in_python if settings.source.kind is SourceKind.PICKLE else str,
            created_at=facts["created_at"],
            is_open=master is None and run.without_master and facts["ended"] is None,
            carrier=facts.get("carrier", ""),
            rungs=rungs,
            last_values=_last_values(now, trials, goals),
        )


def _last_finish(ended: Mapping[str, str] | None, stopping: StopRequested | None) -> Finish | None:
    """Return how the last run ended; None if it was killed for no reason that the ledger has.

    Args:
        ended: What it recorded at its end.
        stopping: What had asked it to stop; it may be killed before all its trials have.
    """
    if ended is not None:
        return Finish(FinishReason(ended["finish_reason"]), ended["reason"])
    return None if stopping is None else Finish(stopping.finish_reason, stopping.reason)


def _with_job(last: Finish | None, job: MasterJob | None, *, is_submitted: bool) -> Finish | None:
    """Return how the last run ended, with what is known of its master's job, which is newer."""
    was_handed_over = last is not None and last.finish_reason is FinishReason.HANDED_OVER
    if job is not None and job.is_gone:
        return None if was_handed_over else last
    waits = job is not None and job.waits
    # The job of a master that was killed is there because Slurm starts it again.
    begins = is_submitted or (last is None and job is not None)
    if was_handed_over or not (waits or begins):
        return last
    does = "waits in Slurm" if waits else "starts" if job is not None else "was submitted"
    reason = f"the master's job {does}, and it continues the study by itself"
    return Finish(FinishReason.HANDED_OVER, reason)


def _last_values(
    now: LedgerReader, trials: Sequence[Trial], goals: Goals
) -> dict[int, list[float]]:
    """Return the last values of the trials that `advice` compares, by number."""
    from ..reporting.results.answers import COMPARED, LAST_VALUES, leading

    if len(goals.objectives) > 1:
        return {}
    found = {}
    for trial in leading(trials, goals.goal.direction)[:COMPARED]:
        rows = [row for row in now.reports(trial.number) if row.metric == goals.goal.metric]
        by_step = {row.step: row.value for row in rows}  # a later attempt repeats steps
        found[trial.number] = [by_step[step] for step in sorted(by_step)[-LAST_VALUES:]]
    return found


def _remarks(
    now: LedgerReader,
    facts: StudyFacts,
    settings: StudySettings,
    goals: Goals,
    trials: Sequence[Trial],
) -> list[str]:
    """Return what the reports of the first trial that has any say of the user's code."""
    from ..reporting.terminal.report_checks import ReportChecks

    first = next((trial for trial in trials if trial.step is not None), None)
    if first is None:
        return []
    pruner, has_own_epochs = shown_name(settings.pruner or "none"), "epochs" in first.params
    checks = ReportChecks(pruner, goals, facts["epochs"], has_own_epochs=has_own_epochs)
    return checks.observe_stored(now.reports(first.number))


def _with_rungs(
    now: LedgerReader, trials: Sequence[Trial], rungs: Sequence[int], goals: Goals
) -> Sequence[Trial]:
    """Return the trials with the rungs that they reached, which the ledger's rows lack."""
    if len(goals.objectives) > 1:
        return trials
    at: dict[int, dict[int, tuple[float, ...]]] = {}
    for rung in rungs:
        found = now.best_by(rung, goal=goals.goal)
        if not found:
            break
        for number, value in found.items():
            at.setdefault(number, {})[rung] = (value,)
    return [replace(each, rungs=at.get(each.number, {})) for each in trials] if at else trials


def _total(budget: int | None, trials: Sequence[Trial]) -> int | None:
    """Return the number of trials to suggest, which those that users added may exceed."""
    searched = sum(trial.confirms is None for trial in trials)
    return None if budget is None else max(budget, searched)
