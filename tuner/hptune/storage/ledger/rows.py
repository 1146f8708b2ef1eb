"""The rows of the ledger's tables: trials, attempts and reports, as they are written and read.

SQLite does not enforce the types of columns, so each cell that is read is checked.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from ...core.attempt import Attempt, AttemptId, Cause, HeldBefore, Outcome, Usage
from ...core.resources import Placement
from ...core.trial import Params, Trial, TrialState
from .codec import checked_time, dumps, loads, structured

SELECT_TRIALS = """SELECT number, state, params, value, step, metrics, origin, epochs, unused,
    attempts, reason, detail FROM trials"""
_USAGE = (
    "peak_memory_bytes", "peak_gpu_memory_bytes", "cpu_seconds", "seconds", "seconds_per_step",
    "starved_seconds",
)  # fmt: skip
"""The columns of `attempts` that hold an `Usage`; all are NULL if nothing was measured."""
_ENERGY = ("gpu_joules", "processor_joules")
"""What else a `Usage` has; the column `devices` holds it where it was measured."""
SELECT_ATTEMPTS = f"""SELECT trial, number, outcome, worker, node, devices, placed, started, ended,
    reason, cause, {", ".join(_USAGE)} FROM attempts"""  # noqa: S608 - names of our own
SELECT_REPORTS = "SELECT trial, attempt, step, metric, value, time FROM reports"


def text(value: str) -> str:
    """Return the text as SQLite accepts it: a file name may hold bytes that are not Unicode."""
    return value if value.isascii() else value.encode("utf-8", "backslashreplace").decode("utf-8")


def report_of(row: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return a row of `SELECT_REPORTS`.

    Raises:
        TypeError: A cell has another type than its column.
    """
    return _checked(row, _REPORT_TYPES)


def trial_row(trial: Trial) -> tuple[object, ...]:
    """Return a trial as a row of `SELECT_TRIALS`."""
    return (
        trial.number,
        trial.state.value,
        dumps(dict(trial.params)),
        trial.value,
        trial.step,
        dumps(dict(trial.metrics)),
        text(trial.origin),
        trial.epochs,
        dumps(list(trial.unused)),
        trial.attempts,
        text(trial.reason),
        text(trial.detail),
    )


def trial_of(row: tuple[Any, ...]) -> Trial:
    """Return the trial of a row of `SELECT_TRIALS`.

    Raises:
        TypeError: A cell has another type than its column.
    """
    cells = _checked(row, _TRIAL_TYPES)
    number, state, params, value, step, metrics, origin, epochs, unused, attempts, *words = cells
    reason, detail = words
    return Trial(
        number=number,
        params=structured(loads(params), Params),
        origin=origin,
        state=TrialState(state),
        value=value,
        step=step,
        metrics=structured(loads(metrics), Mapping[str, float]),
        epochs=epochs,
        unused=structured(loads(unused), tuple[str, ...]),
        attempts=attempts,
        reason=reason,
        detail=detail,
    )


_HELD = ("cpus", "gpus", "memory_bytes", "gpu_share", "gpu_memory_bytes", "cpu_share")
"""What the column `devices` holds of a placement."""


def attempt_row(attempt: Attempt) -> tuple[object, ...]:
    """Return an attempt as a row of `SELECT_ATTEMPTS`."""
    placement = attempt.placement
    devices = _devices(placement)
    if attempt.why:
        devices["why"] = text(attempt.why)
    energy = {name: getattr(attempt.usage, name, None) for name in _ENERGY}
    devices |= {name: joules for name, joules in energy.items() if joules is not None}
    if attempt.before:
        devices["before"] = asdict(attempt.before)
    if placement.peers:
        devices["peers"] = [
            {"worker": text(peer.worker), "node": text(node), **_devices(peer)}
            for peer, node in zip(placement.peers, attempt.peer_nodes, strict=True)
        ]
    return (
        attempt.id.trial,
        attempt.id.number,
        None if attempt.outcome is None else attempt.outcome.value,
        text(placement.worker),
        text(attempt.node),
        dumps(devices),
        attempt.placed_at,
        attempt.started_at,
        attempt.ended_at,
        text(attempt.reason),
        None if attempt.cause is None else attempt.cause.value,
        *(None if attempt.usage is None else getattr(attempt.usage, name) for name in _USAGE),
    )


def _devices(placement: Placement) -> dict[str, Any]:
    held = {name: getattr(placement, name) for name in _HELD}
    return {**held, "cpus": list(placement.cpus), "gpus": list(placement.gpus)}


def _placement(worker: str, held: Mapping[str, Any]) -> Placement:
    found: Placement = structured({"peers": (), **held, "worker": worker}, Placement)
    for rank in found.ranks:
        _finite(rank.gpu_share, rank.cpu_share)
    return found


def _finite(*amounts: float) -> None:
    if not all(map(math.isfinite, amounts)):
        raise ValueError(f"{amounts} are amounts that were measured")


def attempt_of(row: tuple[Any, ...]) -> Attempt:
    """Return the attempt of a row of `SELECT_ATTEMPTS`.

    Raises:
        TypeError: A cell has another type than its column.
    """
    trial, number, outcome, worker, node, devices, placed, started, ended, reason, cause, *used = (
        _checked(row, _ATTEMPT_TYPES)
    )
    held = structured(loads(devices), dict[str, Any])
    before = structured(held["before"], HeldBefore) if "before" in held else None
    if before is not None:
        _finite(before.core_seconds, before.gpu_seconds)
    peers = [peer["node"] for peer in held.get("peers", ())]
    return Attempt(
        id=AttemptId(trial, number),
        placement=_placement(worker, held),
        node=node,
        placed_at=placed,
        started_at=started,
        ended_at=ended,
        outcome=None if outcome is None else Outcome(outcome),
        reason=reason,
        usage=_usage([*used, *map(held.get, _ENERGY)]),
        cause=None if cause is None else Cause(cause),
        why=structured(held.get("why", ""), str),
        before=before,
        peer_nodes=structured(peers, tuple[str, ...]),
    )


def _usage(used: Sequence[Any]) -> Usage | None:
    if used[0] is None:
        return None
    _finite(*(amount for amount in used if amount is not None))
    usage: Usage = structured(dict(zip((*_USAGE, *_ENERGY), used, strict=True)), Usage)
    return usage


_TYPES: dict[str, tuple[type, ...]] = {
    "integer": (int,), "real": (float, int), "text": (str,), "time": (float, int)
}  # fmt: skip


def _columns(kinds: str) -> Sequence[tuple[str, Any]]:
    """Return the kind of each column and the types of its cells; None is one after a `?`."""
    read = [(kind.removesuffix("?"), kind.endswith("?")) for kind in kinds.split()]
    return tuple((kind, (*_TYPES[kind], *[type(None)] * may)) for kind, may in read)


_TRIAL_TYPES = _columns(
    "integer text text real? integer? text text integer? text integer text text"
)
_ATTEMPT_TYPES = _columns(
    "integer integer text? text text text time time? time? text text?" + " real?" * len(_USAGE)
)
_REPORT_TYPES = _columns("integer integer integer text real? time")


def _checked(row: tuple[Any, ...], columns: Sequence[tuple[str, Any]]) -> tuple[Any, ...]:
    """Return a row whose cells have the types of their columns; SQLite does not enforce them."""
    for cell, (kind, types) in zip(row, columns, strict=True):
        if not isinstance(cell, types):
            raise TypeError(f"a cell holds {cell!r:.100}, which is not {kind}")
        if kind == "time" and cell is not None:
            checked_time(cell)
    return row
