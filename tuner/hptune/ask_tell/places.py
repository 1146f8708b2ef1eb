"""Programs as the places where trials run: what they hold, and which settings are of use there."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ..clusters.layout import WorkerLayout
from ..config.parallel_trials import Carrier
from ..config.resolved import Resolved
from ..config.settings import BY_NAME, SETTINGS
from ..core.goals import ENERGY
from ..core.resources import Capacity, Resources
from ..core.space.space import SearchSpace
from ..core.table import Section
from ..core.trial import Suggestion
from ..errors import UsageError
from ..master.past import Past
from ..user_code.source import Found

PLACE = Capacity(cpus=(0,))
"""What a program is counted as in the budget: one core."""

_SECTIONS = (Section.GOAL, Section.SEARCH, Section.AMOUNT, Section.PRUNING, Section.FAILURES)
SETTINGS_OF_PROGRAMS = {
    each.name
    for each in SETTINGS
    if each.section in _SECTIONS
    and each.name not in ("entry", "trial_timeout_seconds", "hang_timeout_seconds")
}
"""The settings of a study whose trials programs train; the others are of hptune's own workers."""


class AskersPlaces:
    """What a plan asks of the workers, where these are programs that ask for one trial each."""

    def placed(self, resolved: Resolved) -> tuple[WorkerLayout, Carrier]:
        """Return that a trial holds one core, whatever the program uses.

        Raises:
            UsageError: A goal is measured by workers of hptune's own.
        """
        if ENERGY in resolved.goals.metrics:
            raise UsageError(
                f"{ENERGY} is measured by workers of hptune's own, and here programs train the "
                "trials; name what they measure otherwise, such as joules"
            )
        return WorkerLayout(cores=[PLACE.cpus], resources=Resources(cpus=1, gpus=0)), Carrier()

    def at_once(self, layout: WorkerLayout) -> int:
        """Return that programs come one by one, as nobody knows how many there will be."""
        return layout.at_once

    def sized(self, space: SearchSpace, suggestions: Sequence[Suggestion]) -> Sequence[Suggestion]:
        """Return suggestions as they are."""
        del space
        return suggestions


def check_settings(given: Iterable[str]) -> None:
    """Check that settings are of use where programs train the trials.

    Raises:
        UsageError: One is for workers of hptune's own, or for a master.
    """
    if (name := next((name for name in given if name not in SETTINGS_OF_PROGRAMS), None)) is None:
        return
    words = "is for workers of hptune's own, and here programs train the trials; leave it out"
    setting = BY_NAME.get(name)
    if setting and setting.section is Section.NOTIFICATIONS:
        words = (
            "is for a master, and here none runs; leave it out. `hptune wait` ends when something "
            "happens, and `hptune export --follow` sends trials to a tool"
        )
    raise UsageError(f"{setting.flag if setting else '--model-file'} {words}")


def stored_code(past: Past) -> Found:
    """Return what a study's code has declared, as the study has it."""
    return Found(
        is_keras=past.facts["is_keras"],
        space=tuple(past.facts["declared_space"]),
        constants={},
        entry=past.settings.entry,
    )
