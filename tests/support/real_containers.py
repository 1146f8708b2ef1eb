"""Real containers: an image of this checkout, and containers of it in networks of their own.

Nothing is downloaded but Debian's and PyPI's packages: the base image is made by debootstrap, and
kept for later runs in podman's storage, as are the layers of the image.
"""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import os
import re
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import pytest

from real_runs import MARK, Ended, Hptune, Started

ROOT = Path(__file__).parents[2]
COMMANDS = ("podman", "crun", "debootstrap", "ip", "unshare")
BASE = "localhost/hptune-test-base:bookworm"
IMAGE = "localhost/hptune-test"
USER = 10001
"""The user of the image."""

_CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")
_PREPARED = """\
umount /sys/fs/cgroup/unified 2>/dev/null
own=$(mktemp -d) && mount -t tmpfs hptune-test "$own" && mknod -m 666 "$own/null" c 1 3 &&
mount --bind "$own/null" /dev/null && umount --lazy "$own" && rmdir "$own" && exec "$@"
"""
"""Shell lines that run podman in a mount namespace of its own.

Podman refuses cgroups of both versions at once, as some machines have. And crun gives /dev/null to
the user of the container where that is one of its streams: it is given one of its own.
"""

_FIGURES = "HPTUNE_TEST_FIGURES"
"""Environment variable with a file for the figures that `.ci/run` shows."""


def missing() -> str:
    """Return why no containers can be run here; empty if they can."""
    if absent := [each for each in COMMANDS if shutil.which(each, path=_path()) is None]:
        return f"{', '.join(absent)} not found; `.ci/run` installs what the container tests need"
    if os.geteuid() != 0:
        return "only root can build the base image and join networks"
    return ""


def note(line: str) -> None:
    """Add a figure to those that `.ci/run` shows."""
    if file := os.environ.get(_FIGURES):
        with Path(file).open("a") as stream:
            stream.write(f"{line}\n")


def build_image(framework: str = "none") -> str:
    """Build the image of this checkout; returns its name.

    Processes that run tests side by side share one build: to see that nothing has changed takes
    podman seconds.

    Args:
        framework: The build argument.
    """
    name, run = f"{IMAGE}:{framework}", os.environ.get("PYTEST_XDIST_TESTRUNUID", "")
    with _turn() as turn:
        turn.seek(0)
        if run and turn.read() == f"{run} {_id(name)}":
            return name
        if _call("podman", "image", "exists", BASE, check=False).returncode:
            _make_base()
        began = time.monotonic()
        arguments = (f"--build-arg=BASE={BASE}", f"--build-arg=FRAMEWORK={framework}")
        _build(name, ROOT / "containers" / "Containerfile", *arguments)
        sizes = [_size(each) for each in (name, BASE)]
        over = (sizes[0] - sizes[1]) / 1e6
        what = "without a framework" if framework == "none" else f"with {framework} for CPUs"
        note(
            f"image {what}: {sizes[0] / 1e6:.0f} MB, {over:.0f} MB over its base; "
            f"built in {time.monotonic() - began:.0f} s"
        )
        turn.truncate(0)
        turn.write(f"{run} {_id(name)}")
    return name


def build_further(image: str, text: str, *, name: str) -> str:
    """Build an image from a Containerfile that begins with `FROM hptune`; returns its name.

    Args:
        image: The image to use as `hptune`.
        text: The Containerfile.
        name: The new image's tag.
    """
    assert text.startswith("FROM hptune\n")
    with _turn(), tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "Containerfile")
        file.write_text(text.replace("FROM hptune\n", f"FROM {image}\n", 1))
        _build(f"{IMAGE}:{name}", file)
    return f"{IMAGE}:{name}"


@contextlib.contextmanager
def _turn() -> Iterator[IO[str]]:
    """Build one image at a time; yield a file that says which run built which image last."""
    with Path(tempfile.gettempdir(), "hptune-test-image").open("a+") as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)
        yield turn


def _build(name: str, file: Path, *arguments: str) -> None:
    before = _id(name)
    with tempfile.TemporaryDirectory() as folder:
        settings = Path(folder, "pip.conf")
        mounts = [f"--volume={settings}:/etc/pip.conf:ro"]
        lines = ["[global]", "default-timeout = 180"]
        if _CERTIFICATES.exists():  # a proxy of this machine may sign with its own authority
            mounts.append(f"--volume={_CERTIFICATES}:{_CERTIFICATES}:ro")
            lines.append(f"cert = {_CERTIFICATES}")
        settings.write_text("\n".join(lines))
        _call(
            "podman", "build", "--isolation=chroot", "--network=host", "--format=docker",
            *arguments, f"--secret=id=pip.conf,src={settings}", *mounts,
            f"--file={file}", f"--tag={name}", ROOT,
        )  # fmt: skip
    if before and before != _id(name):  # what it shares with the new one stays
        _call("podman", "rmi", before, check=False)


def _make_base() -> None:
    with _in_memory() as folder:
        root, archive = Path(folder, "root"), Path(folder, "root.tar")
        packages = "--include=python3-venv"
        _call("debootstrap", "--variant=minbase", packages, "bookworm", root)
        _call("tar", "-C", root, "-cf", archive, ".")
        _call("podman", "import", archive, BASE)


@contextlib.contextmanager
def _in_memory() -> Iterator[Path]:
    """Provide a folder in memory: the many files of an image take minutes on a busy disk."""
    with tempfile.TemporaryDirectory() as folder:
        _call("mount", "-t", "tmpfs", "-o", "mode=755", "hptune-test", folder)
        try:
            yield Path(folder)
        finally:
            _call("umount", "--lazy", folder)


def _id(image: str) -> str:
    return _call("podman", "images", "--quiet", image, check=False).stdout.strip()


def _size(image: str) -> int:
    return int(_call("podman", "image", "inspect", "--format={{.Size}}", image).stdout)


@contextlib.contextmanager
def unpacked(image: str) -> Iterator[Path]:
    """Provide an image as a folder, which Charliecloud runs."""
    made = _call("podman", "create", image).stdout.strip()
    try:
        yield Path(_call("podman", "mount", made).stdout.strip())
    finally:
        _call("podman", "rm", "--force", made)


def in_container(image: str, program: str, *arguments: str) -> str:
    """Run a program in a new container without a network; returns its output."""
    limits = ("--ulimit=nofile=1024:1024", "--ulimit=nproc=1024:1024", "--no-healthcheck")
    options = ("--rm", "--network=none", *limits, f"--entrypoint={program}")
    return _call(*_wrapped("podman", "run", *options, image, *arguments)).stdout


class Container:
    """A container that was started; its output is read as it comes."""

    def __init__(self, started: Started) -> None:
        self._process = started.process
        self._read = {"out": "", "err": ""}
        streams = {"out": self._process.stdout, "err": self._process.stderr}
        self._threads = [
            threading.Thread(target=self._drain, args=item, daemon=True) for item in streams.items()
        ]
        for each in self._threads:
            each.start()

    def _drain(self, name: str, stream: IO[str]) -> None:
        for line in stream:
            self._read[name] += line

    def until(self, pattern: str, *, seconds: float = 200.0) -> re.Match[str]:
        """Wait until the output matches; returns the match."""

        def found() -> re.Match[str] | None:
            return re.search(pattern, self._read["out"]) or re.search(pattern, self._read["err"])

        deadline = time.monotonic() + seconds
        while (match := found()) is None:
            over = not any(each.is_alive() for each in self._threads)
            if over or time.monotonic() > deadline:
                pytest.fail(f"{pattern!r} was not said: {self._read}")
            time.sleep(0.02)
        return match

    def sigterm(self) -> None:
        """Send SIGTERM."""
        self._process.terminate()

    def terminate(self) -> Ended:
        """Send SIGTERM, and wait for the end."""
        self.sigterm()
        return self.end()

    def end(self, *, seconds: float = 240.0) -> Ended:
        """Wait for the end."""
        code = self._process.wait(seconds)
        for each in self._threads:
            each.join(60)
        return Ended(code, self._read["out"], self._read["err"])


class Containers:
    """Containers of one image, each with a network interface of its own on a common bridge.

    Attributes:
        work: The directory that all of them see as /project.
    """

    _numbers = itertools.count(1)

    def __init__(self, image: str, hptune: Hptune) -> None:
        self.work = hptune.directory / "work"
        self.work.mkdir()
        os.chown(self.work, USER, USER)
        self._image = image
        self._hptune = hptune
        # Short: a name of an interface has 15 characters at most.
        self._prefix = f"hpt{os.getpid() % 100000}x{next(self._numbers)}"
        self._hosts: dict[str, str] = {}
        self._ip("link", "add", self._prefix, "type", "bridge")
        self._ip("link", "set", self._prefix, "up")

    def address(self, name: str) -> str:
        """Return the address of a container, which gets its network if it has none yet."""
        if name not in self._hosts:
            number = len(self._hosts) + 2
            space, link = self._space(name), f"{self._prefix}.{number}"
            self._hosts[name] = f"10.213.7.{number}"
            self._ip("netns", "add", space)
            self._ip("link", "add", link, "type", "veth", "peer", "name", "eth0", "netns", space)
            self._ip("link", "set", link, "master", self._prefix, "up")
            self._ip("-n", space, "addr", "add", f"{self._hosts[name]}/24", "dev", "eth0")
            self._ip("-n", space, "link", "set", "eth0", "up")
            self._ip("-n", space, "link", "set", "lo", "up")
        return self._hosts[name]

    def start(
        self, name: str, *arguments: object, options: tuple[str, ...] = (), shows: str = ""
    ) -> Container:
        """Start a container; signals to the process go to the container's.

        Args:
            name: Its name, which is its host name too.
            arguments: Those of `hptune`.
            options: Further ones of `podman run`.
            shows: The only file of /project that it sees; empty for all.
        """
        self.address(name)
        started = self._hptune.other(
            "unshare", "--mount", "sh", "-c", _PREPARED, "sh",
            "podman", "run", "--rm", f"--name={self._prefix}-{name}", f"--hostname={name}",
            f"--network=ns:/run/netns/{self._space(name)}", f"--user={USER}:{USER}",
            "--ulimit=nofile=1024:1024", "--ulimit=nproc=1024:1024", "--no-healthcheck",
            f"--env={MARK}", f"--volume={self.work / shows}:/project/{shows}", *options,
            self._image, *arguments,
        )  # fmt: skip
        return Container(started)

    def kill(self, name: str) -> None:
        """Kill all processes of a container."""
        _call("podman", "kill", "--signal=KILL", f"{self._prefix}-{name}")

    def health(self, name: str) -> Ended:
        """Run the health check of the image in a container."""
        container = f"{self._prefix}-{name}"
        template = "{{json .Config.Healthcheck.Test}}"
        shown = _call("podman", "image", "inspect", f"--format={template}", self._image).stdout
        kind, *command = shown.strip(' []"\n').split('","')
        assert kind == "CMD", shown
        done = _call(*_wrapped("podman", "exec", container, *command), check=False)
        return Ended(done.returncode, done.stdout, done.stderr)

    def running(self) -> list[str]:
        """Return the containers that there are, also those that have ended."""
        shown = _call(
            "podman", "ps", "--all", f"--filter=name={self._prefix}-", "--format={{.Names}}"
        )
        return shown.stdout.split()

    def listening(self) -> list[str]:
        """Return the containers in whose networks a port is open."""
        found = []
        for name in self._hosts:
            ports = ("cat", "/proc/net/tcp", "/proc/net/tcp6")
            shown = _call("ip", "netns", "exec", self._space(name), *ports).stdout
            if any(line.split()[3] == "0A" for line in shown.splitlines()):
                found.append(name)
        return found

    def close(self) -> None:
        """Remove all containers and their networks."""
        if left := self.running():
            _call("podman", "rm", "--force", "--time=0", *left, check=False)
        for name in self._hosts:
            self._ip("netns", "delete", self._space(name))
        self._ip("link", "delete", self._prefix)

    def _space(self, name: str) -> str:
        return f"{self._prefix}-{name}"

    @staticmethod
    def _ip(*arguments: str) -> None:
        _call("ip", *arguments)


def _wrapped(*command: str) -> tuple[str, ...]:
    return ("unshare", "--mount", "sh", "-c", _PREPARED, "sh", *command)


def _call(*command: object, check: bool = True) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        list(map(str, command)),
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PATH": _path()},
    )
    assert not check or done.returncode == 0, f"{command}: {done.stderr[-3000:]}"
    return done


def _path() -> str:
    return f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
