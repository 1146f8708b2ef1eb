"""How users ask something of a running study.

Every command and the live page ask in the same way. `ask` checks the request against the ledger,
appends it to `DIR/requests`, and waits. The master (`master/user_requests`) checks it against the
engine's state and answers with an event in the ledger, which `ask` finds there::

    hptune stop DIR --trial 7     {"action": "stop a trial", "trial": 7, "by": "ada (…)", …}
    the master                    UserRequested(trial=7, by="ada (…)"), [Stop(7.0, PRUNE)]
    hptune                        finds the event, and waits until trial 7 is PRUNED
"""

from __future__ import annotations

import os
import secrets
import shlex
import sys
from collections.abc import Mapping, Sequence

from .. import text
from ..core.clock import polls
from ..core.messages import UserRequested
from ..core.space.completion import completed, known_configurations
from ..core.space.space import SearchSpace
from ..core.trial import ADDED, Params, Suggestion, Trial
from ..core.user_requests import Note, UserAction, UserRequest
from ..errors import StudyError, UsageError
from ..files.ownership import user_name
from .directory import StudyDirectory
from .ledger.reader import LedgerReader

WAIT_SECONDS = 60.0
"""Longest time to wait for an answer: a master writes to a slow disk, or is suspended."""

AGENT = "HPTUNE_AGENT"
"""The variable with the name of an agent that asks in the user's place."""

_MOST_CHARACTERS = 1000
"""Of a command that an agent asked for."""

_ANSWER_POLL_SECONDS = 0.2
"""How often the ledger is read for an answer."""


def send(directory: StudyDirectory, action: UserAction, *, tool: str) -> None:
    """Ask the master of a study for something, without waiting for an answer.

    Args:
        directory: Where the study is.
        action: What is asked for.
        tool: What the user asks with, such as "hptune stop".
    """
    directory.requests.append(new_request(action, tool=tool))


def ask(
    directory: StudyDirectory,
    action: UserAction,
    *,
    tool: str,
    trial: int | None = None,
    points: Sequence[Mapping[str, object]] = (),
    note: Note | None = None,
    wait_seconds: float = WAIT_SECONDS,
) -> UserRequested:
    """Ask the master of a study for something, and return its answer.

    Args:
        directory: Where the study is.
        action: What is asked for.
        tool: What the user asks with, such as "hptune stop".
        trial: The trial to stop, or the one that the note is about.
        points: The configurations to try, given in part.
        note: What is written.
        wait_seconds: Longest time to wait for the answer.

    Raises:
        UsageError: The request is wrong: an unknown trial, a value outside the space, …
        StudyError: The study does not run, or its master refused or did not answer.
    """
    reader = LedgerReader(directory)
    check(directory, reader, action, trial=trial, points=points)
    request = new_request(action, tool=tool, trial=trial, points=points, note=note)
    directory.requests.append(request)
    for _ in polls(wait_seconds, _ANSWER_POLL_SECONDS):
        owner = directory.owner()  # before the ledger, which an ending master may still write
        answer = next((e for e in reader.user_requests() if e.request == request.name), None)
        if answer is not None:
            break
        if owner is None:
            raise StudyError(f"the study in {directory} ended before it took the request")
    else:
        if reader.facts().get("measuring"):
            raise StudyError(
                "the study still measures training steps, and answers when it has done so. "
                f"See `hptune status {directory}`"
            )
        raise StudyError(
            f"the study's master ({owner}) has not answered for {wait_seconds:g} seconds; it "
            f"may still do so. See `hptune status {directory}`"
        )
    if answer.refused:
        raise StudyError(f"the study refused: {answer.refused}")
    return answer


def check(
    directory: StudyDirectory,
    reader: LedgerReader,
    action: UserAction,
    *,
    trial: int | None = None,
    points: Sequence[Mapping[str, object]] = (),
) -> None:
    """Check a request against the ledger.

    Args:
        directory: Where the study is.
        reader: Its ledger.
        action: What is asked for.
        trial: The trial to stop.
        points: The configurations to try.

    Raises:
        UsageError: The request is wrong.
        StudyError: The study does not run.
    """
    if directory.owner() is None:
        is_open = reader.run_state().without_master and reader.facts()["ended"] is None
        words = _OPEN if is_open else _NOT_RUNNING
        raise StudyError(words.get(action, _NOT_RUNNING[action]).format(directory=directory))
    if action is UserAction.STOP_TRIAL:
        check_not_over(trial, reader.trials())
    elif action is UserAction.ENQUEUE:
        facts, trials = reader.snapshot(lambda now: (now.facts(), now.trials()))
        new_trials(points, SearchSpace.from_json(facts["space"]), trials)


_NOT_RUNNING = {
    UserAction.STOP: "the study in {directory} is not running, so there is nothing to stop",
    UserAction.STOP_TRIAL: "the study in {directory} has no master, which alone stops single "
    "trials. `hptune resume {directory}` starts one; `hptune stop {directory}` cancels jobs that "
    "the last one left",
    UserAction.ENQUEUE: "the study in {directory} is not running; try a configuration when it "
    "resumes, with `hptune resume {directory} --try …`",
    UserAction.PAUSE: "the study in {directory} is not running, so there is nothing to pause",
    UserAction.RESUME: "the study in {directory} is not running; resume it with "
    "`hptune resume {directory}`",
    UserAction.NOTE: "the master of the study in {directory} has just ended; try again in a minute",
}


_OPEN = {
    UserAction.STOP: "programs ask for the trials of the study in {directory}; stop it with "
    "`hptune stop {directory}`",
    UserAction.STOP_TRIAL: "programs train the trials of the study in {directory}; end one with "
    "`hptune tell {directory} TRIAL --failed WHY`",
    UserAction.ENQUEUE: "programs ask for the trials of the study in {directory}; enqueue one with "
    "`hptune resume {directory} --try …`",
    UserAction.PAUSE: "programs ask for the trials of the study in {directory}, and only a master "
    "pauses; `hptune stop {directory}` ends them, and `hptune resume {directory}` continues",
}


def check_exists(number: int | None, trials: Sequence[Trial]) -> Trial:
    """Return the trial of a number.

    Raises:
        UsageError: There is none.
    """
    if number is None or not 0 <= number < len(trials):
        there = f"the trials are 0 to {len(trials) - 1}" if trials else "there is none yet"
        raise UsageError(f"there is no trial {number}; {there}")
    return trials[number]


def check_not_over(number: int | None, trials: Sequence[Trial]) -> None:
    """Check that there is a trial of a number, and that it can still be stopped.

    Raises:
        UsageError: It cannot.
    """
    state = check_exists(number, trials).state
    if state.is_final:
        raise UsageError(
            f"trial {number} is {state.lower()}; only one that runs, waits or is paused can be "
            "stopped"
        )


def new_trials(
    points: Sequence[Mapping[str, object]],
    space: SearchSpace,
    trials: Sequence[Trial],
    accepted: Sequence[Params] = (),
) -> list[Suggestion]:
    """Return the configurations as whole ones, none of which the study has.

    Args:
        points: The configurations, given in part.
        space: The search space.
        trials: The study's trials.
        accepted: Configurations that were added, of which some may be no trials yet.

    Raises:
        UsageError: One lies outside the space, is given twice, or is a trial already.
    """
    found = [completed(space, point) for point in points]
    known = known_configurations(space, trials, accepted, retry_hint=_RETRY)
    for params in found:
        key = space.key(params)
        if key in known:
            raise UsageError(f"{' '.join(text.assignments(params))} {known[key]}")
        known[key] = "is given twice"
    return [Suggestion(params, ADDED) for params in found]


_RETRY = (
    "when the study has ended or was stopped, `hptune resume DIR --retry-failed` runs failed "
    "trials again"
)


def new_request(
    action: UserAction,
    *,
    tool: str,
    trial: int | None = None,
    points: Sequence[Mapping[str, object]] = (),
    note: Note | None = None,
) -> UserRequest:
    """Return a request of this user, who asks with a tool such as "hptune stop"."""
    agent = os.environ.get(AGENT)
    by = f"{f'{agent[:40]} for ' if agent else ''}{user_name(os.geteuid())} ({tool})"
    return UserRequest(secrets.token_hex(8), action, by, trial, tuple(points), note)


def note_agent(directory: StudyDirectory) -> None:
    """Have the master of a study that an agent starts note who asked for what, if one did."""
    if os.environ.get(AGENT):
        command = shlex.join(["hptune", *sys.argv[1:]])[:_MOST_CHARACTERS]
        note = Note(f"asked for: {command}")
        directory.requests.append(new_request(UserAction.NOTE, tool="hptune", note=note))
