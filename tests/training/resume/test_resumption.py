"""Interrupted trials end with the same bits as undisturbed ones."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import pytest

from attempts import Attempts
from hptune.core.attempt import Cause, Halt
from hptune.training.resume.checkpoint import Checkpoints
from hptune.user_code.model_file import check_path
from hptune.worker.forkserver.client import ForkServer
from interrupted_training import COPY_ALWAYS, EPOCHS, FIT, MODEL, SMALL, Put
from keras_models import evaluated
from requirements import require

pytestmark = pytest.mark.keras


def test_killed_in_any_epoch_it_ends_the_same(attempts: Attempts, tmp_path: Path) -> None:
    kill_in_every_epoch(Put(attempts, tmp_path, SMALL + FIT))


@pytest.mark.tensorflow
def test_killed_on_tensorflow_it_ends_the_same(attempts: Attempts, tmp_path: Path) -> None:
    put = Put(attempts, tmp_path, MODEL + FIT)
    expected = put.whole_and_killed(3, "batch", reported=3)
    result = put.attempt(number=1)
    assert result.steps == [4, 5, 6], result.log
    assert (put.end(result), put.backend) == (expected, "tensorflow")


@pytest.mark.slow
@pytest.mark.tensorflow
@pytest.mark.parametrize("optimizer", ["adam", "momentum", "scheduled", "averaged"])
def test_with_each_optimizer_too(attempts: Attempts, tmp_path: Path, optimizer: str) -> None:
    kill_in_every_epoch(Put(attempts, tmp_path, MODEL + FIT, optimizer=optimizer))


@pytest.mark.slow  # a minute and more each
@pytest.mark.timeout(900)
@pytest.mark.parametrize("backend", ["jax", "torch"])
def test_on_other_backends_too(tmp_path: Path, backend: str) -> None:
    with attempts_on(backend, tmp_path) as attempts:
        put = Put(attempts, tmp_path, MODEL + FIT)
        kill_in_every_epoch(put)
        assert put.backend == backend


TORCH_MODULES = """
import torch

def build_model(hp):
    model = keras.Sequential([
        keras.layers.Flatten(), keras.layers.TorchModuleWrapper(torch.nn.BatchNorm1d(36)),
        keras.layers.Dense(3, activation="softmax"),
    ])
    model.compile(keras.optimizers.Adam(0.1), "sparse_categorical_crossentropy")
    return model
"""


@pytest.mark.slow
def test_the_buffers_of_torch_modules_are_those_of_the_epoch(tmp_path: Path) -> None:
    """Keras does not know them; the averages of a BatchNorm decide what the model computes."""
    with attempts_on("torch", tmp_path) as attempts:
        put = Put(attempts, tmp_path, SMALL + TORCH_MODULES + FIT)
        expected = put.whole()
        kept = attempts.run(put.text, epochs=EPOCHS, deterministic=True)
        put.begin()
        put.die(3, "batch")
        assert put.attempt().ending.cause is Cause.KILLED
        result = put.attempt(number=1)
        assert result.steps == [4, 5, 6], result.log
        assert put.end(result) == expected
        assert kept.ending.step is not None
        assert kept.ending.step < EPOCHS, "so that the last epoch's weights are other ones"
        measured = evaluated(attempts, tmp_path / "model.py", kept.directory / "model.keras")
        assert measured == pytest.approx(kept.ending.metrics["val_loss"], abs=1e-5)


@contextlib.contextmanager
def attempts_on(backend: str, directory: Path) -> Iterator[Attempts]:
    """Attempts on another backend of Keras than the tests' own."""
    require(backend)
    first = directory / "first.py"
    first.write_text("import keras\n\ndef objective(hp, trial):\n    return 0\n")
    with mock.patch.dict(os.environ, KERAS_BACKEND=backend):
        warm = ForkServer(check_path(first))
    try:
        yield Attempts(warm, directory)
    finally:
        warm.close()


def kill_in_every_epoch(put: Put) -> None:
    expected = put.whole()
    assert len(put.reports) == EPOCHS
    put.begin()
    for epoch in range(EPOCHS):
        put.die(epoch, "batch")
        result = put.attempt(number=epoch)
        assert result.ending.cause is Cause.KILLED, result.log
        assert max(put.reports, default=0) == epoch
    result = put.attempt(number=EPOCHS)
    assert result.steps == [EPOCHS], result.log
    assert put.end(result) == expected


@pytest.mark.parametrize("where", ["begin", "sync"])
def test_killed_between_epochs_and_while_a_checkpoint_is_written(
    attempts: Attempts, tmp_path: Path, where: str
) -> None:
    put = Put(attempts, tmp_path, SMALL + FIT)
    expected = put.whole()
    put.begin()
    put.die(3, where)
    assert put.attempt().ending.cause is Cause.KILLED
    resume = tmp_path / "study" / "trials" / "2" / "resume"
    assert sorted(path.name for path in resume.glob("*.ckpt")) == ["2.ckpt", "3.ckpt"]
    assert len(list(resume.glob(".*.tmp"))) == (where == "sync")
    result = put.attempt(number=1)
    # The epoch whose checkpoint was being written had been reported, and is trained once more.
    assert result.steps == [4, 5, 6], result.log
    assert put.end(result) == expected
    assert not list(resume.glob(".*.tmp"))


@pytest.mark.parametrize(
    "parts",
    [
        ("nothing", "the model", "the callbacks"),
        pytest.param(("the optimizer", "the seeds", "the best"), marks=pytest.mark.slow),
    ],
)
def test_every_part_of_a_checkpoint_counts(
    attempts: Attempts, tmp_path: Path, parts: tuple[str, ...]
) -> None:
    """The other tests can fail: without any one part, the training ends differently."""
    put = Put(attempts, tmp_path, MODEL + FIT, seed=7)  # the fourth epoch is the best
    expected = put.whole_and_killed(5, "begin", reported=5)
    killed, reports = tmp_path / "copy", put.reports
    shutil.copytree(put.trial_directory, killed)
    for part in parts:
        put.begin()
        put.reports = {**reports}
        shutil.copytree(killed, put.trial_directory)
        damage(Checkpoints(put.trial_directory), part)
        ended = put.end(put.attempt(number=1))
        assert (ended == expected) == (part == "nothing"), part
        put.contradictions.clear()


def damage(checkpoints: Checkpoints, part: str) -> None:
    """Have one part of the newest checkpoint as if it had not been written."""
    newest = checkpoints.newest()
    assert newest is not None
    step, state = newest
    model, optimizer = state.model.model, state.model.optimizers
    seeds = [each for each in model if each.dtype.kind in "iu" and each.size == 2]
    damaged = {"the model": model[:4], "the optimizer": optimizer, "the seeds": seeds}.get(part, ())
    for each in damaged:
        each[...] = 0
    if part == "the callbacks":
        state.callbacks.clear()
    assert state.recorder["best"][0] < step
    if part == "the best":
        state.recorder["best"] = None
        state.recorder["reports"].clear()
    checkpoints.write(step, state)
    assert part != "the seeds" or len(seeds) == 3  # two augmentations and the dropout


@pytest.mark.parametrize(("halt", "every"), [(Halt.PAUSE, None), (Halt.STOP, 4), (Halt.STOP, None)])
def test_a_trial_that_is_told_to_stop_keeps_its_last_epoch(
    attempts: Attempts, tmp_path: Path, halt: Halt, every: int | None
) -> None:
    put = Put(attempts, tmp_path, SMALL + FIT + COPY_ALWAYS)
    expected = put.whole()
    put.begin()
    result = put.attempt(halt=(3, halt), checkpoint_every=every)
    assert result.ending.cause is halt.cause
    kept = Checkpoints(tmp_path / "study" / "trials" / "2").newest()
    assert kept is not None
    assert kept[0] == result.steps[-1]
    assert result.steps[-1] < EPOCHS
    assert put.end(put.attempt(number=1)) == expected


def test_a_pruned_trial_stops_at_once(attempts: Attempts, tmp_path: Path) -> None:
    result = Put(attempts, tmp_path, SMALL + FIT).attempt(halt=(1, Halt.PRUNE), checkpoint_every=0)
    assert result.ending.cause is Cause.PRUNED
    assert not (result.directory / "resume").exists()


def test_reports_that_the_study_never_received_are_sent_again(
    attempts: Attempts, tmp_path: Path
) -> None:
    """The master died, and the trial continued for a moment."""
    put = Put(attempts, tmp_path, SMALL + FIT)
    expected = put.whole()
    put.begin()
    put.die(4, "begin")
    put.attempt()
    del put.reports[4], put.reports[3]
    result = put.attempt(number=1)
    assert result.steps == [3, 4, 5, 6]
    assert put.end(result) == expected


def test_a_first_attempt_uses_no_checkpoint(attempts: Attempts, tmp_path: Path) -> None:
    put = Put(attempts, tmp_path, SMALL + FIT)
    put.die(3, "batch")
    put.attempt()
    assert put.attempt().steps == [1, 2, 3, 4, 5, 6]


def test_another_model_starts_again_and_says_so(attempts: Attempts, tmp_path: Path) -> None:
    put = Put(attempts, tmp_path, SMALL + FIT)
    put.die(3, "batch")
    put.attempt()
    put.text = put.text.replace("Dense(4", "Dense(5")
    put.reports = {}
    result = put.attempt(number=1)
    assert result.steps == [1, 2, 3, 4, 5, 6]
    assert "starts again, as its checkpoint does not fit" in result.log
