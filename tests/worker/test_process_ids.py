"""What a process does about its parent's end."""

from __future__ import annotations

import os

from hptune.worker.process_ids import die_with_parent


def test_a_process_whose_parent_has_ended_already_ends() -> None:
    if not (pid := os.fork()):
        die_with_parent(os.getpid())  # which is not its parent
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 1
