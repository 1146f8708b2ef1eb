"""Requests that an agent has planned, and the tokens that start them."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from ..errors import UsageError

TOKEN_SECONDS = 900.0
"""How long a token can be used."""

_MOST_PLANS = 100
"""Plans that are kept: an agent may plan without end."""


@dataclass(frozen=True, slots=True)
class Request:
    """What a token starts.

    Attributes:
        study: The study's directory.
        command: "run" or "resume".
        arguments: Those of the command.
        files: A digest of the files that the request names.
        words: What was asked for, for people.
    """

    study: Path
    command: str
    arguments: tuple[str, ...]
    files: str
    words: str


@dataclass(slots=True)
class _Plan:
    plan_again: Callable[[], Request]
    request: Request
    until: float
    answer: str = ""


@dataclass(slots=True)
class Plans:
    """The plans of a server.

    Attributes:
        now: Returns the present time in seconds.
    """

    now: Callable[[], float]
    _plans: dict[str, _Plan] = field(default_factory=dict)

    def add(self, plan: Callable[[], Request]) -> tuple[str, Request]:
        """Plan a request; returns its token and the request.

        Args:
            plan: Checks what is asked for, and returns it; called again when the token is used.
        """
        request = plan()
        if len(self._plans) >= _MOST_PLANS:
            del self._plans[next(iter(self._plans))]
        token = secrets.token_urlsafe(16)
        self._plans[token] = _Plan(plan, request, self.now() + TOKEN_SECONDS)
        return token, request

    def use(self, token: str, start: Callable[[Request], str]) -> str:
        """Start what a token was given for, once; a second call returns the first one's answer.

        Raises:
            UsageError: There is no such token, its time is over, or what it was given for has
                changed or is not allowed any more.
        """
        plan = self._plans.get(token)
        if plan is None or self.now() > plan.until:
            raise UsageError("the token is unknown or its time is over; plan again")
        if not plan.answer:
            if plan.plan_again() != plan.request:
                raise UsageError(
                    "a file of the request has changed since it was planned; plan again"
                )
            plan.answer = start(plan.request)
        return plan.answer
