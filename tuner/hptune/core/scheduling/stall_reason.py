"""The reason why no trial starts, in one line for the user."""

from __future__ import annotations

from collections.abc import Iterable

from ..resources import Resources
from .cluster import ClusterState


def stall_reason(
    cluster_state: ClusterState,
    wanted: Iterable[Resources],
    usual: Resources,
    *,
    is_running: bool,
    refused: str,
    at: float,
    step_seconds: float,
) -> str:
    """Return what a study waits for that may never come; empty if nothing.

    Args:
        cluster_state: The workers.
        wanted: What the waiting trials ask for.
        usual: What the study's trials usually ask for.
        is_running: Whether any attempt runs.
        refused: The last worker that was refused and why; empty if none was.
        at: Now, in seconds since the epoch.
        step_seconds: How long the next step of a trial may take; 0 if unknown.
    """
    if not cluster_state.any_stays:
        return "" if is_running else "; ".join(filter(None, ("waiting for a worker", refused)))
    sizes = list(wanted) or ([] if is_running else [usual])
    for size in sizes:
        if not cluster_state.could_hold(size):
            if size.nodes > 1:
                each = size.of_one_node.amounts
                return (
                    f"no {size.nodes} nodes with {each} each for a trial: waiting for more nodes "
                    "(or ask for less)"
                )
            return (
                f"no worker can hold a trial of {size}: waiting for a larger one (or ask for less)"
            )
        if not cluster_state.could_hold(size, at + step_seconds):
            if not step_seconds:
                return "the workers that can hold a trial are about to end: waiting for another one"
            return (
                f"the next step of a trial may take {step_seconds:.0f} s, but all workers that "
                "can hold it end before that: waiting for another one"
            )
    return ""
