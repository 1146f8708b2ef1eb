"""A small training that dies at a given point, and its result."""

from __future__ import annotations

import itertools
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np

from attempts import Attempts, Result
from hptune.core.attempt import Cause

EPOCHS = 6

_TRAINING = """
import json, os, pathlib, shutil, signal, time
import keras
import numpy as np
from hptune.training import context

OBJECTIVE = "val_loss"
STOPPING = keras.callbacks.EarlyStopping(patience=50, restore_best_weights=True)
PLATEAU = keras.callbacks.ReduceLROnPlateau(patience=1, factor=0.5, min_delta=1.0)

def build_model(hp):
    optimizer = hp.Choice("optimizer", ["adam", "momentum", "scheduled", "averaged"])
    layers = keras.layers
    model = keras.Sequential([
        keras.Input((6, 6, 1)), LAYERS, layers.Dropout(0.3), layers.Dense(3, activation="softmax"),
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
    "Records its result, and dies at a given point, or keeps what it would leave if it did."
    part = ""

    def on_train_batch_end(self, batch, logs=None):
        if batch == 1:
            self.die_if_told("batch" + self.part)

    def on_epoch_begin(self, epoch, logs=None):
        self.epoch = epoch
        self.die_if_told("begin")
        if pathlib.Path("halt.json").exists():
            self.wait_for_order(json.loads(pathlib.Path("halt.json").read_text()))

    def on_train_end(self, logs=None):
        optimizer = self.model.optimizer
        known = [*self.model.variables, *optimizer.variables]
        np.savez("end.npz", *[keras.ops.convert_to_numpy(each) for each in known])
        rate = float(keras.ops.convert_to_numpy(getattr(optimizer, "learning_rate", 0.0)))
        pathlib.Path("end.json").write_text(json.dumps({
            "backend": keras.backend.backend(),
            "history": self.model.history.history, "epoch": self.model.history.epoch,
            "rate": rate, "wait": STOPPING.wait, "best": STOPPING.best, "plateau": PLATEAU.wait}))

    def die_if_told(self, where):
        order = pathlib.Path("die.json")
        if order.exists() and json.loads(order.read_text()) == [self.epoch, where]:
            order.unlink()
            os.kill(os.getpid(), signal.SIGKILL)
        order = pathlib.Path("copy.json")
        if order.exists() and json.loads(order.read_text())[0] == [self.epoch, where]:
            shutil.copytree(*json.loads(order.read_text())[1])
            order.unlink()

    def wait_for_order(self, epoch):
        "Begin no other epoch before the order to stop is here, which takes a moment."
        while self.epoch == epoch and context._current.halt is None:
            time.sleep(0.01)

END = End()
sync = os.fsync

def dying_sync(file):
    "The disk is slow, and the process dies before the checkpoint is on it."
    if os.readlink(f"/proc/self/fd/{file}").endswith(".tmp"):
        END.die_if_told("sync")
    sync(file)

os.fsync = dying_sync
"""
MODEL = _TRAINING.replace(
    "LAYERS",
    """layers.RandomFlip(), layers.RandomTranslation(0.1, 0.1), layers.Conv2D(4, 3),
        layers.BatchNormalization(), layers.Activation("relu"), layers.Flatten()""",
)
SMALL = _TRAINING.replace("LAYERS", 'layers.Flatten(), layers.Dense(4, activation="relu")')
"""A model that trains in half the time."""

FIT = """
def fit(hp, model, data, callbacks, epochs):
    (x, y), validation = data
    fixed = hp.values.get("optimizer") != "scheduled"
    return model.fit(x, y, validation_data=validation, epochs=epochs, batch_size=16,
                     callbacks=[*callbacks, STOPPING, *[PLATEAU] * fixed, END])
"""

# On a slow machine, a copy of an epoch takes more than its share of so short a training.
COPY_ALWAYS = """
from hptune.training.resume import resumption
resumption.SHARE_OF_TIME = 1000.0
"""


_WHOLE: dict[str, tuple[dict[str, object], dict[int, dict[str, float]], str]] = {}
"""Results of undisturbed trainings, which are always the same."""


class Put:
    """Runs one trial, attempt after attempt, and returns its result."""

    def __init__(self, attempts: Attempts, directory: Path, text: str, **params: object) -> None:
        self.attempts = attempts
        self.directory = directory
        self.text = text
        self.params = params
        self.reports: dict[int, dict[str, float]] = {}
        self.contradictions: list[int] = []
        self.trial = 0
        self.backend = ""

    @property
    def trial_directory(self) -> Path:
        return self.directory / "study" / "trials" / str(self.trial)

    def whole(self) -> dict[str, object]:
        """Return the result of an undisturbed training."""
        self.begin()
        if self._key not in _WHOLE:
            _WHOLE[self._key] = self._undisturbed(), self.reports, self.backend
        ended, self.reports, self.backend = _WHOLE[self._key]
        return ended

    def whole_and_killed(self, epoch: int, where: str, *, reported: int) -> dict[str, object]:
        """Return the result of an undisturbed training, and have the trial as if it was killed.

        The trial's directory is as it was at that point, after this number of reports. That saves
        a second training; the tests in `test_resumption` kill the process.
        """
        self.begin()
        killed = self.directory / "killed"
        order = self.directory / "copy.json"
        order.write_text(json.dumps([[epoch, where], [str(self.trial_directory), str(killed)]]))
        expected = self._undisturbed()
        assert not order.exists(), "the training did not come to that point"
        _WHOLE[self._key] = expected, self.reports, self.backend
        shutil.rmtree(self.trial_directory)
        killed.rename(self.trial_directory)
        self.reports = dict(itertools.islice(self.reports.items(), reported))
        return expected

    @property
    def _key(self) -> str:
        return repr((id(self.attempts.warm), self.text, self.params))

    def _undisturbed(self) -> dict[str, object]:
        result = self.attempt()
        assert result.ending.cause is Cause.RETURNED, result.log
        return self.end(result)

    def begin(self) -> None:
        self.trial += 1
        self.reports = {}

    def attempt(self, number: int = 0, **how: Any) -> Result:
        (self.directory / "halt.json").unlink(missing_ok=True)
        if "halt" in how:
            (self.directory / "halt.json").write_text(json.dumps(how["halt"][0]))
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
            "trained again, and otherwise": [*self.contradictions],
        }
        path = self.directory / "end.json"
        if path.exists():
            found["end"] = end = json.loads(path.read_text())
            path.unlink()  # the next attempt has to write its own
            self.backend = end["backend"]
            with np.load(self.directory / "end.npz") as arrays:
                found["arrays"] = [arrays[name].tolist() for name in arrays.files]
        return found
