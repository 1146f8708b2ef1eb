"""Each `fit` of a Keras model goes through the strategy, with what it needs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pytest

from hptune.core.data_parallel import BatchRule, DataParallel
from hptune.errors import ModelFileError
from hptune.training.strategies.base import Method, Strategy
from parallel_fits import train_by

# NumPy warns of Keras's own variables on TensorFlow.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")

X = np.ones((32, 3), "float32")
Y = np.ones((32, 1), "float32")


def as_array(variable: Any) -> Any:
    import keras

    return np.array(keras.ops.convert_to_numpy(variable))


class Alike(Strategy):
    """Trains by Keras alone, and keeps what it was called with."""

    on_cpu = True

    def __init__(self, *, rank: int = 0, devices: int = 2, **asked: Any) -> None:
        ranks: Any = SimpleNamespace(rank=rank, world_size=1, gather=lambda data: [data])
        super().__init__(ranks, devices, DataParallel(**asked))
        self.calls: list[dict[str, Any]] = []

    def enter(self) -> None:
        raise NotImplementedError

    def fit(self, original: Method, model: Any, arguments: dict[str, Any]) -> Any:
        self.calls.append(arguments)
        return original(model, **arguments)

    def copies(self, model: Any) -> Iterator[Mapping[str, Any]]:
        for _ in range(self.devices):
            yield {each.path: as_array(each) for each in model.trainable_variables}


def new_model(rate: Any = 0.5) -> Any:
    import keras

    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
    model.compile(keras.optimizers.SGD(rate), "mse")
    return model


def test_a_global_batch_keeps_its_size_and_must_divide() -> None:
    import keras

    strategy, model = Alike(), new_model()
    own, before = keras.callbacks.LambdaCallback(), keras.Model.fit
    with train_by(strategy) as trained:
        model.fit(X, Y, 16, verbose=0, callbacks=[own])
        model.fit(X, Y, verbose=0)
        with pytest.raises(ModelFileError, match=r"is 15, .*; use 14 or 16"):
            model.fit(X, Y, batch_size=15)
    assert len(trained) == 3
    first, second = strategy.calls
    assert [first["batch_size"], second["batch_size"]] == [16, 32]
    assert first["x"] is X
    assert first["callbacks"][-1] is own
    assert keras.Model.fit is before


def test_rank_0_alone_writes_files(tmp_path: Path) -> None:
    import keras

    for rank in (1, 0):
        strategy, model = Alike(rank=rank), new_model()
        path = tmp_path / "model.keras"
        own = [keras.callbacks.EarlyStopping("loss"), keras.callbacks.ModelCheckpoint(path)]
        with train_by(strategy):
            model.fit(X, Y, verbose=0, callbacks=[own[:1], own[1:]])  # lists, as Keras allows
            model.save(tmp_path / "last.keras")
        kept = [each for each in strategy.calls[0]["callbacks"] if each in own]
        assert kept == own[: 1 if rank else 2]
        assert path.exists() is (tmp_path / "last.keras").exists() is (rank == 0)


def test_per_device_batches_multiply_the_rate_after_a_warm_up() -> None:
    import keras

    class Rates(keras.callbacks.Callback):  # type: ignore[misc]
        found: ClassVar[list[float]] = []
        states: ClassVar[list[float]] = []

        def on_epoch_end(self, *_: Any, **__: Any) -> None:
            self.found.append(float(as_array(self.model.optimizer.learning_rate)))
            ours = (each for each in strategy.calls[0]["callbacks"] if hasattr(each, "get_state"))
            self.states.append(next(ours).get_state())

    strategy = Alike(devices=4, rule=BatchRule.LINEAR, warm_up_epochs=3)
    with train_by(strategy):
        model = new_model(0.01)
        model.fit(X, Y, 4, epochs=5, verbose=0, callbacks=[Rates()])
        assert strategy.calls[0]["batch_size"] == 16
        assert strategy.calls[0].get("validation_batch_size") is None
        assert Rates.found == pytest.approx([0.01, 0.02, 0.03, 0.04, 0.04])
        assert Rates.states == [1.0, 2.0, 3.0, 4.0, 4.0]
        with pytest.raises(ModelFileError, match=r"linear .* follows a schedule"):
            new_model(keras.optimizers.schedules.CosineDecay(0.1, 9)).fit(X, Y)
        with pytest.raises(ModelFileError, match=r"linear needs arrays; a generator makes its own"):
            model.fit(each for each in [(X, Y)])
        with pytest.raises(ModelFileError, match=r"has steps_per_epoch alone; give it batch_size"):
            model.fit(X, Y, steps_per_epoch=2)
        with pytest.raises(ModelFileError, match=r"linear .* a LearningRateScheduler sets it"):
            model.fit(X, Y, 4, callbacks=[keras.callbacks.LearningRateScheduler(lambda _: 0.1)])


@pytest.mark.parametrize(("given", "expected"), [({}, 4), ({"validation_batch_size": 3}, 3)])
def test_validation_steps_take_the_same_samples_on_any_number_of_devices(
    given: dict[str, int], expected: int
) -> None:
    strategy = Alike(devices=4, rule=BatchRule.LINEAR)
    with train_by(strategy):
        new_model(0.01).fit(X, Y, 4, verbose=0, validation_data=(X, Y), validation_steps=2, **given)
    (call,) = strategy.calls
    assert (call["batch_size"], call["validation_batch_size"]) == (16, expected)


def test_the_rate_is_multiplied_once_however_often_a_model_is_trained() -> None:
    import keras

    rates: list[float] = []
    model = new_model(0.01)
    noting = keras.callbacks.LambdaCallback(
        on_epoch_end=lambda *_: rates.append(float(as_array(model.optimizer.learning_rate)))
    )

    def fail(*_: Any, **__: Any) -> None:
        raise MemoryError

    failing = keras.callbacks.LambdaCallback(on_train_batch_end=fail)
    with train_by(Alike(devices=4, rule=BatchRule.LINEAR, warm_up_epochs=0)):
        for _ in range(3):
            model.fit(X, Y, 4, verbose=0, callbacks=[noting])
            with pytest.raises(MemoryError):
                model.fit(X, Y, 8, verbose=0, callbacks=[failing])
        model.compile(keras.optimizers.SGD(0.01), "mse")  # as for a second phase
        model.fit(X, Y, 4, verbose=0, callbacks=[noting])
    assert rates == pytest.approx([0.04] * 4)


@pytest.mark.parametrize("is_function", [False, True])
def test_each_rate_of_several_optimizers_is_multiplied(*, is_function: bool) -> None:
    import keras

    several = [keras.optimizers.SGD(0.01), keras.optimizers.SGD(0.1)]
    chosen: Any = keras.optimizers.OptimizerMap(several[0], {".*bias": several[1]})
    if is_function:  # of which Keras does not know the optimizers before
        chosen = lambda variable: several["bias" in variable.path]  # noqa: E731
    rates: list[float] = []
    model = new_model()
    model.compile(keras.optimizers.MultiOptimizer(chosen), "mse")
    noting = keras.callbacks.LambdaCallback(
        on_epoch_end=lambda *_: rates.extend(float(as_array(x.learning_rate)) for x in several)
    )
    with train_by(Alike(devices=4, rule=BatchRule.LINEAR, warm_up_epochs=0)):
        model.fit(X, Y, 4, verbose=0, callbacks=[noting])
    assert rates == pytest.approx([0.04, 0.4])


def test_a_schedule_is_found_below_the_scale_of_a_loss() -> None:
    import keras

    optimizer = keras.optimizers.SGD(keras.optimizers.schedules.CosineDecay(0.1, 9))
    model = new_model()
    model.compile(keras.optimizers.LossScaleOptimizer(optimizer), "mse")
    with (
        train_by(Alike(devices=4, rule=BatchRule.LINEAR, warm_up_epochs=0)),
        pytest.raises(ModelFileError, match=r"linear .* follows a schedule"),
    ):
        model.fit(X, Y, 4, verbose=0)


def test_a_rate_that_a_checkpoint_has_is_divided_by_its_factor() -> None:
    from hptune.training.strategies.learning_rate import ScaledRate

    model = new_model(0.04)
    one = ScaledRate(Alike(devices=1, rule=BatchRule.LINEAR))
    one.set_state(4.0)
    one.set_model(model)
    one.on_epoch_begin(7)
    assert float(as_array(model.optimizer.learning_rate)) == pytest.approx(0.01)
