"""How a study is opened for programs: its run is planned, and begins without a master."""

from __future__ import annotations

from ..errors import NoTrialError, StudyLockedError
from ..master.plan import RunPlan
from ..master.recovery import discard_journals, recovered
from ..master.resume_plan import (
    Changes,
    allowed_changes,
    nothing_left,
    plan_resume,
    resume_request,
)
from ..storage.directory import StudyDirectory
from ..storage.lock import MasterLock
from ..user_code.source import Found
from .followed import FollowedStudy
from .places import AskersPlaces, stored_code
from .state import FollowedState


class MasterWaitsError(StudyLockedError, NoTrialError):
    """The study goes on when its next master's job starts; until then no trial begins."""


_NO_CHANGES = Changes()


def opened(
    state: FollowedState,
    study: FollowedStudy,
    lock: MasterLock,
    changes: Changes = _NO_CHANGES,
    found: Found | None = None,
) -> FollowedStudy:
    """Return the study, opened for programs; one that goes on is left so if nothing changes.

    One that has nothing left to do is not opened.
    """
    past = study.past
    with state.recorded(study):
        if not study.is_open:
            _refuse_second_master(past.directory)
            study.happen(*recovered(past, study.now()))
        plan = _plan(study, changes, found)
        if study.goes_on and _is_same(plan, study):
            return study
        request = resume_request(allowed_changes(changes, past), past)
        if (over := nothing_left(request, past)) is not None:
            study.finish = over[0]
            return study
        study.happen(plan.opened(at=study.now(), without_master=True))
        facts, own = plan.facts(), past.facts["settings"]
        kept = {name: own[name] for name in ("source", "working_directory")}  # code runs elsewhere
        state.record(facts | {"settings": {**plan.settings.to_json(), **kept}})
    discard_journals(past.directory)
    return state.read_again(lock)


def _refuse_second_master(directory: StudyDirectory) -> None:
    from ..master.run import refuse_second_master  # loads what runs trials

    try:
        refuse_second_master(directory)
    except StudyLockedError as error:
        raise MasterWaitsError(error.message) from None


def changes_nothing(study: FollowedStudy, changes: Changes, found: Found | None) -> bool:
    """Return whether a study is as it would be with changes."""
    return _is_same(_plan(study, changes, found), study)


def _plan(study: FollowedStudy, changes: Changes, found: Found | None) -> RunPlan:
    request = resume_request(allowed_changes(changes, study.past), study.past)
    return plan_resume(request, study.past, found or stored_code(study.past), AskersPlaces())


def _is_same(plan: RunPlan, study: FollowedStudy) -> bool:
    """Return whether a plan changes nothing of a study."""
    if plan.settings != study.past.settings or plan.added or plan.retried:
        return False
    return plan.space == study.search.space
