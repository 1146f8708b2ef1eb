"""The rows of the ledger's tables: trials, attempts and reports, as they are written and read.

SQLite does not enforce the types of columns, so each cell that is read is checked.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from ...core.attempt import Attempt, AttemptId, Cause, HeldBefore, Outcome, Usage
from ...core.resources import Placement
from ...core.trial import Trial, TrialState
from .codec import dumps, loads

SELECT_TRIALS = """SELECT number, state, params, value, step, metrics, origin, attempts, reason,
    detail FROM trials"""
_USAGE = (
    "peak_memory_bytes", "peak_gpu_memory_bytes", "cpu_seconds", "seconds", "seconds_per_step",
    "starved_seconds",
)  # fmt: skip
"""The columns of `attempts` that hold an `Usage`; all are NULL if nothing was measured."""
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
        trial.attempts,
        text(trial.reason),
        text(trial.detail),
    )


def trial_of(row: tuple[Any, ...]) -> Trial:
    """Return the trial of a row of `SELECT_TRIALS`.

    Raises:
        TypeError: A cell has another type than its column.
    """
    number, state, params, value, step, metrics, origin, attempts, reason, detail = _checked(
        row, _TRIAL_TYPES
    )
    return Trial(
        number=number,
        params=_mapping(loads(params)),
        origin=origin,
        state=TrialState(state),
        value=value,
        step=step,
        metrics={name: _number(value) for name, value in _mapping(loads(metrics)).items()},
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


def _placement(worker: str, devices: Mapping[str, Any]) -> Placement:
    held = {name: devices[name] for name in _HELD}
    held |= {name: tuple(held[name]) for name in ("cpus", "gpus")}
    peers = tuple(_placement(each["worker"], each) for each in devices.get("peers", ()))
    return Placement(worker, **held, peers=peers)


def attempt_of(row: tuple[Any, ...]) -> Attempt:
    """Return the attempt of a row of `SELECT_ATTEMPTS`.

    Raises:
        TypeError: A cell has another type than its column.
    """
    trial, number, outcome, worker, node, devices, placed, started, ended, reason, cause, *used = (
        _checked(row, _ATTEMPT_TYPES)
    )
    held = loads(devices)
    return Attempt(
        id=AttemptId(trial, number),
        placement=_placement(worker, held),
        node=node,
        placed_at=placed,
        started_at=started,
        ended_at=ended,
        outcome=None if outcome is None else Outcome(outcome),
        reason=reason,
        usage=None if used[0] is None else Usage(**dict(zip(_USAGE, used, strict=True))),
        cause=None if cause is None else Cause(cause),
        why=held.get("why", ""),
        before=HeldBefore(**held["before"]) if "before" in held else None,
        peer_nodes=tuple(peer["node"] for peer in held.get("peers", ())),
    )


_TYPES: dict[str, tuple[type, ...]] = {"integer": (int,), "real": (float, int), "text": (str,)}
_TRIAL_TYPES = "integer text text real? integer? text text integer text text"
_ATTEMPT_TYPES = (
    "integer integer text? text text text real real? real? text text?" + " real?" * len(_USAGE)
)
_REPORT_TYPES = "integer integer integer text real? real"


def _checked(row: tuple[Any, ...], types: str) -> tuple[Any, ...]:
    """Return a row whose cells have the types of their columns; SQLite does not enforce them."""
    for cell, kind in zip(row, types.split(), strict=True):
        if not (isinstance(cell, _TYPES[kind.removesuffix("?")]) or (cell is None and "?" in kind)):
            raise TypeError(f"a cell holds {cell!r}, which is not {kind.removesuffix('?')}")
    return row


def _mapping(value: object) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise TypeError(f"a cell holds {value!r}, which is not a JSON object")
    return value


def _number(value: object) -> float:
    if not isinstance(value, int | float):
        raise TypeError(f"a metric is {value!r}, which is not a number")
    return value
