"""Certificates: made, shown, copied, renewed, and refused where others may read them."""

from __future__ import annotations

import os
import pwd
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from authority import Authority
from hptune.errors import StudyError, UsageError
from hptune.security.certificates import VALID_DAYS, Identity, ensure, in_memory, read
from hptune.security.handshake import identity_for, why_refused
from in_process import InProcess
from requirements import require_root


def test_files_are_private_and_the_same_for_all_who_ask_at_once(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "certs"
    made: list[Identity] = []

    def make() -> None:
        made.append(ensure(folder))

    threads = [threading.Thread(target=make) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert made == [read(folder)] * 4
    assert folder.stat().st_mode & 0o777 == 0o700
    (file,) = folder.iterdir()
    assert (file.name, file.stat().st_mode & 0o777) == ("worker.pem", 0o600)
    assert VALID_DAYS - 1 < read(file).days_left < VALID_DAYS + 1


def test_expired_ones_are_made_again(tmp_path: Path) -> None:
    Authority().write(tmp_path / "worker.pem", days=-1)
    first = ensure(tmp_path)
    assert first.days_left > 300
    assert ensure(tmp_path) == first
    assert ensure(tmp_path, days=400) != first


def test_a_file_may_have_an_authority_which_must_have_signed_it(tmp_path: Path) -> None:
    own, other = (Authority().write(tmp_path / name) for name in ("own.pem", "other.pem"))
    assert read(own).authority != read(own).certificate
    own.write_text(read(own).key + read(own).certificate + read(other).authority)
    with pytest.raises(StudyError, match="does not hold a key and its certificate"):
        read(own)


def test_what_others_may_read_or_have_written_is_refused(tmp_path: Path) -> None:
    ensure(tmp_path)
    file = tmp_path / "worker.pem"
    file.chmod(0o644)
    with pytest.raises(StudyError, match=r"other users may read or change .* `chmod 600"):
        read(file)
    file.chmod(0o640)
    assert read(file)
    file.write_text("no certificate")
    with pytest.raises(StudyError, match="does not hold a key and its"):
        read(file)
    with pytest.raises(StudyError, match=r"nowhere.pem cannot be read: No such file"):
        read(tmp_path / "nowhere.pem")
    tmp_path.chmod(0o777)
    with pytest.raises(UsageError, match="other users may write to"):
        ensure(tmp_path)


def test_another_users_certificates_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    require_root("give files to others")
    ensure(tmp_path)
    os.chown(tmp_path / "worker.pem", 65534, 65534)
    # Root in a container may read a file that its user mounts.
    assert read(tmp_path)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    told = "belongs to another user: its owner is user 65534, and this process is user 1000"
    with pytest.raises(StudyError, match=f"{told}.*`docker run --user 65534`"):
        read(tmp_path)


def test_the_address_says_whether_a_certificate_is_needed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert identity_for("tcp://n:1", insecure=True) is None
    with pytest.raises(UsageError, match=r"tcp://n:1 uses no certificates: .* --insecure"):
        identity_for("tcp://n:1")
    assert identity_for("tls://n:1") is not None
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    with pytest.raises(StudyError, match=r"there is none in .*worker.pem. Copy .* --certs FILE"):
        identity_for("tls://n:1")
    monkeypatch.delenv("XDG_CONFIG_HOME")
    monkeypatch.delenv("HOME")
    monkeypatch.setattr(pwd, "getpwuid", {}.__getitem__)  # as in a container without this user
    with pytest.raises(UsageError, match="no home directory; set HOME, or give --certs"):
        identity_for("tls://n:1")


def test_the_command_shows_copies_and_renews(
    cli: InProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    shown = cli("certs")
    assert shown.code == 0, shown
    assert "config/hptune/certs/worker.pem" in shown.out
    assert "(364 days)" in shown.out or "(365 days)" in shown.out
    copied = cli("certs", "--export", "copy.pem")
    assert copied.code == 0, copied
    assert "scp copy.pem" in copied.out
    assert (tmp_path / "copy.pem").stat().st_mode & 0o777 == 0o600
    old = read(tmp_path / "copy.pem")
    assert cli("certs", "--export", "-").out == (tmp_path / "copy.pem").read_text()
    # A file takes its place at once, which no device and no pipe survives.
    os.mkfifo(tmp_path / "pipe")
    refused = cli("certs", "--export", "pipe")
    assert (refused.code, "--export is pipe, which is not a file" in refused.err) == (2, True)
    assert (tmp_path / "pipe").is_fifo()
    (tmp_path / "link.pem").symlink_to("copy.pem")
    assert cli("certs", "--export", "link.pem").code == 0
    assert (tmp_path / "link.pem").is_symlink()
    renewed = cli("certs", "--renew")
    assert renewed.code == 0, renewed
    assert old.name not in renewed.out
    other = cli("certs", "copy.pem")
    assert (other.code, old.name in other.out) == (0, True)
    assert cli("certs", "copy.pem", "--renew").code == 2
    Authority().write(tmp_path / "ended.pem", days=-2)
    ended = cli("certs", "ended.pem")
    assert "(over)" in ended.out
    assert "They have ended" in ended.out
    (tmp_path / "study").mkdir()
    (tmp_path / "study" / "study.db").touch()
    without = cli("certs", "study")
    assert (without.code, "has no certificates" in without.err) == (2, True)
    made = tmp_path / "study" / "jobs" / "certs"
    ensure(made)
    of_study = cli("certs", "study").out
    assert str(made / "worker.pem") in of_study
    assert f"join:   hptune worker {made.parent / 'scheduler.json'} --certs worker.pem" in of_study
    assert "use:" not in of_study


@contextmanager
def tls_server(pem: Path) -> Iterator[str]:
    """Give the address of a server that has a certificate and asks for none."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pem)
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            with suppress(OSError):
                connection, _ = listener.accept()
                with connection, context.wrap_socket(connection, server_side=True) as encrypted:
                    encrypted.sendall(b"hello")
                    encrypted.recv(1)

        thread = threading.Thread(target=serve)
        thread.start()
        yield f"tls://127.0.0.1:{listener.getsockname()[1]}"
    thread.join()


def test_what_a_member_s_key_has_signed_is_refused(tmp_path: Path) -> None:
    """A copy of the file can be given to others, but no certificate beside it."""
    mine = in_memory()
    signed = Authority(mine).write(tmp_path / "signed.pem")
    with tls_server(signed) as address:
        assert "are of another study" in why_refused(address, mine, timeout_seconds=5.0)


@pytest.mark.parametrize(
    ("days", "since_days", "words"),
    [
        (9, 9, ""),
        (-1, 9, "its certificate has expired"),
        (9, -1, "not valid yet by this machine's clock"),
    ],
)
def test_a_schedulers_certificate_is_checked_too(
    tmp_path: Path, days: int, since_days: int, words: str
) -> None:
    authority = Authority()
    mine = read(authority.write(tmp_path / "mine.pem"))
    theirs = authority.write(tmp_path / "theirs.pem", days=days, since_days=since_days)
    with tls_server(theirs) as address:
        why = why_refused(address, mine, timeout_seconds=5.0)
    assert (words in why) if words else why == ""


def test_nobody_else_may_write_above_certificates_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        ensure(tmp_path / "config" / "hptune" / "certs")
    finally:
        os.umask(before)
    made = [path for path in (tmp_path / "config").rglob("*") if path.is_dir()]
    assert {path.stat().st_mode & 0o777 for path in (tmp_path / "config", *made)} == {0o700}
