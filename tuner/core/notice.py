"""Why nothing happens: one line for those who look on."""

from __future__ import annotations

from collections.abc import Iterable

from .placement import Places
from .resources import Resources


def notice(
    places: Places, wanted: Iterable[Resources], usual: Resources, *, is_running: bool, refused: str
) -> str:
    """What a study waits for that may never come; empty if there is nothing to be said.

    Args:
        places: The workers.
        wanted: What the trials that wait ask for.
        usual: What the study's trials ask for.
        is_running: Whether any attempt runs.
        refused: Of the last worker that was refused: which, and why.
    """
    if not len(places):
        return "" if is_running else "; ".join(filter(None, ("waiting for a worker", refused)))
    sizes = list(wanted) or ([] if is_running else [usual])
    for size in sizes:
        if not places.could_hold(size):
            return (
                f"no worker can hold a trial of {size}: waiting for a larger one (or ask for less)"
            )
    return ""
