"""Checkpoints on disk: whole or absent, and few."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest

from hptune.training.resume.checkpoint import KEPT, Checkpoints, NoRoom


def test_the_newest_is_what_was_written_last(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path)
    assert checkpoints.newest() is None
    for step in (1, 2, 10, 9):
        checkpoints.write(step, {"step": step, "weights": np.arange(step)})
    found = checkpoints.newest()
    assert found is not None
    assert (found[0], found[1]["step"], list(found[1]["weights"])) == (10, 10, list(range(10)))
    files = [path.name for path in (tmp_path / "resume").iterdir()]
    assert len(files) == KEPT
    (tmp_path / "resume" / "².ckpt").touch()  # a digit, and no number
    found = checkpoints.newest()
    assert found is not None
    assert found[0] == 10
    checkpoints.remove()
    assert checkpoints.newest() is None
    assert not (tmp_path / "resume").exists()


@pytest.mark.parametrize("place", [0, 20, 500, -60, -40, -1])
@pytest.mark.parametrize("harm", ["cut", "changed", "emptied"])
def test_a_spoilt_one_gives_way_to_the_one_before(tmp_path: Path, place: int, harm: str) -> None:
    checkpoints = Checkpoints(tmp_path)
    checkpoints.write(1, "first")
    checkpoints.write(2, np.arange(1000))
    path = tmp_path / "resume" / "2.ckpt"
    whole = bytearray(path.read_bytes())
    changed = whole.copy()
    changed[place] ^= 1
    spoilt = {"cut": whole[:place], "changed": changed, "emptied": bytearray()}
    path.write_bytes(spoilt[harm])
    assert checkpoints.newest() == (1, "first")
    (tmp_path / "resume" / "1.ckpt").write_bytes(b"hptune checkpoint 2\n")
    assert checkpoints.newest() is None


KILLED = """
import os, signal, sys
from pathlib import Path
from hptune.training.resume.checkpoint import Checkpoints

class State:
    "Half of it is written when the process dies."
    def __reduce__(self):
        os.kill(os.getpid(), signal.SIGKILL)

checkpoints = Checkpoints(Path(sys.argv[1]))
checkpoints.write(1, "whole")
checkpoints.write(2, [b"x" * 10_000_000, State()])
"""


def test_killed_while_writing_there_is_the_one_before(tmp_path: Path) -> None:
    script = textwrap.dedent(KILLED)
    ended = subprocess.run([sys.executable, "-c", script, str(tmp_path)], check=False)
    assert ended.returncode < 0
    parts = list((tmp_path / "resume").glob(".*.tmp"))
    assert len(parts) == 1
    assert parts[0].stat().st_size > 1_000_000
    assert Checkpoints(tmp_path).newest() == (1, "whole")
    assert not parts[0].exists()


class NoSpace:
    def __init__(self, number: int) -> None:
        self.number = number

    def __reduce__(self) -> tuple[object, ...]:
        raise OSError(self.number, os.strerror(self.number))


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_is_said_and_harms_nothing(tmp_path: Path, number: int) -> None:
    checkpoints = Checkpoints(tmp_path)
    checkpoints.write(1, "whole")
    with pytest.raises(NoRoom, match=r"no room for the checkpoint of epoch 2 in .*resume: "):
        checkpoints.write(2, NoSpace(number))
    assert [path.name for path in (tmp_path / "resume").iterdir()] == ["1.ckpt"]
    assert checkpoints.newest() == (1, "whole")
    for forbidden in (errno.EACCES, errno.EPERM, errno.EROFS):
        with pytest.raises(NoRoom, match=r"the checkpoint of epoch 2 cannot be written in .*: "):
            checkpoints.write(2, NoSpace(forbidden))
    with pytest.raises(OSError, match="Input/output"):
        checkpoints.write(2, NoSpace(errno.EIO))
