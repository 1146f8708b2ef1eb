"""Strangers: what reaches the ports and files of a study without belonging to it."""

from __future__ import annotations

import contextlib
import json
import os
import re
import resource
import socket
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from distributed import Client

from authority import Authority
from hptune.security.certificates import Identity, in_memory, read
from hptune.worker.dask.encryption import security
from in_process import InProcess
from real_runs import Hptune, Started, rows, trials, wait_for
from requirements import require_root

NOBODY = 65534
WAITING = """
import pathlib, time

def objective(hp, trial):
    x = hp.Float("x", 0, 1)
    trial.report(1, value=x)  # the model file is read until here
    while not pathlib.Path({go!r}).exists():
        time.sleep(0.02)
    return x
"""
GARBAGE = (
    b"",
    b"GET / HTTP/1.1\r\nHost: here\r\n\r\n",
    bytes(range(256)) * 40,
    # The beginning of a TLS connection, and of a message of Dask's that claims to be huge.
    b"\x16\x03\x01\xff\xff" + b"\x01" * 600,
    b"\xff" * 16,
)


def ports(started: Started) -> set[int]:
    """Return the TCP ports on which a command and its children listen, all on loopback."""
    process = psutil.Process(started.pid)
    family = [process, *process.children(recursive=True)]
    listening = []
    for one in family:
        with contextlib.suppress(psutil.NoSuchProcess):
            found = one.net_connections()
            listening += [each.laddr for each in found if each.status == psutil.CONN_LISTEN]
    assert {each.ip for each in listening} == {"127.0.0.1"}
    return {each.port for each in listening}


def answers_http(port: int, page: str) -> int | None:
    """Return the status of a page; None if the port does not speak HTTP."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/{page}", timeout=60) as answer:
            status: int = answer.status
            return status
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return None


def scan(port: int) -> bytes:
    """Send garbage, each in a connection of its own; return all that was answered."""
    answered = b""
    for garbage in GARBAGE:
        with (
            contextlib.suppress(OSError),
            socket.create_connection(("127.0.0.1", port), 5) as stranger,
        ):
            stranger.sendall(garbage)
            stranger.shutdown(socket.SHUT_WR)
            stranger.settimeout(5)
            while more := stranger.recv(4096):
                answered += more
    return answered


def is_let_in(address: str, identity: Identity | None, *, seconds: float = 2.0) -> bool:
    """Return whether a client of Dask's own, with this certificate, is accepted."""
    with (
        contextlib.suppress(OSError),
        Client(address, security=security(identity), timeout=seconds, set_as_default=False),
    ):
        return True
    return False


def test_strangers_are_refused_and_told_why_while_the_study_goes_on(
    hptune: Hptune, cli: InProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = Authority()
    certs = tmp_path / "certs"
    member = authority.write(certs / "worker.pem")
    expired = authority.write(tmp_path / "expired.pem", days=-3)
    scheduler = hptune.start("scheduler", "--port", 0, "--certs", certs)
    assert scheduler.process.stdout is not None
    found = re.search(r"tls://\S+", scheduler.process.stdout.readline())
    assert found
    began = time.monotonic()
    address, plain = found[0], found[0].replace("tls://", "tcp://")
    worker = hptune.start("worker", address, "--certs", member, "--cpus", 1)
    model = hptune.file("model.py", WAITING.format(go=str(tmp_path / "go")))
    arguments = ("--connect", address, "--certs", certs, "--trials", 2)
    run = hptune.start("run", model, *arguments, "--study", hptune.study())
    log = hptune.study() / "trials" / "0" / "log.txt"
    wait_for(log.exists, "the first trial to begin")

    there = sorted(ports(scheduler) | ports(worker))
    pages = [port for port in there if answers_http(port, "health") == 200]
    assert len(pages) == 2, "a scheduler and a worker have one each"
    for port in pages:
        for page in ("info/main/workers.html", "json/counts.json", "metrics"):
            assert answers_http(port, page) == 404, page
    encrypted = [port for port in there if port not in pages]
    assert len(encrypted) == 2
    idle = [socket.create_connection(("127.0.0.1", port)) for port in encrypted]
    for port in encrypted:
        assert b"python" not in scan(port).lower()
        for scheme, identity in (
            ("tcp", None),
            ("tls", in_memory()),
            ("tls", read(expired)),
        ):
            assert not is_let_in(f"{scheme}://127.0.0.1:{port}", identity), (scheme, identity)
    assert is_let_in(address, read(member), seconds=60.0), "the test refuses everybody"

    said = {
        (address, "--certs", expired): r"expired.pem were valid until 20\d\d-",
        (address,): "certificates are of another study or scheduler",
        (plain, "--insecure"): "accepts only connections with a certificate: use tls://",
        (plain,): "uses no certificates: anyone who reaches it",
    }
    for given, words in said.items():
        refused = cli("worker", *given, "--cpus", 1)
        assert refused.code in (1, 2), refused
        assert re.fullmatch(rf"Error: .*{words}.*\n", refused.err), refused
    other = cli("run", model, "--connect", address, "--study", tmp_path / "other")
    assert (other.code, "are of another study or scheduler" in other.err) == (1, True), other
    assert not (tmp_path / "other").exists()
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "empty"))
    none = cli("worker", address, "--cpus", 1)
    assert (none.code, "and there is none in" in none.err) == (1, True), none

    (tmp_path / "go").touch()
    ended = run.wait()
    assert ended.code == 0, ended
    assert [each["state"] for each in trials(hptune.study())] == ["COMPLETE"] * 2
    for stranger in idle:
        stranger.close()
    worker.process.terminate()
    assert worker.wait().code == 0
    scheduler.process.terminate()
    told = scheduler.wait()
    assert told.code == 0, told
    minutes = int((time.monotonic() - began) / 60)
    assert 1 <= told.out.count("refused a connection from 127.0.0.1: ") <= 1 + minutes, told.out
    # A worker that only looks whether there is a scheduler closes its connection, as others may.
    assert "EOF" not in told.out


FEW_FILES = 256
"""Limit of open files of a process that strangers attack; many systems allow 1024."""


@contextlib.contextmanager
def flooded(*there: int) -> Iterator[None]:
    """Keep more connections open to each port than a process may have files."""
    over = threading.Event()

    def flood(port: int) -> None:
        opened: list[socket.socket] = []
        while not over.wait(0.001 if len(opened) < 2 * FEW_FILES else 0.02):
            with contextlib.suppress(OSError):
                opened.append(socket.create_connection(("127.0.0.1", port), 1))
            if len(opened) > 2 * FEW_FILES:
                opened.pop(0).close()
        for each in opened:
            each.close()

    threads = [threading.Thread(target=flood, args=(port,)) for port in there]
    for each in threads:
        each.start()
    try:
        yield
    finally:
        over.set()
        for each in threads:
            each.join()


@pytest.mark.slow
def test_a_flood_of_connections_fails_no_trial(hptune: Hptune, tmp_path: Path) -> None:
    certs = tmp_path / "certs"
    member = Authority().write(certs / "worker.pem")
    scheduler = hptune.start("scheduler", "--port", 0, "--certs", certs)
    assert scheduler.process.stdout is not None
    found = re.search(r"tls://\S+", scheduler.process.stdout.readline())
    assert found
    worker = hptune.start("worker", found[0], "--certs", member, "--cpus", 1)
    model = hptune.file("model.py", WAITING.format(go=str(tmp_path / "go")))
    arguments = ("--connect", found[0], "--certs", certs, "--trials", 6)
    run = hptune.start("run", model, *arguments, "--study", hptune.study())
    wait_for((hptune.study() / "trials" / "0" / "log.txt").exists, "the first trial to begin")
    for each in (scheduler, worker):
        resource.prlimit(each.pid, resource.RLIMIT_NOFILE, (FEW_FILES, FEW_FILES))
    with flooded(*ports(scheduler), *ports(worker)):
        wait_for(lambda: psutil.Process(worker.pid).num_fds() > 70, "the flood")
        (tmp_path / "go").touch()
        ended = run.wait()
    assert ended.code == 0, ended
    attempts = rows(hptune.study(), "SELECT * FROM attempts")
    assert [each["outcome"] for each in attempts] == ["FINISHED"] * 6
    for started in (worker, scheduler):
        started.process.terminate()
        left = started.wait()
        assert (left.code, left.err) == (0, ""), left


def as_nobody(what: Callable[[], object]) -> object:
    """Return what a function returns, as plain data, in a process of the user nobody."""
    reading, writing = os.pipe()
    if (child := os.fork()) == 0:
        try:
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(NOBODY)
            os.write(writing, json.dumps(what()).encode())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        answer = json.loads(pipe.read())
    os.waitpid(child, 0)
    return answer


def test_another_user_of_this_machine_reaches_nothing_of_a_study(
    hptune: Hptune, tmp_path: Path
) -> None:
    require_root("become another user")
    model = hptune.file("model.py", WAITING.format(go=str(tmp_path / "go")))
    # Every folder above lets others in, as a home directory or /tmp may.
    for folder in (tmp_path, *tmp_path.parents):
        if folder.stat().st_uid == os.getuid() and not folder.stat().st_mode & 0o001:
            folder.chmod(folder.stat().st_mode | 0o711)
    hptune.temporary.chmod(0o777)
    run = hptune.start("run", model, "--trials", 2, "--workers", 1, "--study", hptune.study())
    trial = hptune.study() / "trials" / "0"
    wait_for((trial / "log.txt").exists, "the first trial to begin")
    (server,) = hptune.temporary.glob("hptune-*/server")

    def plant() -> list[str]:
        done = []
        for path in (
            trial / "resume" / "1.ckpt",
            hptune.study() / "objective.pkl",
            server.parent / "distributed.py",
            trial / "log.txt",
        ):
            with contextlib.suppress(OSError):
                path.write_bytes(b"planted")
                done.append(str(path))
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as fork_server:
            fork_server.connect(str(server))
            done.append("the fork server")
        for path in (hptune.study(), server.parent):
            with contextlib.suppress(OSError):
                done += [str(each) for each in path.iterdir()]
        return done

    assert as_nobody(plant) == []

    def connect() -> list[int]:
        return [port for port in sorted(ports_of_run) if b"python" in scan(port).lower()]

    ports_of_run = ports(run)
    assert len(ports_of_run) >= 4
    pages = {port for port in ports_of_run if answers_http(port, "health") == 200}
    for port in pages:
        assert answers_http(port, "info/main/workers.html") == 404
    assert as_nobody(connect) == []
    for port in ports_of_run - pages:
        for scheme, identity in (("tcp", None), ("tls", in_memory())):
            assert not is_let_in(f"{scheme}://127.0.0.1:{port}", identity), port
    (tmp_path / "go").touch()
    ended = run.wait()
    assert ended.code == 0, ended


def test_only_what_the_model_file_imports_is_looked_for_beside_it(hptune: Hptune) -> None:
    """As of `python model.py` in a temporary directory that everybody may write to."""
    beside = hptune.directory / "beside"
    beside.mkdir()
    for name in ("numpy", "scipy", "threadpoolctl", "psutil", "cattrs", "joblib", "cloudpickle"):
        (beside / f"{name}.py").write_text("open(__file__ + '.has-run', 'w').close()")
    (beside / "own.py").write_text("LOSS = 1.0")
    (beside / "model.py").write_text(
        "import own\n\n"
        "def objective(hp, trial):\n"
        '    trial.report(1, loss=hp.Float("x", 0, 1) + own.LOSS)\n'
        '    return hp.get("x")\n'
    )
    ended = hptune("run", beside / "model.py", "--trials", "3", "--search", "bayesian")
    assert ended.code == 0, ended.err
    # A file that starts a thread is imported by each trial's own process.
    thread = (
        "import threading\nthreading.Thread(target=threading.Event().wait, daemon=True).start()"
    )
    text = (beside / "model.py").read_text()
    (beside / "threads.py").write_text(f"{thread}\n{text}")
    ended = hptune("run", beside / "threads.py", "--trials", "2", "--executor", "joblib")
    assert ended.code == 0, ended.err
    assert list(beside.glob("*.has-run")) == []
