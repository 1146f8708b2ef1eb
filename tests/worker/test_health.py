"""The health check of a container: what it says of a scheduler and of a worker."""

from __future__ import annotations

import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from hptune.worker.health import announce, check, health_folder


class _Healthy(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200 if self.path == "/health" else 404)
        self.end_headers()

    def log_message(self, *arguments: object) -> None:
        pass


def test_a_server_is_healthy_while_it_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hptune.worker.health._ANSWER_SECONDS", 200.0)
    assert check(tmp_path) == "no scheduler or worker runs here"
    with health_folder(str(tmp_path)) as folder:
        assert check(tmp_path) == "the worker has not joined a scheduler"
        with HTTPServer(("127.0.0.1", 0), _Healthy) as server:
            announce(folder, server.server_port)
            thread = threading.Thread(target=server.serve_forever)
            thread.start()
            try:
                assert check(tmp_path) == ""
            finally:
                server.shutdown()
                thread.join()
        assert "does not answer: " in check(tmp_path)
        announce(folder, None)
        assert check(tmp_path) == "the worker has not joined a scheduler"


def test_folders_of_others_and_of_processes_that_ended_do_not_count(tmp_path: Path) -> None:
    with health_folder(str(tmp_path)) as folder:
        folder.chmod(0o755)
        assert check(tmp_path) == "no scheduler or worker runs here"
        folder.chmod(0o700)
        where, _, _ = (folder / "owner").read_text().rsplit(" ", 2)
        (folder / "owner").write_text(f"{where} 1 another")
        assert check(tmp_path) == "no scheduler or worker runs here"


def test_the_command_says_why_and_ends_with_1(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    command = [sys.executable, "-P", "-m", "hptune.worker.health"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, "no scheduler or worker runs here\n")
