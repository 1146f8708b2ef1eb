"""Small Keras trainings on several devices: functions for `rank_processes.run_ranks`."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from hptune.core.attempt import AttemptId, Halt
from hptune.core.data_parallel import DATA_PARALLEL, DataParallel
from hptune.core.goals import Goals
from hptune.core.messages import Start
from hptune.core.resources import Placement
from hptune.core.trial import Direction, Goal
from hptune.training.context import AttemptStopped, TrialContext
from hptune.training.hyperparameters import make_hyperparameters
from hptune.training.keras import objective
from hptune.training.parallel.ranks import Ranks
from hptune.training.resume.randomness import seed_everything
from hptune.training.strategies.base import Strategy
from hptune.training.strategies.choose import choose
from hptune.user_code.model_file import BuildFunction, UserCode

EPOCHS = 3
BATCHES = 4
"""Of 16 samples in an epoch; the last one has 5, which no number of devices divides."""


@dataclass
class Seen:
    """What a rank saw of its training.

    Attributes:
        weights: All weights after each epoch.
        logs: The metrics of each epoch, as the callbacks get them.
        outputs: What the model predicts after each epoch.
        batches: Training batches in all.
        result: The trial's metrics; None if it was stopped.
        error: The message of the error that ended it.
    """

    weights: list[Any] = field(default_factory=list)
    logs: list[dict[str, float]] = field(default_factory=list)
    outputs: list[Any] = field(default_factory=list)
    batches: int = 0
    result: dict[str, float] | None = None
    error: str = ""


def arrays(count: int) -> Any:
    draw = np.random.default_rng(count)
    x = draw.normal(size=(count, 6, 6, 1)).astype("float32")
    return x, (x.sum(axis=(1, 2, 3)) > 0).astype("int32")


def load_arrays() -> Any:
    x, y = arrays(53)
    return (x, y, np.linspace(0.5, 1.5, 53, dtype="float32")), arrays(21)


def load_batches(noise: float = 0.0) -> Any:
    """A `PyDataset` of training batches, and a `tf.data.Dataset` of validation batches."""
    import keras
    import tensorflow as tf

    x, y = arrays(53)

    class Batches(keras.utils.PyDataset):  # type: ignore[misc]
        def __len__(self) -> int:
            return BATCHES

        def __getitem__(self, index: int) -> Any:
            which = slice(index * 16, index * 16 + 16)
            return x[which] + noise, y[which]

    return Batches(), tf.data.Dataset.from_tensor_slices(arrays(21)).batch(16)


class Watch:
    """A Keras callback that records, and tells rank 0 to stop."""

    def __init__(self, seen: Seen, trial: TrialContext, stop_at: int | None, halt: Halt) -> None:
        import keras

        class Callback(keras.callbacks.Callback):  # type: ignore[misc]
            def on_train_batch_end(self, *_: Any, **__: Any) -> None:
                seen.batches += 1
                if trial.rank == 0 and seen.batches == stop_at:
                    trial.request_stop(halt)

            def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
                seen.logs.append({name: float(value) for name, value in logs.items()})
                seen.weights.append([np.array(each) for each in self.model.get_weights()])
                seen.outputs.append(self.model.predict(arrays(21)[0], batch_size=16, verbose=0))

        self.callback = Callback()


def run(
    strategy: Strategy | None,
    directory: Path,
    *,
    load: Callable[[], Any] = load_arrays,
    owns_fit: bool = False,
    batch_normalization: bool = True,
    is_shuffled: bool = True,
    number: int = 0,
    trial_number: int = 0,
    resume_from: int | None = None,
    stop_at: int | None = None,
    halt: Halt = Halt.STOP,
    epochs: int = EPOCHS,
) -> Seen:
    """Run one attempt, and return what this rank saw."""
    seen = Seen()
    trial = TrialContext(
        Start(
            AttemptId(trial_number, number),
            {},
            Placement("worker", (0,)),
            5,
            resume_from=resume_from,
        ),
        directory=directory,
        goals=Goals((Goal("val_loss", Direction.MIN),)),
        epochs=epochs,
        checkpoint_every=1,
        send=lambda _: None,
    )
    if strategy is not None and strategy.ranks is not None:
        trial.ranks = strategy.ranks
    watch = Watch(seen, trial, stop_at, halt)

    def build(_hp: Any) -> Any:
        import keras

        layers = [keras.Input((6, 6, 1)), keras.layers.Conv2D(4, 3, use_bias=False)]
        if batch_normalization:
            layers += [keras.layers.BatchNormalization(), keras.layers.Dropout(0.3)]
        layers += [keras.layers.Flatten(), keras.layers.Dense(2, activation="softmax")]
        model = keras.Sequential(layers)
        model.compile(
            keras.optimizers.SGD(0.1, momentum=0.9),
            "sparse_categorical_crossentropy",
            metrics=["accuracy"],
            weighted_metrics=["accuracy"],
        )
        return model

    def fit(_hp: Any, model: Any, data: Any, callbacks: Any, epochs: int) -> Any:
        train, validation = data
        callbacks = [*callbacks, watch.callback]
        return model.fit(train, epochs=epochs, validation_data=validation, callbacks=callbacks)

    given = {} if load is not load_arrays else {"batch_size": 16}
    code = UserCode(
        hypermodel=BuildFunction(build),
        load_data=load,
        fit_arguments={
            **given,
            "callbacks": [watch.callback],
            "verbose": 0,
            "shuffle": is_shuffled,
        },
        fit=fit if owns_fit else None,
    )
    seed_everything(5, deterministic=False)
    try:
        ending = objective.run(
            code, make_hyperparameters(), trial, epochs=epochs, incumbents=(), strategy=strategy
        )
        seen.result = dict(ending.metrics)
    except AttemptStopped as stopped:
        seen.error = f"stopped: {stopped.halt}"
    except Exception as error:
        seen.error = f"{type(error).__name__}: {error}"
    return seen


@contextlib.contextmanager
def entered(
    ranks: Ranks | None, devices: int = 0, asked: DataParallel = DATA_PARALLEL
) -> Iterator[Strategy]:
    """Yield the strategy of this process for several trainings; it disconnects after the last."""
    strategy = choose(ranks, devices, asked)
    assert strategy is not None
    strategy.enter()
    disconnect = strategy.disconnect
    strategy.disconnect = lambda: None  # type: ignore[method-assign]
    yield strategy
    disconnect()


def wait_for_file(path: Path) -> None:
    """Wait until another process of the test has written a file."""
    deadline = time.monotonic() + 800
    while not path.exists():
        assert time.monotonic() < deadline, f"{path} was not written"
        time.sleep(0.02)


# --- what the processes of the tests do -----------------------------------------------------------


def jax_one_process(_ranks: Ranks, place: str) -> dict[str, Seen]:
    """One device, then two devices of the same process."""
    directory = Path(place)
    found = {
        "one": run(None, directory / "one"),
        "one, batches": run(None, directory / "batches", load=load_batches, owns_fit=True),
        "one, stopped": run(None, directory / "from_one", stop_at=BATCHES + 2),
    }
    (directory / "one_stopped").touch()
    wait_for_file(directory / "two_stopped")
    found["two to one"] = run(None, directory / "from_two", number=1, resume_from=1)
    with entered(None) as strategy:
        found["two devices"] = run(strategy, directory / "devices")
    return found


def jax_two_processes(ranks: Ranks, place: str) -> dict[str, Seen]:
    """One device in each of two processes."""
    directory = Path(place)

    def load_unequal() -> Any:
        return load_batches(noise=float(ranks.rank))

    with entered(ranks) as strategy:
        found = {
            "two": run(strategy, directory / "two"),
            "two, batches": run(
                strategy, directory / "two_batches", load=load_batches, owns_fit=True
            ),
            "unequal": run(strategy, directory / "unequal", load=load_unequal),
        }
        wait_for_file(directory / "one_stopped")
        found["one to two"] = run(strategy, directory / "from_one", number=1, resume_from=1)
        # Last, as ranks that agreed to stop stay so.
        found["two, stopped"] = run(strategy, directory / "from_two", stop_at=BATCHES + 2)
        (directory / "two_stopped").touch()
    return found


def one_process_and_two(ranks: Ranks, place: str) -> dict[str, Seen]:
    """PyTorch or TensorFlow in one process or in two; each continues what the other began."""
    import keras

    directory = Path(place)
    # TensorFlow shuffles arrays in another order in several processes than in one.
    how: dict[str, Any] = {
        "batch_normalization": False,
        "is_shuffled": keras.config.backend() == "torch",
    }
    own, other = ("one", "two") if ranks.world_size == 1 else ("two", "one")
    with contextlib.ExitStack() as stack:
        strategy = None if ranks.world_size == 1 else stack.enter_context(entered(ranks))
        found = {"whole": run(strategy, directory / own, **how)}
        if own == "one":
            found["stopped"] = run(strategy, directory / "from_one", stop_at=BATCHES + 2, **how)
            (directory / "one_stopped").touch()
        wait_for_file(directory / f"{other}_stopped")
        again = directory / f"from_{other}"
        found["continued"] = run(strategy, again, number=1, resume_from=1, **how)
        if own == "two":  # last, as ranks that agreed to stop stay so
            found["stopped"] = run(strategy, directory / "from_two", stop_at=BATCHES + 2, **how)
            (directory / "two_stopped").touch()
    return found


def mirrored(_ranks: Ranks, place: str) -> dict[str, Seen]:
    """TensorFlow on one device, then on two logical CPUs of the same process."""
    import tensorflow as tf

    from hptune.training.strategies.mirrored import Mirrored

    (cpu,) = tf.config.list_physical_devices("CPU")
    halves = [tf.config.LogicalDeviceConfiguration()] * 2
    tf.config.set_logical_device_configuration(cpu, halves)

    def load() -> Any:
        return tuple(tf.data.Dataset.from_tensor_slices(arrays(n)).batch(16) for n in (53, 21))

    directory = Path(place)
    strategy = Mirrored(None, 2, DATA_PARALLEL)
    strategy.enter()
    return {
        "one": run(None, directory / "one", load=load, batch_normalization=False),
        "two": run(strategy, directory / "two", load=load, batch_normalization=False),
    }
