"""Trials that are put down and picked up end as those do that were left alone, bit for bit."""

from __future__ import annotations

import importlib.util
import json
import os
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
from attempts import Attempts, Result

from tuner.core.trial import Cause, Halt
from tuner.model_file import check_path
from tuner.training.checkpoint import Checkpoints
from tuner.worker.warm_parent import WarmParent

EPOCHS = 6

MODEL = """
import json, os, pathlib, signal
import keras
import numpy as np

OBJECTIVE = "val_loss"
STOPPING = keras.callbacks.EarlyStopping(patience=50, restore_best_weights=True)
PLATEAU = keras.callbacks.ReduceLROnPlateau(patience=1, factor=0.5, min_delta=1.0)

def build_model(hp):
    optimizer = hp.Choice("optimizer", ["adam", "momentum", "scheduled", "averaged"])
    layers = keras.layers
    model = keras.Sequential([
        keras.Input((6, 6, 1)), layers.RandomFlip(), layers.RandomTranslation(0.1, 0.1),
        layers.Conv2D(4, 3), layers.BatchNormalization(), layers.Activation("relu"),
        layers.Flatten(), layers.Dropout(0.3), layers.Dense(3, activation="softmax"),
    ])
    model.compile({
        "adam": keras.optimizers.Adam(0.01),
        "momentum": keras.optimizers.SGD(0.05, momentum=0.9, nesterov=True),
        "scheduled": keras.optimizers.Adam(keras.optimizers.schedules.CosineDecay(0.02, 40)),
        "averaged": keras.optimizers.AdamW(0.01, use_ema=True),
    }[optimizer], "sparse_categorical_crossentropy", metrics=["accuracy"])
    return model

def load_data():
    draw = np.random.default_rng(3)
    def some(count):
        x = draw.normal(size=(count, 6, 6, 1)).astype("float32")
        return x, (x.sum(axis=(1, 2, 3)) > 0).astype("int32") + (x[:, 0, 0, 0] > 1)
    return some(50), some(20)

class End(keras.callbacks.Callback):
    "Notes how it ends, and comes to a sudden end itself where it is told to."
    part = ""

    def on_train_batch_end(self, batch, logs=None):
        if batch == 1:
            self.die_if_told("batch" + self.part)

    def on_epoch_begin(self, epoch, logs=None):
        self.epoch = epoch
        self.die_if_told("begin")

    def on_train_end(self, logs=None):
        optimizer = self.model.optimizer
        known = [*self.model.variables, *optimizer.variables]
        np.savez("end.npz", *[keras.ops.convert_to_numpy(each) for each in known])
        rate = float(keras.ops.convert_to_numpy(optimizer.learning_rate))
        pathlib.Path("end.json").write_text(json.dumps({
            "backend": keras.backend.backend(),
            "history": self.model.history.history, "epoch": self.model.history.epoch,
            "rate": rate, "wait": STOPPING.wait, "best": STOPPING.best, "plateau": PLATEAU.wait}))

    def die_if_told(self, where):
        told = pathlib.Path("die.json")
        if told.exists() and json.loads(told.read_text()) == [self.epoch, where]:
            told.unlink()
            os.kill(os.getpid(), signal.SIGKILL)

END = End()
sync = os.fsync

def dying_sync(file):
    "The disk is slow, and the process dies before the checkpoint is on it."
    if os.readlink(f"/proc/self/fd/{file}").endswith(".tmp"):
        END.die_if_told("sync")
    sync(file)

os.fsync = dying_sync
"""
FIT = """
def fit(hp, model, data, callbacks, epochs):
    (x, y), validation = data
    fixed = hp.values.get("optimizer") != "scheduled"
    return model.fit(x, y, validation_data=validation, epochs=epochs, batch_size=16,
                     callbacks=[*callbacks, STOPPING, *[PLATEAU] * fixed, END])
"""


_WHOLE: dict[str, tuple[dict[str, object], dict[int, dict[str, float]], str]] = {}
"""How undisturbed trainings end, which is the same each time."""


class Put:
    """Runs one trial, attempt after attempt, and knows how it ended."""

    def __init__(self, attempts: Attempts, directory: Path, text: str, **params: object) -> None:
        self.attempts = attempts
        self.directory = directory
        self.text = text
        self.params = params
        self.reports: dict[int, dict[str, float]] = {}
        self.contradictions: list[int] = []
        self.trial = 0
        self.backend = ""

    def whole(self) -> dict[str, object]:
        """How it ends if nothing happens."""
        self.begin()
        key = repr((id(self.attempts.warm), self.text, self.params))
        if key not in _WHOLE:
            _WHOLE[key] = self._undisturbed(), self.reports, self.backend
        ended, self.reports, self.backend = _WHOLE[key]
        return ended

    def _undisturbed(self) -> dict[str, object]:
        result = self.attempt()
        assert result.ending.cause is Cause.RETURNED, result.log
        return self.end(result)

    def begin(self) -> None:
        self.trial += 1
        self.reports = {}

    def attempt(self, number: int = 0, **how: Any) -> Result:
        result = self.attempts.run(
            self.text,
            epochs=EPOCHS,
            deterministic=True,
            trial=self.trial,
            number=number,
            resume_from=max(self.reports, default=None),
            **{"checkpoint_every": 1, **how, **self.params},
        )
        for step, metrics in result.reports:
            if self.reports.setdefault(step, dict(metrics)) != metrics:
                self.contradictions.append(step)
        return result

    def die(self, epoch: int, where: str) -> None:
        (self.directory / "die.json").write_text(json.dumps([epoch, where]))

    def end(self, result: Result) -> dict[str, object]:
        found: dict[str, object] = {
            "ending": (result.ending.metrics, result.ending.step),
            "reports": self.reports,
            "trained again, and otherwise": self.contradictions,
        }
        if (self.directory / "end.json").exists():
            found["end"] = end = json.loads((self.directory / "end.json").read_text())
            self.backend = end["backend"]
            with np.load(self.directory / "end.npz") as arrays:
                found["arrays"] = [arrays[name].tolist() for name in arrays.files]
        return found


@pytest.mark.parametrize(
    "optimizer",
    [
        "adam",
        *(
            pytest.param(each, marks=pytest.mark.slow)
            for each in ("momentum", "scheduled", "averaged")
        ),
    ],
)
def test_killed_in_any_epoch_it_ends_the_same(
    attempts: Attempts, tmp_path: Path, optimizer: str
) -> None:
    kill_in_every_epoch(Put(attempts, tmp_path, MODEL + FIT, optimizer=optimizer))


@pytest.mark.timeout(900)
@pytest.mark.parametrize("backend", ["jax", "torch"])
def test_on_other_backends_too(tmp_path: Path, backend: str) -> None:
    if importlib.util.find_spec(backend) is None:
        pytest.skip(f"{backend} is not installed")
    first = tmp_path / "first.py"
    first.write_text("def objective(hp, trial):\n    return 0\n")
    with mock.patch.dict(os.environ, KERAS_BACKEND=backend):
        warm = WarmParent(check_path(first))
    try:
        put = Put(Attempts(warm, tmp_path), tmp_path, MODEL + FIT)
        kill_in_every_epoch(put)
        assert put.backend == backend
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
    put = Put(attempts, tmp_path, MODEL + FIT)
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
    "part",
    [
        "nothing",
        "the model",
        "the callbacks",
        *(
            pytest.param(each, marks=pytest.mark.slow)
            for each in ("the optimizer", "the seeds", "the best")
        ),
    ],
)
def test_every_part_of_a_checkpoint_counts(attempts: Attempts, tmp_path: Path, part: str) -> None:
    """Proves that the others can fail: whatever is left out, the end is another one."""
    put = Put(attempts, tmp_path, MODEL + FIT)
    expected = put.whole()
    put.begin()
    put.die(4, "begin")
    put.attempt()
    checkpoints = Checkpoints(tmp_path / "study" / "trials" / "2")
    found = checkpoints.newest()
    assert found is not None
    step, state = found
    model, optimizer = state.model.model, state.model.optimizers
    seeds = [each for each in model if each.dtype == np.int64 and each.size == 2]
    spoilt = {"the model": model[:4], "the optimizer": optimizer, "the seeds": seeds}.get(part, ())
    for each in spoilt:
        each[...] = 0
    if part == "the callbacks":
        state.callbacks.clear()
    if part == "the best":
        state.memory["best"] = None
        state.memory["reports"].clear()
    checkpoints.write(step, state)
    assert part != "the seeds" or len(seeds) == 3  # two augmentations and the dropout
    ended = put.end(put.attempt(number=1))
    assert (ended == expected) == (part == "nothing")


HYPERMODEL = """
import keras_tuner

class Hyper(keras_tuner.HyperModel):
    def build(self, hp):
        return _build(hp)

    def fit(self, hp, model, *args, **kwargs):
        kwargs["callbacks"] = [END, *kwargs["callbacks"]]
        return model.fit(*args, batch_size=16, **kwargs)
"""
SUBCLASSED = """
class Own(keras.Model):
    def __init__(self):
        super().__init__()
        self.drop, self.dense = keras.layers.Dropout(0.2), keras.layers.Dense(3)

    def call(self, x, training=False):
        return self.dense(self.drop(keras.ops.reshape(x, (-1, 36)), training=training))

def build_model(hp):
    model = Own()
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.RMSprop(0.01), loss)
    return model
"""
TWO_PHASES = """
def fit(hp, model, data, callbacks, epochs):
    (x, y), validation = data
    model.layers[2].trainable = False
    model.compile(keras.optimizers.Adam(0.02), "sparse_categorical_crossentropy")
    first = model.fit(x, y, validation_data=validation, epochs=3, callbacks=[*callbacks, END])
    assert len(first.history["val_loss"]) == 3
    model.layers[2].trainable = True
    model.compile(keras.optimizers.Adam(0.001), "sparse_categorical_crossentropy")
    return model.fit(x, y, validation_data=validation, epochs=epochs, initial_epoch=3,
                     callbacks=[*callbacks, END])
"""
OWN_CALLBACK = """
class Slower(keras.callbacks.Callback):
    count = 0

    def get_state(self):
        return self.count

    def set_state(self, state):
        self.count = state

    def on_epoch_begin(self, epoch, logs=None):
        self.count += 1
        self.model.optimizer.learning_rate = 0.05 / self.count

def fit(hp, model, data, callbacks, epochs):
    (x, y), validation = data
    return model.fit(x, y, validation_data=validation, epochs=epochs,
                     callbacks=[Slower(), *callbacks, END])
"""
STOPS_EARLY = """
def fit(hp, model, data, callbacks, epochs):
    (x, y), validation = data
    stop = keras.callbacks.EarlyStopping(patience=4, min_delta=10.0, restore_best_weights=True)
    return model.fit(x, y, validation_data=validation, epochs=epochs,
                     callbacks=[stop, *callbacks, END])
"""
BATCHES = """
class Batches(keras.utils.PyDataset):
    def __init__(self, x, y):
        super().__init__()
        self.x, self.y = x, y

    def __len__(self):
        return 4

    def __getitem__(self, i):
        rows = slice(i * 12, i * 12 + 12)
        return self.x[rows] + np.random.normal(size=(12, 6, 6, 1)), self.y[rows]

    def on_epoch_begin(self):
        done = pathlib.Path("study/trials/2/resume/3.ckpt")
        END.epoch = 3
        if done.exists():
            END.die_if_told("batch")

arrays = load_data

def load_data():
    train, validation = arrays()
    return Batches(*train), validation
"""


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(MODEL.replace("build_model", "_build") + HYPERMODEL, id="hypermodel"),
        pytest.param(MODEL + SUBCLASSED + FIT, id="subclassed"),
        pytest.param(MODEL + TWO_PHASES, id="two phases"),
        pytest.param(MODEL + OWN_CALLBACK, id="own callback"),
        pytest.param(MODEL + STOPS_EARLY, id="stops early"),
        pytest.param(MODEL + BATCHES, id="batches"),
    ],
)
def test_every_way_to_train_may_be_picked_up(attempts: Attempts, tmp_path: Path, text: str) -> None:
    put = Put(attempts, tmp_path, text)
    expected = put.whole()
    put.begin()
    put.die(3, "batch")
    result = put.attempt()
    assert result.ending.cause is Cause.KILLED, result.log
    assert result.steps == [1, 2, 3]
    result = put.attempt(number=1)
    assert put.end(result) == expected, result.log
    # The last epoch of a phase is not written down, as mostly nothing follows it.
    assert result.steps[-1] == max(put.reports)
    assert result.steps[0] == (3 if text.endswith(TWO_PHASES) else 4)


SEVERAL_MODELS = """
def fit(hp, model, data, callbacks, epochs):
    (x, y), validation = data
    for part in range(2):
        END.part = f" of {part}"
        last = build_model(hp).fit(x[part::2], y[part::2], validation_data=validation, epochs=3,
                                   batch_size=8, callbacks=[*callbacks, END])
    return last
"""
OWN_LOOP = """
def fit(hp, model, data, callbacks, epochs):
    (x, y), validation = data
    callbacks = keras.callbacks.CallbackList([*callbacks, END], add_history=True, model=model)
    callbacks.on_train_begin()
    for epoch in range(epochs):
        callbacks.on_epoch_begin(epoch)
        logs = model.train_on_batch(x, y, return_dict=True)
        callbacks.on_train_batch_end(1, logs)
        callbacks.on_epoch_end(epoch, {"val_loss": logs["loss"]})
    callbacks.on_train_end()
    return {"val_loss": logs["loss"]}
"""


@pytest.mark.parametrize(
    ("text", "where"),
    [
        pytest.param(MODEL + SEVERAL_MODELS, [1, "batch of 1"], id="several models"),
        pytest.param(MODEL + OWN_LOOP, [3, "batch"], id="own loop"),
    ],
)
def test_what_cannot_be_picked_up_begins_anew_and_says_so(
    attempts: Attempts, tmp_path: Path, text: str, where: list[object]
) -> None:
    put = Put(attempts, tmp_path, text)
    expected = put.whole()
    put.begin()
    put.die(int(str(where[0])), str(where[1]))
    first = put.attempt()
    assert first.ending.cause is Cause.KILLED, first.log
    assert "the trial will begin anew" in first.log
    result = put.attempt(number=1)
    assert put.end(result) == expected, result.log
    assert result.steps == sorted(put.reports)


@pytest.mark.parametrize(
    ("halt", "every"), [(Halt.PAUSE, None), (Halt.LET_GO, 4), (Halt.LET_GO, None)]
)
def test_told_to_stop_it_keeps_its_last_epoch(
    attempts: Attempts, tmp_path: Path, halt: Halt, every: int | None
) -> None:
    put = Put(attempts, tmp_path, MODEL + FIT)
    expected = put.whole()
    put.begin()
    result = put.attempt(halt=(3, halt), checkpoint_every=every)
    assert result.ending.cause is halt.cause
    kept = Checkpoints(tmp_path / "study" / "trials" / "2").newest()
    assert kept is not None
    assert kept[0] == result.steps[-1]
    assert result.steps[-1] < EPOCHS
    assert put.end(put.attempt(number=1)) == expected


@pytest.mark.parametrize("stops_early", [False, True])
def test_only_a_training_of_all_its_epochs_keeps_the_last_one(
    attempts: Attempts, tmp_path: Path, stops_early: bool
) -> None:
    put = Put(attempts, tmp_path, MODEL + (STOPS_EARLY if stops_early else FIT))
    result = put.attempt(keep_last=True)
    assert result.ending.cause is Cause.RETURNED, result.log
    assert (result.steps[-1] < EPOCHS) == stops_early
    kept = [] if stops_early else [EPOCHS - 1, EPOCHS]
    resume = result.directory / "resume"
    assert sorted(int(path.stem) for path in resume.glob("*.ckpt")) == kept


def test_a_pruned_trial_leaves_at_once(attempts: Attempts, tmp_path: Path) -> None:
    result = Put(attempts, tmp_path, MODEL + FIT).attempt(halt=(1, Halt.PRUNE), checkpoint_every=0)
    assert result.ending.cause is Cause.PRUNED
    assert not (result.directory / "resume").exists()


def test_reports_that_the_study_never_got_are_told_again(
    attempts: Attempts, tmp_path: Path
) -> None:
    """The master died, and the trial went on for a moment."""
    put = Put(attempts, tmp_path, MODEL + FIT)
    expected = put.whole()
    put.begin()
    put.die(4, "begin")
    put.attempt()
    del put.reports[4], put.reports[3]
    result = put.attempt(number=1)
    assert result.steps == [3, 4, 5, 6]
    assert put.end(result) == expected


def test_a_first_attempt_takes_nothing_up(attempts: Attempts, tmp_path: Path) -> None:
    put = Put(attempts, tmp_path, MODEL + FIT)
    put.die(3, "batch")
    put.attempt()
    assert put.attempt().steps == [1, 2, 3, 4, 5, 6]


def test_another_model_begins_anew_and_says_so(attempts: Attempts, tmp_path: Path) -> None:
    put = Put(attempts, tmp_path, MODEL + FIT)
    put.die(3, "batch")
    put.attempt()
    put.text = put.text.replace("Conv2D(4", "Conv2D(5")
    put.reports = {}
    result = put.attempt(number=1)
    assert result.steps == [1, 2, 3, 4, 5, 6]
    assert "begins anew, as its checkpoint does not fit" in result.log
