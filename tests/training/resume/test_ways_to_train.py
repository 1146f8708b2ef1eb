"""Every way in which a user's code trains is resumed from a checkpoint, or says why not."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from attempts import Attempts
from hptune.core.attempt import Cause, Halt
from interrupted_training import COPY_ALWAYS, EPOCHS, FIT, SMALL, Put

pytestmark = pytest.mark.keras
ON_TENSORFLOW = pytest.mark.tensorflow

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
    model.layers[1].trainable = False
    both = keras.optimizers.OptimizerMap(
        keras.optimizers.Adam(0.02), {".*bias": keras.optimizers.SGD(0.1, momentum=0.9)})
    model.compile(keras.optimizers.MultiOptimizer(both), "sparse_categorical_crossentropy")
    first = model.fit(x, y, validation_data=validation, epochs=3, callbacks=[*callbacks, END])
    assert len(first.history["val_loss"]) == 3
    model.layers[1].trainable = True
    model.compile(keras.optimizers.Adam(0.001), "sparse_categorical_crossentropy")
    return model.fit(x, y, validation_data=validation, epochs=epochs, initial_epoch=3,
                     callbacks=[*callbacks, END])
"""
MANY_FITS = """
def fit(hp, model, data, callbacks, epochs):
    (x, y), validation = data
    averaged = keras.optimizers.AdamW(0.01, use_ema=True, ema_momentum=0.8)
    model.compile(averaged, "sparse_categorical_crossentropy")
    for epoch in range(epochs):
        last = model.fit(x, y, validation_data=validation, initial_epoch=epoch, epochs=epoch + 1,
                         callbacks=[*callbacks, END])
    return last
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
OWN_OPTIMIZERS = """
import tensorflow as tf

class Adversaries(keras.Model):
    "Has no call, so that Keras never builds it, and an optimizer for each of its parts."

    def __init__(self):
        super().__init__()
        self.first = keras.Sequential([keras.Input((36,)), keras.layers.Dense(4)])
        self.second = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
        self.loss_seen = keras.metrics.Mean("loss")

    def compile(self, first, others):
        super().compile()
        self.of_first, self.others = first, others

    def loss_of(self, data):
        return tf.reduce_mean((self.second(self.first(tf.reshape(data[0], (-1, 36)))) - 1.0) ** 2)

    def train_step(self, data):
        with tf.GradientTape(persistent=True) as tape:
            loss = self.loss_of(data)
        for part, each in ((self.first, self.of_first), (self.second, self.others[0])):
            weights = part.trainable_variables
            each.apply(tape.gradient(loss, weights), weights)
        self.loss_seen.update_state(loss)
        return {"loss": self.loss_seen.result()}

    def test_step(self, data):
        self.loss_seen.update_state(self.loss_of(data))
        return {"loss": self.loss_seen.result()}

def build_model(hp):
    model = Adversaries()
    model.compile(keras.optimizers.Adam(0.01), [keras.optimizers.RMSprop(0.01, momentum=0.9)])
    return model
"""
UNKNOWN_TO_KERAS = """
import tensorflow as tf

class Own(keras.Model):
    def __init__(self):
        super().__init__()
        self.dense, self.factors = keras.layers.Dense(3), [tf.Variable(1.0, trainable=False)]

    def build(self, shape):
        self.dense.build((None, 36))

    def call(self, x, training=False):
        return self.factors[0] * self.dense(keras.ops.reshape(x, (-1, 36)))

    def train_step(self, data):
        self.factors[0].assign_sub(0.02)
        return super().train_step(data)

def build_model(hp):
    model = Own()
    model.build((None, 6, 6, 1))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.RMSprop(0.01), loss)
    return model
"""
NOT_REPORTED = """
def fit(hp, model, data, callbacks, epochs):
    (x, y), validation = data
    both = {"validation_data": validation, "batch_size": 16}
    reported = model.fit(x, y, epochs=epochs, callbacks=[*callbacks, END], **both)
    more = model.fit(x, y, epochs=5, callbacks=[END], **both)
    assert len(more.history["val_loss"]) == 5
    return reported
"""
LORA = """
def fit(hp, model, data, callbacks, epochs):
    (x, y), validation = data
    both = {"validation_data": validation, "callbacks": [*callbacks, END]}
    model.fit(x, y, epochs=2, **both)
    model.layers[1].enable_lora(2)
    model.compile(keras.optimizers.Adam(0.01), "sparse_categorical_crossentropy")
    return model.fit(x, y, epochs=epochs, initial_epoch=2, **both)
"""
STOPS_EARLY = """
def fit(hp, model, data, callbacks, epochs):
    (x, y), validation = data
    stop = keras.callbacks.EarlyStopping(patience=4, min_delta=10.0, restore_best_weights=True)
    return model.fit(x, y, validation_data=validation, epochs=epochs,
                     callbacks=[stop, *callbacks, END])
"""
AS_LONG_AS_THE_FIRST = """
def fit(hp, model, data, callbacks, epochs):
    (x, y), validation = data
    stop = keras.callbacks.EarlyStopping(patience=2, min_delta=10.0, restore_best_weights=True)
    both = {"validation_data": validation, "callbacks": [*callbacks, stop, END]}
    model.fit(x, y, epochs=epochs, **both)
    END.part = " of the second"
    return model.fit(x, y, epochs=stop.stopped_epoch + 2, **both)
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
        done = pathlib.Path("study/trials/1/resume/3.ckpt")
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
        pytest.param(SMALL.replace("build_model", "_build") + HYPERMODEL, id="hypermodel"),
        pytest.param(SMALL + SUBCLASSED + FIT, id="subclassed"),
        pytest.param(SMALL + TWO_PHASES, id="two phases"),
        pytest.param(SMALL + MANY_FITS, id="many fits"),
        pytest.param(SMALL + OWN_CALLBACK, id="own callback"),
        pytest.param(SMALL + OWN_OPTIMIZERS + FIT, id="own optimizers", marks=ON_TENSORFLOW),
        pytest.param(SMALL + UNKNOWN_TO_KERAS + FIT, id="unknown to Keras", marks=ON_TENSORFLOW),
        pytest.param(SMALL + NOT_REPORTED, id="trains on without reports"),
        pytest.param(SMALL + LORA, id="LoRA"),
        pytest.param(SMALL + STOPS_EARLY, id="stops early"),
        pytest.param(SMALL + BATCHES, id="batches"),
    ],
)
def test_every_way_to_train_may_be_picked_up(attempts: Attempts, tmp_path: Path, text: str) -> None:
    put = Put(attempts, tmp_path, text)
    expected = put.whole_and_killed(3, "batch", reported=3)
    result = put.attempt(number=1)
    assert put.end(result) == expected, result.log
    # The last epoch of the first phase is not written down, as mostly nothing follows it.
    assert result.steps[-1] == max(put.reports)
    assert result.steps[0] == (3 if text.endswith(TWO_PHASES) else 4)


def test_a_second_phase_may_depend_on_what_callbacks_found_in_the_first(
    attempts: Attempts, tmp_path: Path
) -> None:
    put = Put(attempts, tmp_path, SMALL + AS_LONG_AS_THE_FIRST)
    expected = put.whole_and_killed(1, "batch of the second", reported=4)
    result = put.attempt(number=1)
    assert put.end(result) == expected, result.log
    assert result.steps == [5, 6], "three epochs, and three more"


SEVERAL_MODELS = """
def fit(hp, model, data, callbacks, epochs):
    (x, y), validation = data
    for part in range(2):
        END.part = f" of {part}"
        last = build_model(hp).fit(x[part::2], y[part::2], validation_data=validation, epochs=3,
                                   batch_size=8, callbacks=[*callbacks, END])
    return last
"""
FOLDS = """
def fit(hp, model, data, callbacks, epochs):
    (x, y), validation = data
    start, losses = model.get_weights(), []
    for part in range(2):
        END.part = f" of {part}"
        model.set_weights(start)
        model.compile("adam", "sparse_categorical_crossentropy")
        model.fit(x[part::2], y[part::2], epochs=3, batch_size=8, callbacks=[*callbacks, END])
        losses.append(model.evaluate(*validation, return_dict=True)["loss"])
    return {"val_loss": sum(losses) / 2}
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
FOLDS_BY_BATCH = FOLDS.replace("model.evaluate(", "model.test_on_batch(")
OWN_REPORTS = """
def fit(hp, model, data, callbacks, epochs):
    (x, y), validation = data
    for callback in [*callbacks, END]:
        callback.set_model(model)
    for epoch in range(epochs):
        END.on_epoch_begin(epoch)
        loss = model.train_on_batch(x, y, return_dict=True)["loss"]
        END.on_train_batch_end(1)
        for callback in callbacks:
            callback.on_epoch_end(epoch, {"val_loss": loss})
    return {"val_loss": loss}
"""
LOOP_LIKE_A_FIT = OWN_LOOP.replace(
    "model=model)", "model=model, epochs=epochs, steps=1, verbose=0)"
)
SMALLER_BATCHES = """
class NoMemory(keras.callbacks.Callback):
    def on_train_batch_begin(self, batch, logs=None):
        if batch == 1:
            raise RuntimeError("no memory for this batch")

def fit(hp, model, data, callbacks, epochs):
    (x, y), validation = data
    for size, more in ((32, [NoMemory()]), (16, [])):
        try:
            return model.fit(x, y, validation_data=validation, epochs=epochs, batch_size=size,
                             callbacks=[*callbacks, *more, END])
        except RuntimeError:
            print("trying smaller batches")
"""


def test_changed_code_that_cannot_continue_a_second_phase_starts_with_the_first(
    attempts: Attempts, tmp_path: Path
) -> None:
    put = Put(attempts, tmp_path, SMALL + TWO_PHASES)
    put.begin()
    put.die(4, "batch")
    assert put.attempt().steps == [1, 2, 3, 4]
    killed, reports = tmp_path / "killed", put.reports
    shutil.copytree(put.trial_directory, killed)
    other_optimizer = (SMALL + TWO_PHASES).replace("Adam(0.001)", "SGD(0.001)")
    for changed, words in {
        other_optimizer: "starts again, as its checkpoint does not fit",
        SMALL + SEVERAL_MODELS: "an interrupted trial starts again",
    }.items():
        put.begin()
        put.text, put.reports = changed, reports
        shutil.copytree(killed, put.trial_directory)
        result = put.attempt(number=1)
        assert words in result.log
        assert (result.ending.cause, result.steps) == (Cause.RELEASED, []), result.log
        put.reports = {}
        result = put.attempt(number=2)
        assert result.ending.cause is Cause.RETURNED
        assert result.steps == [1, 2, 3, 4, 5, 6]


def test_a_trial_that_is_stopped_between_two_of_many_fits_keeps_its_last_epoch(
    attempts: Attempts, tmp_path: Path
) -> None:
    put = Put(attempts, tmp_path, SMALL + MANY_FITS + COPY_ALWAYS)
    expected = put.whole()
    put.begin()
    stopped = put.attempt(halt=(4, Halt.RELEASE), checkpoint_every=100)
    assert stopped.ending.cause is Cause.RELEASED, stopped.log
    result = put.attempt(number=1)
    assert put.end(result) == expected, result.log
    assert result.steps[0] >= 5, result.log


@pytest.mark.parametrize(
    ("text", "where", "reported"),
    [
        pytest.param(SMALL + SEVERAL_MODELS, (1, "batch of 1"), 4, id="several models"),
        pytest.param(SMALL + FOLDS, (1, "batch of 1"), 4, id="folds of one model"),
        pytest.param(SMALL + FOLDS_BY_BATCH, (1, "batch of 1"), 4, id="folds, of one batch"),
        pytest.param(SMALL + OWN_LOOP, (3, "batch"), 3, id="own loop"),
        pytest.param(SMALL + OWN_REPORTS, (3, "batch"), 3, id="own loop and reports"),
        pytest.param(SMALL + SMALLER_BATCHES, (3, "batch"), 3, id="fit after a failed one"),
    ],
)
def test_what_cannot_be_picked_up_starts_again_and_says_so(
    attempts: Attempts, tmp_path: Path, text: str, where: tuple[int, str], reported: int
) -> None:
    put = Put(attempts, tmp_path, text)
    expected = put.whole_and_killed(*where, reported=reported)
    first = (put.trial_directory / "log.txt").read_text()
    assert "an interrupted trial starts again" in first
    result = put.attempt(number=1)
    assert put.end(result) == expected, result.log
    assert result.steps == sorted(put.reports)


def test_a_loop_that_trains_from_its_first_epoch_on_is_not_taken_for_a_fit(
    attempts: Attempts, tmp_path: Path
) -> None:
    """It cannot be told from a fit of Keras before it begins with the wrong epoch."""
    put = Put(attempts, tmp_path, SMALL + LOOP_LIKE_A_FIT)
    expected = put.whole_and_killed(3, "batch", reported=3)
    second = put.attempt(number=1)
    assert (second.ending.cause, second.steps) == (Cause.RELEASED, []), second.log
    assert "its training loop does not begin at the epoch of the checkpoint" in second.log
    result = put.attempt(number=2)
    assert "The trial begins again, as no checkpoint of an earlier attempt is kept" in result.log
    assert put.end(result) == expected, result.log


SECOND_IF_POOR = """
def fit(hp, model, data, callbacks, epochs):
    (x, y), validation = data
    both = {"validation_data": validation, "callbacks": [*callbacks, END]}
    first = model.fit(x, y, epochs=3, **both)
    path = pathlib.Path("is_good")
    return first if path.exists() else model.fit(x, y, epochs=epochs, initial_epoch=3, **both)
"""


def test_code_that_does_not_come_to_the_fit_of_its_checkpoint_begins_again(
    attempts: Attempts, tmp_path: Path
) -> None:
    """The model of the fit that was skipped has the weights of the beginning."""
    put = Put(attempts, tmp_path, SMALL + SECOND_IF_POOR)
    put.die(4, "batch")
    assert put.attempt().steps == [1, 2, 3, 4]
    (tmp_path / "is_good").touch()
    second = put.attempt(number=1)
    assert (second.ending.cause, second.steps) == (Cause.RELEASED, []), second.log
    assert "it has not called fit as often as" in second.log
    put.reports = {}
    assert put.attempt(number=2).steps == [1, 2, 3]


@pytest.mark.parametrize("stops_early", [False, True])
def test_a_training_keeps_its_last_epoch_if_its_model_may_be_needed(
    attempts: Attempts, tmp_path: Path, stops_early: bool
) -> None:
    put = Put(attempts, tmp_path, SMALL + (STOPS_EARLY if stops_early else FIT))
    result = put.attempt(keep_last=True)
    assert result.ending.cause is Cause.RETURNED, result.log
    assert (result.steps[-1] < EPOCHS) == stops_early
    assert result.ending.ended_early is stops_early
    resume = result.directory / "resume"
    kept = sorted(int(path.stem) for path in resume.glob("*.ckpt"))
    assert kept[-1:] == result.steps[-1:]


def test_a_training_that_has_ended_by_itself_does_not_train_on_with_more_epochs(
    attempts: Attempts, tmp_path: Path
) -> None:
    """It was killed before the study knew of its end, and then resumed with more epochs."""
    put = Put(attempts, tmp_path, SMALL + STOPS_EARLY)
    first = put.attempt(keep_last=True)
    step = first.steps[-1]
    again = attempts.run(put.text, epochs=50, trial=put.trial, number=1, resume_from=step)
    assert (again.steps, again.ending) == ([], first.ending), again.log


BACKUP = FIT.replace("*callbacks", '*callbacks, keras.callbacks.BackupAndRestore("backup")')


def test_a_backup_of_keras_is_left_out_as_another_trial_may_have_made_it(
    attempts: Attempts, tmp_path: Path
) -> None:
    put = Put(attempts, tmp_path, SMALL + FIT)
    expected = put.whole()
    put.text = SMALL + BACKUP
    put.begin()
    pruned = put.attempt(halt=(3, Halt.PRUNE))
    assert pruned.ending.cause is Cause.PRUNED, pruned.log
    assert "BackupAndRestore is left out" in pruned.log
    put.begin()
    result = put.attempt()
    assert put.end(result) == expected, result.log


def test_without_checkpoints_of_hptune_a_backup_of_keras_continues_the_trial(
    attempts: Attempts, tmp_path: Path
) -> None:
    put = Put(attempts, tmp_path, SMALL + BACKUP)
    put.begin()
    put.die(3, "batch")
    assert put.attempt(checkpoint_every=0).ending.cause is Cause.KILLED
    result = put.attempt(number=1, checkpoint_every=0)
    assert result.ending.cause is Cause.RETURNED, result.log
    assert result.steps == [4, 5, 6], result.log
