"""What the doctor finds, and what it is asked to look at. Plain values, to JSON and back."""

from __future__ import annotations

import enum
from dataclasses import asdict, dataclass
from typing import Any


class Status(enum.StrEnum):
    """How a check came out."""

    PASS = "pass"  # noqa: S105 - no password
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the doctor's report.

    Attributes:
        name: What was looked at, in a word or two.
        status: How it came out.
        found: What is so.
        advice: What to do next; empty where there is nothing to do.
        where: Where it was found; empty for here.
    """

    name: str
    status: Status
    found: str
    advice: str = ""
    where: str = ""

    def to_json(self) -> dict[str, Any]:
        """As plain values."""
        return asdict(self)

    @classmethod
    def from_json(cls, plain: dict[str, Any]) -> Finding:
        """What `to_json` gave."""
        return cls(**{**plain, "status": Status(plain["status"])})


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """What to look at.

    Attributes:
        study: A study's directory; it need not be there.
        model_file: The user's model file; empty for a tiny model of the doctor's own.
        connect: The address of a Dask scheduler whose workers to look at; empty to start one here.
        gpus_per_trial: GPUs of a trial; None for one where there are any, 0 if it trains on cores.
        token: Part of the name of every folder that is made beside the study.
    """

    study: str
    model_file: str = ""
    connect: str = ""
    gpus_per_trial: float | None = None
    token: str = ""


def passed(name: str, found: str) -> Finding:
    """A line that passes."""
    return Finding(name, Status.PASS, found)


def warned(name: str, found: str, advice: str) -> Finding:
    """A line that warns."""
    return Finding(name, Status.WARN, found, advice)


def failed(name: str, found: str, advice: str) -> Finding:
    """A line that fails."""
    return Finding(name, Status.FAIL, found, advice)
