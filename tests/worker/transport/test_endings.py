"""The ending that the study is told of an attempt whose files travel."""

from __future__ import annotations

import pytest

from hptune.core.attempt import Cause, Ending
from hptune.worker.transport.endings import ending_of_remote
from hptune.worker.transport.remote_study import NotSent

GONE = NotSent("the connection is lost")
FULL = NotSent("No space left on device", is_full=True)


@pytest.mark.parametrize(
    ("cause", "not_sent", "expected"),
    [
        (Cause.RETURNED, None, Cause.RETURNED),
        (Cause.RETURNED, GONE, Cause.WORKER_LOST),  # its model would be missing
        (Cause.RETURNED, FULL, Cause.NO_ROOM),  # the study's own disk
        (Cause.NO_ROOM, None, Cause.WORKER_LOST),  # the worker's disk
        (Cause.PAUSED, GONE, Cause.PAUSED),  # goes on from an earlier checkpoint
        (Cause.PRUNED, FULL, Cause.PRUNED),
    ],
)
def test_only_a_result_without_its_files_is_no_result(
    cause: Cause, not_sent: NotSent | None, expected: Cause
) -> None:
    ending = ending_of_remote(Ending(cause, reason="as it was"), not_sent, node="node2")
    assert ending.cause is expected
    assert (ending.reason == "as it was") == (cause is expected)
    assert cause is expected or "node2" in ending.reason


@pytest.mark.parametrize(
    ("reason", "is_named"),
    [
        ("FileNotFoundError: no such file: 'data.csv'", True),
        ("ModuleNotFoundError: No module named 'mine'", True),
        ("ValueError: FileNotFoundError", False),
    ],
)
def test_a_missing_file_names_the_machine(reason: str, *, is_named: bool) -> None:
    ending = ending_of_remote(Ending(Cause.EXCEPTION, reason=reason), None, node="node2")
    assert ending.reason.startswith(reason)
    assert ("on node2" in ending.reason) == is_named
