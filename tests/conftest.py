"""Fixtures that tests of real runs share."""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import os
import shutil
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadFileScheduling

import private_grid_engine
from attempts import Attempts
from commands import Commands
from hptune.files.filesystem import mount_of
from hptune.samplers.common.one_thread import one_thread
from hptune.security.certificates import default_folder, ensure
from hptune.storage.directory import StudyDirectory
from hptune.storage.ledger import Ledger
from hptune.user_code.model_file import check_path
from hptune.worker.forkserver.client import ForkServer
from private_slurm import PrivateSlurm, missing, wait_until
from real_runs import Hptune
from requirements import light_backend, unavailable
from surroundings import make_known

make_known()

# Where PYTHONDONTWRITEBYTECODE is set, each process of the tests would rewrite all asserts again.
sys.dont_write_bytecode = False

# A busy machine is no failure.
settings.register_profile(
    "any speed", deadline=None, max_examples=50, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("any speed")

MEMORY_FOLDER = Path("/dev/shm")
FREE_MEMORY_BYTES = 6_000_000_000

SLURM_TURN_SECONDS = 900
BASE_IMAGE_SECONDS = 900
# The first may have to wait for the Slurm of another run.
LONG_FILES = (
    *("slurm", "training", "faults", "containers", "clusters", "examples", "batch_systems"),
    *("executors", "test_keras_tuner.py", "test_tuner.py", "cli", "worker", "samplers"),
    *("master", "doctor", "test_doc_code.py", "test_optuna_scripts.py", "test_architecture.py"),
)
"""Rooms, and files outside of rooms, of which a file may take more than ten seconds."""

if TYPE_CHECKING:
    from xdist.remote import Producer

    from browser import Chromium
    from data_cache_node import Calls, Node
    from engine_driver import EngineDriver
    from file_network import Clock, Network
    from in_process import InProcess
    from real_containers import Containers


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Keep the files of the tests in memory, where no study waits for a disk at each fsync.

    `--basetemp` chooses another folder. Processes of `-n` get theirs from the first process.
    """
    if config.option.basetemp or not mount_of(MEMORY_FOLDER).is_memory:
        return
    if shutil.disk_usage(MEMORY_FOLDER).free < FREE_MEMORY_BYTES:
        return
    folder = tempfile.mkdtemp(prefix="hptune-test-", dir=MEMORY_FOLDER)
    config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))
    config.option.basetemp = folder


@pytest.fixture(autouse=True, scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Return the folder of the certificates that schedulers and workers use in tests."""
    config = tmp_path_factory.mktemp("config")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CONFIG_HOME", str(config))
        ensure(default_folder())
        yield default_folder()


@pytest.fixture(autouse=True, scope="session")
def _linear_algebra_has_one_thread() -> Iterator[None]:
    """Keep the threads of test processes that share cores from waiting for each other."""
    with one_thread():
        yield


def is_jax_used() -> bool:
    """Return whether this process has used JAX, which warns at every later fork.

    TensorFlow imports JAX; that alone does no harm.
    """
    bridge = sys.modules.get("jax._src.xla_bridge")
    return bridge is not None and bridge.backends_are_initialized()


NO_JAX = "uses JAX in the process of the tests, where others fork; use child.answer_of"
NO_TENSORFLOW = "imports TensorFlow in every process of the tests; import it in the test"


@pytest.fixture(autouse=True)
def _jax_is_used_in_children_only() -> Iterator[None]:
    """Fail a test that uses JAX in this process."""
    before = is_jax_used()
    yield
    if is_jax_used() and not before:
        pytest.fail(f"this test {NO_JAX}")


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Fail a file that uses JAX, or imports TensorFlow, in this process when it is imported."""
    used_jax, had_tensorflow = is_jax_used(), "tensorflow" in sys.modules
    report = yield
    if is_jax_used() and not used_jax:
        report.outcome = "failed"
        report.longrepr = f"{collector.nodeid} {NO_JAX}"
    elif "tensorflow" in sys.modules and not had_tensorflow:
        report.outcome = "failed"
        report.longrepr = f"{collector.nodeid} {NO_TENSORFLOW}"
    return report


@pytest.fixture
def directory(tmp_path: Path) -> StudyDirectory:
    """Return the directory of a new study."""
    return StudyDirectory(tmp_path / "study").create()


@pytest.fixture
def ledger(directory: StudyDirectory) -> Iterator[Ledger]:
    """Return a new study's ledger."""
    with Ledger.create(directory, {}) as ledger:
        yield ledger


@pytest.fixture
def commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Commands:
    """Return the directory where commands are looked for first."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder), prepend=os.pathsep)
    return Commands(folder)


@pytest.fixture
def hptune(tmp_path: Path) -> Iterator[Hptune]:
    """Return the command; after the test, nothing that it started may be left."""
    runner = Hptune(tmp_path)
    try:
        yield runner
    finally:
        runner.close()


@pytest.fixture
def cli(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> Iterator[InProcess]:
    """Return the command, called in this process; it runs whole studies with `--executor joblib`.

    Model files are read, and trials run, in children of `warm`, and workers are threads. So a study
    costs a tenth of what its own processes cost.
    """
    import joblib

    from in_process import InProcess, SharedForkServer

    def shared(_source: object) -> SharedForkServer:
        return SharedForkServer(request.getfixturevalue("warm"))

    shared.resting = shared  # type: ignore[attr-defined]  # as that of the class

    monkeypatch.setattr("hptune.master.workforce.ForkServer", shared)
    # No study would take the one that is started early.
    monkeypatch.setattr(ForkServer, "started_early", lambda _: contextlib.nullcontext())
    monkeypatch.chdir(tmp_path)
    with joblib.parallel_config("threading"):
        yield InProcess(tmp_path, capfd)


@pytest.fixture
def warm(request: pytest.FixtureRequest) -> ForkServer:
    """Return a fork server for model files; the mark of a test says what it has imported."""
    marks = ("tensorflow", "keras")
    imported = next((name for name in marks if request.node.get_closest_marker(name)), "plain")
    server: ForkServer = request.getfixturevalue(f"warm_{imported}")
    return server


@pytest.fixture(scope="session")
def warm_plain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ForkServer]:
    """Return a fork server without frameworks, for the model files of many tests."""
    first = "def objective(hp, trial):\n    return 0\n"
    with _fork_server(tmp_path_factory, first) as server:
        yield server


@pytest.fixture(scope="session")
def warm_keras(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ForkServer]:
    """Return a fork server that has imported Keras, on PyTorch where that is installed."""
    with _fork_server(tmp_path_factory, KERAS_MODEL, KERAS_BACKEND=light_backend()) as server:
        yield server


@pytest.fixture(scope="session")
def warm_tensorflow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ForkServer]:
    """Return a fork server that has imported Keras on TensorFlow."""
    with _fork_server(tmp_path_factory, KERAS_MODEL, KERAS_BACKEND="tensorflow") as server:
        yield server


KERAS_MODEL = "import keras_tuner\n\ndef build_model(hp):\n    return None\n"


@contextlib.contextmanager
def _fork_server(
    folders: pytest.TempPathFactory, text: str, **environment: str
) -> Iterator[ForkServer]:
    """Start a fork server for a model file, with these environment variables."""
    first = folders.mktemp("first") / "first.py"
    first.write_text(text)
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment.items():
            patch.setenv(name, value)
        server = ForkServer(check_path(first))
    with contextlib.closing(server):
        yield server


@pytest.fixture(scope="module")
def chromium() -> Iterator[Chromium]:
    """Return a browser that opens windows, or skip the test where there is none."""
    from browser import started

    with started() as found:
        yield found


@pytest.fixture
def attempts(warm: ForkServer, tmp_path: Path) -> Attempts:
    """Return an object that runs single attempts."""
    return Attempts(warm, tmp_path)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the rooms with long files first, so that all processes end at about the same time."""
    for item in items:
        if item.get_closest_marker("timeout"):
            continue
        if needs_slurm(item.nodeid):
            item.add_marker(pytest.mark.timeout(SLURM_TURN_SECONDS))
        elif "image" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.timeout(BASE_IMAGE_SECONDS))
    items.sort(key=lambda item: _turn(item.nodeid))


def _turn(nodeid: str) -> int:
    room = nodeid.removeprefix("tests/").partition("::")[0].partition("/")[0]
    return LONG_FILES.index(room) if room in LONG_FILES else len(LONG_FILES)


def needs_slurm(nodeid: str) -> bool:
    """Return whether a test needs a real Slurm, by its folder."""
    return nodeid.startswith("tests/slurm/")


class FilesSideBySide(LoadFileScheduling):  # type: ignore[misc]
    """Scheduling with one process for all tests that need a Slurm: only one can run at a time.

    So it is with each folder of `training`, whose files would each import Keras, or start fork
    servers that do, in a process of their own.
    """

    def _split_scope(self, nodeid: str) -> str:
        scope: str = super()._split_scope(nodeid)
        if needs_slurm(nodeid):
            return "slurm"
        return str(Path(scope).parent) if scope.startswith("tests/training/") else scope


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say how long the tests of each room took, added up over the processes."""
    seconds: defaultdict[str, float] = defaultdict(float)
    tests: Counter[str] = Counter()
    for report in itertools.chain.from_iterable(terminalreporter.stats.values()):
        if isinstance(report, pytest.TestReport):
            folders = Path(report.nodeid.partition("::")[0]).parent.parts
            room = folders[1] if len(folders) > 1 else "tests"
            seconds[room] += report.duration
            tests[room] += report.when == "call"
    terminalreporter.section("time of each room")
    for room, total in sorted(seconds.items(), key=lambda each: -each[1]):
        terminalreporter.line(f"{total:7.1f} s  {room} ({tests[room]} tests)")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> FilesSideBySide:
    """Return how tests are divided between the processes of `pytest -n`."""
    return FilesSideBySide(config, log)


@pytest.fixture(scope="module")
def one_slurm() -> Iterator[PrivateSlurm]:
    """Return a private Slurm, or skip the test.

    One at a time on this machine: where tests run side by side, the next module waits.
    """
    if why := missing():
        unavailable(f"the Slurm tests cannot run: {why}")
    with Path(tempfile.gettempdir(), f"hptune-test-slurm-{os.getuid()}").open("w") as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)
        slurm = PrivateSlurm()
        try:
            slurm.start()
            yield slurm
        finally:
            slurm.stop()


@pytest.fixture
def slurm(one_slurm: PrivateSlurm, monkeypatch: pytest.MonkeyPatch) -> Iterator[PrivateSlurm]:
    """Return a Slurm with an empty queue; after the test, its queue must be empty."""
    for name in [name for name in os.environ if name.startswith("SLURM_")]:
        monkeypatch.delenv(name)
    for name, value in one_slurm.environment.items():
        monkeypatch.setenv(name, value)
    yield one_slurm
    # A job that was cancelled takes a moment to be gone.
    with contextlib.suppress(TimeoutError):
        wait_until(lambda: not one_slurm.jobs(), "an empty queue")
    left = one_slurm.clear()
    assert left == [], "the test left jobs behind"


@pytest.fixture(scope="module")
def one_grid_engine() -> Iterator[private_grid_engine.PrivateGridEngine]:
    """Return a private Grid Engine, or skip the test."""
    if why := private_grid_engine.missing():
        unavailable(f"the tests with Grid Engine cannot run: {why}")
    engine = private_grid_engine.PrivateGridEngine()
    try:
        engine.start()
        yield engine
    finally:
        engine.stop()


@pytest.fixture
def grid_engine(
    one_grid_engine: private_grid_engine.PrivateGridEngine, monkeypatch: pytest.MonkeyPatch
) -> Iterator[private_grid_engine.PrivateGridEngine]:
    """Return a Grid Engine with an empty queue; after the test, its queue must be empty."""
    for name in [name for name in os.environ if name.startswith(("SLURM_", "DASK_"))]:
        monkeypatch.delenv(name)
    for name, value in one_grid_engine.environment.items():
        monkeypatch.setenv(name, value)
    yield one_grid_engine
    with contextlib.suppress(TimeoutError):
        wait_until(lambda: not one_grid_engine.jobs(), "an empty queue")
    assert one_grid_engine.clear() == [], "the test left jobs behind"


@pytest.fixture(scope="session")
def image() -> str:
    """Return the name of an image of this checkout, without a framework."""
    from real_containers import build_image, missing

    if why := missing():
        unavailable(f"the tests on containers cannot run: {why}")
    return build_image()


@pytest.fixture
def containers(image: str, hptune: Hptune) -> Iterator[Containers]:
    """Return containers of the image; none is left after the test."""
    from real_containers import Containers

    opened = Containers(image, hptune)
    try:
        yield opened
    finally:
        opened.close()


@pytest.fixture
def driver() -> EngineDriver:
    """Return the driver of a new engine."""
    from engine_driver import EngineDriver

    return EngineDriver()


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Node]:
    """Return a node whose data cache is in the test's directory."""
    from data_cache_node import Node
    from hptune.training.data_cache import data_cache

    place = tmp_path / "node"
    place.mkdir()
    monkeypatch.setenv("SLURM_TMPDIR", str(place))
    monkeypatch.chdir(tmp_path)
    node = Node(place, tmp_path)
    node.join()
    try:
        yield node
    finally:
        data_cache.close()


@pytest.fixture
def calls(tmp_path: Path) -> Calls:
    """Return a counter of the calls of a load_data."""
    from data_cache_node import Calls

    return Calls(tmp_path / "calls")


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Return the clock of all workers in the test that exchange files."""
    from file_network import Clock
    from hptune.worker.transport import file_requests, remote_study

    clock = Clock()
    for module in (file_requests, remote_study):
        monkeypatch.setattr(module, "time", clock)
    return clock


@pytest.fixture
def network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Network]:
    """A master and workers that exchange files."""
    from file_network import Network
    from hptune.worker.transport import file_requests

    monkeypatch.setattr(file_requests, "LOOK_SECONDS", 0.05)
    found = Network(tmp_path)
    yield found
    found.close()
