"""The cause of an attempt's end from its exception, without any framework."""

from __future__ import annotations

import errno
import os
import tempfile
from pathlib import Path

import pytest

from hptune.core.attempt import Cause, Ending, Halt
from hptune.training.context import AttemptStopped, NonFiniteMetric, TrialPruned, UnknownMetric
from hptune.training.resume.checkpoint import NoRoom
from hptune.worker.forkserver import error_causes
from hptune.worker.forkserver.error_causes import Where, cause_of, ending_by_order, ending_of


def named(name: str, text: str, base: type[Exception] = Exception) -> Exception:
    """Return an exception with the name and the text of a framework's."""
    kind: type[Exception] = type(name, (base,), {})
    return kind(text)


TENSORFLOW = (
    "Graph execution error: OOM when allocating tensor with shape[64] on {} by allocator {}"
)
OF_DEVICES = [
    named("ResourceExhaustedError", TENSORFLOW.format("/device:GPU:0", "GPU_0_bfc")),
    named("XlaRuntimeError", "RESOURCE_EXHAUSTED: Out of memory while trying to allocate 9 bytes."),
    named("JaxRuntimeError", "RESOURCE_EXHAUSTED: Out of memory allocating 9 bytes.", RuntimeError),
    named("OutOfMemoryError", "CUDA out of memory. Tried to allocate 2 GiB.", RuntimeError),
    RuntimeError("CUDA error: out of memory"),
]
OF_THE_HOST = [
    MemoryError(),
    named("_ArrayMemoryError", "Unable to allocate 7 TiB", MemoryError),
    named("ResourceExhaustedError", TENSORFLOW.format("/device:CPU:0", "cpu")),
    RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried 9 bytes"),
    OSError(errno.ENOMEM, os.strerror(errno.ENOMEM)),
]
LIGHTNINGS: BaseException = type("SIGTERMException", (SystemExit,), {})()
OTHERS = [
    ValueError("out of memory"),  # the user's own words
    named("XlaRuntimeError", "INVALID_ARGUMENT: shapes do not match"),
    RecursionError("maximum recursion depth exceeded; Out of memory?"),
    OSError(errno.ENOENT, "no such file"),
]


OF_MACHINE = [
    OSError(number, os.strerror(number))
    for number in (
        errno.EIO,
        errno.ESTALE,
        errno.ETIMEDOUT,
        errno.ESHUTDOWN,
        errno.ENOTCONN,
        errno.EMFILE,
        errno.ENFILE,
    )
]


def name_of(error: Exception) -> str:
    return f"{type(error).__name__} {error}"[:40]


@pytest.mark.parametrize("error", OF_DEVICES, ids=name_of)
def test_a_device_without_memory(error: Exception) -> None:
    assert cause_of(error, has_gpu=True) is Cause.DEVICE_OUT_OF_MEMORY
    # There is no device but the host.
    assert cause_of(error, has_gpu=False) is Cause.OUT_OF_MEMORY


@pytest.mark.parametrize("error", OF_THE_HOST, ids=name_of)
def test_a_host_without_memory(error: Exception) -> None:
    assert cause_of(error, has_gpu=True) is Cause.OUT_OF_MEMORY


@pytest.mark.parametrize("error", OTHERS, ids=name_of)
def test_other_errors_are_the_codes_own(error: Exception) -> None:
    assert cause_of(error, has_gpu=True) is Cause.EXCEPTION


def test_what_it_was_raised_from_counts() -> None:
    def training() -> None:
        try:
            raise OF_DEVICES[0]
        except Exception as error:
            raise ValueError("the training failed") from error

    def cleaning_up() -> None:
        try:
            raise OF_DEVICES[0]
        finally:
            raise KeyError("and then this")

    for act in (training, cleaning_up):
        with pytest.raises((ValueError, KeyError)) as caught:
            act()
        assert cause_of(caught.value, has_gpu=True) is Cause.DEVICE_OUT_OF_MEMORY
    group = ExceptionGroup("several", [ValueError("no"), OF_DEVICES[3]])
    assert cause_of(group, has_gpu=True) is Cause.DEVICE_OUT_OF_MEMORY
    circle = ValueError("no")
    circle.__context__ = KeyError("no")
    circle.__context__.__context__ = circle
    assert cause_of(circle, has_gpu=True) is Cause.EXCEPTION


@pytest.mark.parametrize("error", OF_MACHINE, ids=name_of)
def test_a_machine_that_fails_is_no_fault_of_the_configuration(error: Exception) -> None:
    assert cause_of(error, has_gpu=False) is Cause.WORKER_LOST
    assert cause_of(TimeoutError("the user's own words"), has_gpu=False) is Cause.EXCEPTION


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("CUDA error: uncorrectable ECC error encountered"),
        named("XlaRuntimeError", "INTERNAL: CUDA_ERROR_ECC_UNCORRECTABLE: uncorrectable ECC error"),
        named(
            "AcceleratorError",
            "CUDA error: uncorrectable NVLink error detected during the execution",
            RuntimeError,
        ),
    ],
    ids=name_of,
)
def test_a_gpu_that_fails_is_no_fault_of_the_configuration(error: Exception) -> None:
    assert cause_of(error, has_gpu=True) is Cause.WORKER_LOST
    assert cause_of(error, has_gpu=False) is Cause.EXCEPTION
    assert cause_of(ValueError(*error.args), has_gpu=True) is Cause.EXCEPTION


def test_each_kind_of_exception_has_its_ending(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    where = Where(tmp_path, has_gpu=False, has_begun=True)
    of_hptune = [
        (AttemptStopped(Halt.PAUSE, "more"), Halt.PAUSE.cause, f"{Halt.PAUSE.reason}; more"),
        (NonFiniteMetric("loss is nan"), Cause.NON_FINITE, "loss is nan"),
        (UnknownMetric("no such metric"), Cause.UNKNOWN_METRIC, "no such metric"),
        (NoRoom("the disk is full"), Cause.NO_ROOM, "the disk is full"),
        (SystemExit(3), Cause.EXITED, "sys.exit(3)"),
        (LIGHTNINGS, Cause.KILLED, "SIGTERM from outside: SIGTERMException"),
    ]
    for error, cause, reason in of_hptune:
        assert ending_of(error, where) == Ending(cause, reason=reason)
    assert capsys.readouterr().err == ""
    assert ending_of(KeyError("lr"), where) == Ending(Cause.EXCEPTION, reason="KeyError: 'lr'")
    assert ending_of(KeyboardInterrupt(), where).cause is Cause.EXCEPTION
    assert "KeyError: 'lr'" in capsys.readouterr().err


def test_errors_of_the_disk_are_not_the_configurations_fault(tmp_path: Path) -> None:
    full = OSError(errno.ENOSPC, "no space left")
    before, after = (Where(tmp_path, has_gpu=False, has_begun=begun) for begun in (False, True))
    assert ending_of(full, after).cause is Cause.WORKER_LOST, "the study's own directory has space"
    assert ending_of(OSError(errno.ENOENT, "gone"), before).cause is Cause.WORKER_LOST
    assert ending_of(OSError(errno.ENOENT, "gone"), after).cause is Cause.EXCEPTION


def test_the_root_of_a_node_is_no_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("KERAS_HOME", "TORCH_HOME", "HF_HOME", "XDG_CACHE_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(tempfile, "tempdir", "/proc")  # another file system
    monkeypatch.setattr(error_causes, "_is_full", lambda folder: folder == Path("/"))
    error = OSError(errno.ENOSPC, "No space left on device", "/var/x")
    ending = ending_of(error, Where(tmp_path, has_gpu=False, has_begun=True))
    assert ending.cause is Cause.WORKER_LOST


@pytest.mark.parametrize("name", ["HOME", "KERAS_HOME"])
def test_a_full_home_is_named_and_costs_no_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    if not os.access("/dev/shm", os.W_OK):
        pytest.skip("needs a folder on another device than the temporary one")
    monkeypatch.setattr(error_causes, "_is_full", lambda folder: str(folder) == "/dev/shm")
    monkeypatch.setenv("KERAS_HOME", str(tmp_path))
    monkeypatch.setenv(name, "/dev/shm")
    where = Where(tmp_path, has_gpu=False, has_begun=True)
    ending = ending_of(OSError(errno.EDQUOT, "quota exceeded"), where)
    assert ending.cause is Cause.NO_ROOM
    assert "/dev/shm is full. Free some space, or set KERAS_HOME, TORCH_HOME" in ending.reason
    monkeypatch.setattr(error_causes, "_is_full", lambda _folder: False)
    assert ending_of(OSError(errno.ENOSPC, "full"), where).cause is Cause.WORKER_LOST


def test_code_that_says_pruned_has_the_cause_that_the_study_gave() -> None:
    assert ending_by_order(ValueError(), None) is None
    for halt, cause in ((None, Cause.PRUNED), (Halt.PAUSE, Halt.PAUSE.cause)):
        found = ending_by_order(TrialPruned("poor"), halt)
        assert found == Ending(cause, reason="TrialPruned: poor")


@pytest.mark.parametrize(
    ("folder", "variable"),
    [
        (".cache/huggingface/hub/models", "HF_HOME"),
        (".cache/torch/hub", "TORCH_HOME"),
        (".keras/datasets", "KERAS_HOME"),
        (".triton/cache", "TRITON_CACHE_DIR"),
        (".cache/x", "XDG_CACHE_HOME"),
        ("logs", "HOME"),
    ],
)
@pytest.mark.parametrize("number", [errno.EROFS, errno.EACCES, errno.ENOSPC, errno.EDQUOT])
def test_a_home_that_takes_no_files_is_named_with_the_variable_that_moves_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: str, variable: str, number: int
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    error = RuntimeError("no weights")
    error.__cause__ = OSError(number, os.strerror(number), str(tmp_path / folder))
    ending = ending_of(error.__cause__, Where(tmp_path, has_gpu=False, has_begun=True))
    assert ending.cause is Cause.EXCEPTION
    assert str(tmp_path / folder) in ending.reason
    assert f"let {variable} name a folder that it can write" in ending.reason
    assert variable in ending_of(error, Where(tmp_path, has_gpu=False, has_begun=True)).reason


def test_a_file_of_the_home_that_is_there_and_may_not_be_read_is_the_users_affair(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "data").touch()
    error = PermissionError(errno.EACCES, "no", str(tmp_path / "data"))
    assert "HOME" not in ending_of(error, Where(tmp_path, has_gpu=False, has_begun=True)).reason
