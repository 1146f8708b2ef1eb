"""The doctor's findings, and the subject that it examines."""

from __future__ import annotations

import enum
from dataclasses import asdict, dataclass
from typing import Any


class Status(enum.StrEnum):
    """Result of a check."""

    PASS = "pass"  # noqa: S105 - no password
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the doctor's report.

    Attributes:
        name: What was checked, in a word or two.
        status: The result.
        found: What was found.
        advice: What to do; empty if there is nothing to do.
        where: Where it was found; empty for this machine.
    """

    name: str
    status: Status
    found: str
    advice: str = ""
    where: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return the fields as plain values."""
        return asdict(self)

    @classmethod
    def from_json(cls, plain: dict[str, Any]) -> Finding:
        """Return the finding that `to_json` was called on."""
        return cls(**{**plain, "status": Status(plain["status"])})


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """Subject of an examination.

    Attributes:
        study: A study's directory; it need not exist.
        model_file: The user's model file; empty for a tiny model of the doctor's own.
        connect: Address of a Dask scheduler whose workers to check; empty to start one here.
        certs: The certificates to show there, a file or a folder; empty for the user's own.
        insecure: Whether the user accepts a scheduler without certificates.
        gpus_per_trial: GPUs of a trial; None for one if there are any, 0 if it trains on cores.
        token: Part of the name of every folder that a check makes next to the study.
    """

    study: str
    model_file: str = ""
    connect: str = ""
    certs: str = ""
    insecure: bool = False
    gpus_per_trial: float | None = None
    token: str = ""


def passed(name: str, found: str) -> Finding:
    """Return a finding that passes."""
    return Finding(name, Status.PASS, found)


def warned(name: str, found: str, advice: str) -> Finding:
    """Return a finding that warns."""
    return Finding(name, Status.WARN, found, advice)


def failed(name: str, found: str, advice: str) -> Finding:
    """Return a finding that fails."""
    return Finding(name, Status.FAIL, found, advice)
