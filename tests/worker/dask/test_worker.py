"""A worker that studies may refuse, without a scheduler."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from hptune.worker.dask.worker import _Worker

REFUSED = SimpleNamespace(announcement=object(), is_accepted=False)
ACCEPTED = SimpleNamespace(announcement=object(), is_accepted=True)
JOINING = SimpleNamespace(announcement=None, is_accepted=False)


@pytest.mark.parametrize(
    ("plugins", "is_useless"),
    [([REFUSED], True), ([REFUSED, ACCEPTED], False), ([REFUSED, JOINING], False), ([], True)],
)
def test_a_refused_worker_goes_only_if_no_study_uses_it_or_may_still_do_so(
    plugins: list[Any], *, is_useless: bool
) -> None:
    worker: Any = SimpleNamespace(study_plugins=plugins, is_useless=asyncio.Event())
    _Worker._look_for_studies(worker)
    assert worker.is_useless.is_set() is is_useless
