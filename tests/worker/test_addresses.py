"""Addresses that are shown to the user."""

from __future__ import annotations

import socket

import pytest

from hptune.worker.addresses import tunnel

PAGE = "http://127.0.0.1:44819/status"
LINE = f"ssh -N -L 44819:127.0.0.1:44819 ada@{socket.gethostname()}"


@pytest.mark.parametrize(
    ("page", "environment", "line"),
    [
        (PAGE, {"USER": "ada"}, ""),
        (PAGE, {"USER": "ada", "SSH_CONNECTION": "10.0.0.9 52 10.0.0.1 22"}, LINE),
        (PAGE, {"USER": "ada", "SLURM_JOB_ID": "7"}, LINE),
        (PAGE, {"SLURM_JOB_ID": "7"}, LINE.replace("ada@", "")),
        ("http://10.0.0.1:8787/status", {"SSH_CLIENT": "10.0.0.9"}, ""),
        ("", {"SSH_CLIENT": "10.0.0.9"}, ""),
    ],
)
def test_a_page_of_a_remote_machine_is_shown_with_the_way_there(
    page: str, environment: dict[str, str], line: str
) -> None:
    assert tunnel(page, environment) == line
