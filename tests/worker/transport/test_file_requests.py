"""A worker's requests for files, with a master that the test plays."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from hptune.worker.transport.file_requests import FileRequests, FilesNotBrought
from hptune.worker.transport.files import INCOMING, FileState, Piece
from hptune.worker.transport.notices import FileNotice


def test_a_piece_that_comes_after_the_answer_leaves_nothing(tmp_path: Path) -> None:
    """As when the master's call timed out, and the worker's slow disk is still at it."""
    state, piece = FileState("trials/1/model.keras", 8, 0, 0), Piece.of(b"half")

    def fail_early(notice: FileNotice) -> None:
        requests.brought(notice.ticket, "no answer in time")
        told = requests.put(notice.ticket, [(state, piece)])
        assert told == "the files are not wanted any more"

    requests = FileRequests(tmp_path, worker="w", tickets=itertools.count(), tell=fail_early)
    with pytest.raises(FilesNotBrought, match="no answer in time"):
        requests.fetch(1)
    requests.close()
    assert [*(tmp_path / INCOMING).glob("*")] == []
