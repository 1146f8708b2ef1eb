"""The state of a study, shown again and again until the study is over."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TextIO

from ...core.snapshot import RunningAttempt, StudySnapshot
from ..results.view import StudyView
from .progress import RunHeader

if TYPE_CHECKING:  # loads rich, which takes a tenth of a second
    from rich.text import Text

    from .frame import Frames

REFRESH_SECONDS = 1.0
"""Time between two redraws."""


@dataclass(frozen=True, slots=True)
class Watched:
    """A study at one instant.

    Attributes:
        state: Returns its state in words, as `hptune status` prints it; that takes much longer
            than the screen of a run, which does not show it.
        is_over: Whether it neither runs nor waits.
        view: The study; None while there is only a job that waits.
        jobs: Which jobs bring the workers, in words.
    """

    state: Callable[[], str]
    is_over: bool
    view: StudyView | None = None
    jobs: str = ""


def watch(read: Callable[[], Watched], stream: TextIO) -> None:
    """Show a study until it is over.

    On a terminal, it has the screen of the run itself, redrawn in place, and then the last state;
    else its state is written at the start and the end.
    """
    watched = read()
    if not stream.isatty():
        stream.write(f"{watched.state()}\n")
        stream.flush()
        if not watched.is_over:
            while not (watched := read()).is_over:
                time.sleep(REFRESH_SECONDS)
            stream.write(f"\n{watched.state()}\n")
        return

    from rich.console import Console, Group
    from rich.live import Live
    from rich.text import Text

    from .frame import Frames

    console = Console(file=stream, highlight=False, markup=False, emoji=False)
    screen = _Screen(Frames(refresh_seconds=0.0))
    with Live(Text(), console=console, auto_refresh=False) as live:
        while not watched.is_over:
            width, height = console.size
            live.update(Group(*screen.lines(watched, width=width, height=height)), refresh=True)
            time.sleep(REFRESH_SECONDS)
            watched = read()
        live.update(Text(watched.state()), refresh=True)
        # Cropped to the terminal's height so far; what stays on the screen is whole.
        live.vertical_overflow = "visible"


class _Screen:
    """The run's screen, drawn from what the ledger has."""

    def __init__(self, frames: Frames) -> None:
        self._frames = frames
        self._ended: set[int] | None = None

    def lines(self, watched: Watched, *, width: int, height: int) -> list[Text]:
        """Return what is to be shown: the state in words of a study that does not run."""
        from rich.text import Text

        view = watched.view
        if view is None or view.master is None:
            return [Text(watched.state())]
        now = time.time()
        header = _header(view, now)
        final = [trial for trial in view.trials if trial.state.is_final]
        if self._ended is None:
            self._frames.start(header)
            self._ended = {trial.number for trial in final}
        new = [trial for trial in final if trial.number not in self._ended]
        self._ended.update(trial.number for trial in new)
        self._frames.update(_snapshot(view, watched.jobs), new, now)
        head = [Text(line, no_wrap=True, overflow="ellipsis") for line in header.lines()]
        drawn = self._frames.draw(now, width=width, height=height - len(head) - 1)
        return [*head, Text(), *drawn]


def _header(view: StudyView, now: float) -> RunHeader:
    assert view.master is not None
    since = view.master.since
    return RunHeader(
        study=view.directory,
        search=view.search,
        goal=str(view.goals),
        trials=view.budget_trials,
        parallelism=f"on {view.master.host} in process {view.master.pid}",
        epochs=view.epochs,
        began_at=since or None,
        earlier_seconds=max(0.0, view.seconds(now) - (now - since)) if since else 0.0,
        stops_early=bool(view.rungs),
    )


def _snapshot(view: StudyView, jobs: str) -> StudySnapshot:
    trials = {trial.number: trial for trial in view.trials}
    earlier: defaultdict[int, float] = defaultdict(float)
    for attempt in view.attempts:
        earlier[attempt.id.trial] += 0.0 if attempt.outcome is None else attempt.seconds(0.0) or 0.0
    running = [
        RunningAttempt(trials[number], attempt, view.latest.get(attempt.id), earlier[number])
        for attempt in (view.open_attempts if view.is_live else ())
        if (number := attempt.id.trial) in trials  # it may have begun after the trials were read
    ]
    held = [run.attempt.placement for run in running]
    return StudySnapshot(
        goals=view.goals,
        budget_trials=view.all_trials,
        counts=view.counts,
        front=view.front,
        running=tuple(running),
        workers=view.workers or 0,
        cpus=0,
        cpus_held=sum(len(each.cpus) for each in held),
        gpus=0,
        gpus_held=sum(len(each.gpus) for each in held),
        stall_reason="",
        stopping="",
        paused_by=view.paused_by,
        interrupted=view.interrupted,
        jobs=jobs,
    )
