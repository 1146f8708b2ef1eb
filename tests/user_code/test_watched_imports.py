"""What is said while a framework is imported."""

from __future__ import annotations

import gc
import importlib
import importlib.util
import os
import signal
import subprocess
import sys
import threading
import zipfile
from pathlib import Path
from threading import Thread
from types import SimpleNamespace

import pytest

from hptune.reporting.terminal.display import imports_shown
from hptune.user_code.watched_imports import watched_imports

LINES = "WARNING: All log messages before absl::InitializeLog() is called\\nI0000 port.cc: on\\n"
PACKAGES = {
    "jax": "x = 1\n",
    "tensorflow": f"import os, jax\nos.write(2, b'{LINES}E0000 no driver\\n')\n",
    "torch": "raise ImportError('no such library')\n",
    "keras": "import tensorflow\nx = 1\n",
}


@pytest.fixture(autouse=True)
def _packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put packages of these names in place of the installed ones."""
    monkeypatch.syspath_prepend(tmp_path)
    for name, text in PACKAGES.items():
        (tmp_path / f"{name}.py").write_text(text)
        for module in {name, *(each for each in sys.modules if each.startswith(f"{name}."))}:
            monkeypatch.setitem(sys.modules, module, sys)  # it is as before in the end
            del sys.modules[module]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("jax", ["importing JAX", ""]),
        ("tensorflow", ["importing TensorFlow"] * 3 + [""]),
        (
            "keras",
            ["importing Keras", *["importing TensorFlow"] * 3, "importing Keras", ""],
        ),
        ("colorsys", []),
    ],
)
def test_a_framework_is_named_once_for_all_that_it_imports(name: str, said: list[str]) -> None:
    heard: list[str] = []
    with watched_imports(heard.append):
        assert importlib.util.find_spec(name)
        assert heard == []
        module = importlib.import_module(name)
    assert heard == said
    assert "exec_module" not in vars(module.__loader__)
    assert importlib.import_module(name) is module
    assert heard == said


def test_an_import_that_fails_is_over() -> None:
    heard: list[str] = []
    with watched_imports(heard.append), pytest.raises(ImportError, match="no such library"):
        importlib.import_module("torch")
    assert heard == ["importing PyTorch", ""]
    assert gc.isenabled()


def test_the_garbage_collector_runs_only_around_imports(tmp_path: Path) -> None:
    modules = {"jax": "", "tensorflow": "import jax\n", "keras": "import tensorflow\n"}
    for name, text in modules.items():
        (tmp_path / f"{name}.py").write_text(f"{text}import gc\nis_on = gc.isenabled()\n")
    frozen = gc.get_freeze_count()
    try:
        with watched_imports(lambda _: None):
            assert gc.isenabled()
            is_on = [importlib.import_module(name).is_on for name in reversed(modules)]
            assert gc.isenabled()
            assert gc.get_freeze_count() > frozen
    finally:
        gc.unfreeze()
    assert is_on == [False, False, False]


def test_a_lazy_module_that_is_used_later_runs_without_a_word() -> None:
    heard: list[str] = []
    with watched_imports(heard.append):
        spec = importlib.util.find_spec("jax")
        assert spec is not None
        assert spec.loader is not None
        lazy = importlib.util.LazyLoader(spec.loader)
        module = importlib.util.module_from_spec(spec)
        lazy.exec_module(module)
    assert module.x == 1
    assert heard == []


def test_user_code_may_replace_the_finders(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "meta_path", sys.meta_path)
    heard: list[str] = []
    with watched_imports(heard.append):
        sys.meta_path = sys.meta_path[1:]
        importlib.import_module("jax")
    assert heard == []


def test_another_thread_that_goes_through_the_finders_misses_none() -> None:
    seen: list[list[object]] = []
    others = [*sys.meta_path]
    looks = SimpleNamespace(find_spec=lambda *_: seen.append([*sys.meta_path]))
    with watched_imports(lambda _: None):
        sys.meta_path.insert(1, looks)
        try:
            importlib.util.find_spec("jax")
        finally:
            sys.meta_path.remove(looks)
    assert [each[1:] for each in seen] == [[looks, *others]]


def test_other_modules_of_the_same_loader_are_not_watched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with zipfile.ZipFile(tmp_path / "all.zip", "w") as archive:
        archive.writestr("jax.py", "")
        archive.writestr("of_the_zip.py", "x = 2")
    (tmp_path / "jax.py").unlink()
    monkeypatch.syspath_prepend(tmp_path / "all.zip")
    heard: list[str] = []
    with watched_imports(heard.append):
        importlib.util.find_spec("jax")
        assert importlib.import_module("of_the_zip").x == 2
    assert heard == []


@pytest.mark.parametrize("quiet", [False, True])
def test_lines_for_information_are_left_out_at_an_import(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *, quiet: bool
) -> None:
    monkeypatch.setattr("hptune.reporting.terminal.display._TICK_SECONDS", 0.0)
    with imports_shown(quiet=quiet) as say, watched_imports(say):
        importlib.import_module("keras")
        sys.stderr.write("I0000 of the script\n")
    err = capfd.readouterr().err
    assert err.endswith("E0000 no driver\nI0000 of the script\n")
    assert "InitializeLog" not in err
    assert quiet == (err.count("\n") == 2), err


def test_the_end_of_an_import_is_no_line(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Late(threading.Event):
        """Comes when the thread has just looked for it."""

        def __init__(self) -> None:
            super().__init__()
            self._closing = threading.Event()

        def wait(self, timeout: float | None = None) -> bool:
            was_closing = self._closing.is_set()
            self._closing.wait()
            return was_closing and super().wait(timeout)

        def set(self) -> None:
            self._closing.set()
            super().set()

    display = "hptune.reporting.terminal.display"
    monkeypatch.setattr(f"{display}._TICK_SECONDS", 0.0)
    monkeypatch.setattr(f"{display}.threading", SimpleNamespace(Event=Late, Thread=Thread))
    with imports_shown(quiet=False) as say:
        say("importing JAX")
        say("")
    assert capfd.readouterr().err == "    0s  importing JAX …\n"


def test_what_a_framework_writes_before_it_kills_its_process_is_shown(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text(
        f"import os\nos.write(2, b'{LINES}F0000 needs AVX\\n')\nos.abort()\n"
    )
    script = (
        "from hptune.reporting.terminal.display import imports_shown\n"
        "from hptune.user_code.watched_imports import watched_imports\n"
        "with imports_shown(quiet=True) as say, watched_imports(say):\n"
        "    import torch\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        stderr=subprocess.PIPE,
        check=False,
    )
    assert ran.returncode == -signal.SIGABRT
    assert ran.stderr == b"F0000 needs AVX\n"


def test_nothing_fails_where_nobody_reads_stderr_any_more() -> None:
    reader, writer = os.pipe()
    before = os.dup(2)
    os.close(reader)
    os.dup2(writer, 2)
    os.close(writer)
    try:
        with imports_shown(quiet=False) as say, watched_imports(say):
            assert importlib.import_module("keras").x == 1
    finally:
        os.dup2(before, 2)
        os.close(before)
