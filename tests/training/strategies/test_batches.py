"""Global batches and their parts: what each rank trains of arrays and datasets."""

from __future__ import annotations

import doctest
import importlib
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hptune.core import data_parallel
from hptune.errors import ModelFileError

if TYPE_CHECKING:
    from hptune.training.strategies import batches


@pytest.fixture(autouse=True, scope="module")
def _imported() -> None:
    """Import it for these tests alone: it imports Keras, and every process collects this file."""
    globals()["batches"] = importlib.import_module("hptune.training.strategies.batches")


def test_the_examples_in_the_docstrings() -> None:
    for module in (data_parallel, batches):
        found = doctest.testmod(module)
        assert found.attempted
        assert not found.failed


@given(st.integers(1, 100), st.integers(1, 9))
def test_parts_cover_a_batch_once_and_differ_by_one_sample(size: int, world_size: int) -> None:
    parts = [batches.part_of(size, rank=r, world_size=world_size) for r in range(world_size)]
    if size < world_size:
        assert parts == [slice(0, size)] * world_size
        return
    samples = list(range(size))
    assert [each for part in parts for each in samples[part]] == samples
    sizes = {len(samples[part]) for part in parts}
    assert max(sizes) - min(sizes) <= 1


def test_a_batch_size_that_does_not_divide_is_refused_with_sizes_that_do() -> None:
    batches.check_divides(64, 4)
    with pytest.raises(ModelFileError, match=r"is 50, .* 4 devices; use 48 or 52"):
        batches.check_divides(50, 4)
    with pytest.raises(ModelFileError, match="use 4,"):
        batches.check_divides(3, 4)


X = np.arange(23, dtype="float32").reshape(23, 1)


def epoch(data: Any) -> list[list[float]]:
    """The samples of an epoch's batches."""
    data.on_epoch_begin()
    found = [[float(each) for each in data[i][0].ravel()] for i in range(data.num_batches)]
    data.on_epoch_end()
    return found


@pytest.mark.parametrize("shuffle", [True, False, "batch"])
def test_ranks_train_the_batches_of_one_permutation(shuffle: Any) -> None:
    parts = []
    for rank in range(2):
        arguments = {"x": X, "y": X, "batch_size": 8, "shuffle": shuffle, "class_weight": None}
        local = batches.local_arguments(arguments, rank=rank, world_size=2)
        assert local["shuffle"] is False
        assert "y" not in local
        np.random.seed(3)
        parts.append([epoch(local["x"]) for _ in range(2)])
    for first, second in zip(*parts, strict=True):
        assert [len(batch) for batch in first] == [4, 4, 3]
        assert [len(batch) for batch in second] == [4, 4, 4]
        whole = [[*a, *b] for a, b in zip(first, second, strict=True)]
        assert sorted(each for batch in whole for each in batch) == X.ravel().tolist()
        in_order = [X.ravel()[i : i + 8].tolist() for i in (0, 8, 16)]
        if shuffle == "batch":
            whole = [sorted(batch) for batch in whole]
        assert (whole == in_order) is (shuffle is not True)
    assert (parts[0][0] == parts[0][1]) is (shuffle is False)


def test_tensors_are_divided_as_arrays_are() -> None:
    import keras

    # As a `fit` of the user's own may normalise its data.
    scaled = keras.layers.Rescaling(2.0)(X)
    ours, theirs = (
        batches.local_arguments({"x": x, "y": x, "batch_size": 8}, rank=0, world_size=2)["x"]
        for x in (scaled, 2.0 * X)
    )
    found = []
    for data in (ours, theirs):
        np.random.seed(3)
        found.append(epoch(data))
    assert found[0] == found[1]


def test_validation_arrays_are_divided_once_and_a_split_as_by_keras() -> None:
    weight = np.arange(23.0)
    arguments = {"x": X, "y": X, "sample_weight": weight, "validation_split": 0.3, "batch_size": 4}
    ranks = [batches.local_arguments(arguments, rank=rank, world_size=3) for rank in range(3)]
    validated = np.concatenate([each["validation_data"][0] for each in ranks])
    assert validated.tolist() == X[16:].tolist()
    weights = np.concatenate([each["validation_data"][2] for each in ranks])
    assert weights.tolist() == weight[16:].tolist()
    assert all("validation_split" not in each and len(each["x"]) == 4 for each in ranks)
    arguments["validation_steps"] = 1
    ranks = [batches.local_arguments(arguments, rank=rank, world_size=2) for rank in range(2)]
    validated = np.concatenate([each["validation_data"][0] for each in ranks])
    assert validated.tolist() == X[16:20].tolist()
    assert all("validation_steps" not in each for each in ranks)


def test_datasets_give_each_rank_its_part_of_their_batches() -> None:
    import keras
    import tensorflow as tf

    class Own(keras.utils.PyDataset):  # type: ignore[misc]
        epochs = 0

        def __len__(self) -> int:
            return 3

        def __getitem__(self, index: int) -> Any:
            return {"a": X[index * 8 : index * 8 + 8]}, X[index * 8 : index * 8 + 8]

        def on_epoch_end(self) -> None:
            self.epochs += 1

    own = Own()
    dataset = tf.data.Dataset.from_tensor_slices((X, X)).batch(8)
    found: dict[str, list[Any]] = {"own": [], "dataset": []}
    for rank in range(3):
        arguments = {"x": own, "validation_data": dataset}
        local = batches.local_arguments(arguments, rank=rank, world_size=3)
        found["own"].append([local["x"][i][0]["a"].ravel() for i in range(3)])
        local["x"].on_epoch_end()
        found["dataset"].append([x.numpy().ravel() for x, _ in local["validation_data"]])
    assert own.epochs == 3
    for parts in found.values():
        whole = [np.concatenate(each).tolist() for each in zip(*parts, strict=True)]
        assert whole == [X.ravel()[i : i + 8].tolist() for i in (0, 8, 16)]
        assert {len(each) for part in parts for each in part} <= {2, 3}


@pytest.mark.parametrize("size", [1, 3, 7])
def test_a_small_batch_is_trained_by_each_rank_and_validated_sample_by_sample(size: int) -> None:
    import keras
    import tensorflow as tf

    class Own(keras.utils.PyDataset):  # type: ignore[misc]
        def __len__(self) -> int:
            return 1

        def __getitem__(self, index: int) -> Any:
            return X[:size], X[:size]

    for data in (Own(), tf.data.Dataset.from_tensor_slices((X[:size], X[:size])).batch(8)):
        trained: list[list[float]] = []
        validated: list[list[float]] = []
        for rank in range(8):
            arguments = {"x": data, "validation_data": data}
            local = batches.local_arguments(arguments, rank=rank, world_size=8)
            for name, found in (("x", trained), ("validation_data", validated)):
                part = local[name]
                ((x, _),) = part if hasattr(part, "map") else [part[0]]
                found.append(np.asarray(x).ravel().tolist())
        assert trained == [X[:size].ravel().tolist()] * 8
        assert validated == [[min(rank, size - 1)] for rank in range(8)]


def test_other_data_is_refused() -> None:
    with pytest.raises(ModelFileError, match="returned a generator, which cannot be divided"):
        batches.local_arguments({"x": (each for each in X)}, rank=0, world_size=2)


def test_ragged_tensors_are_refused() -> None:
    import tensorflow as tf

    ragged = tf.ragged.constant([[1.0], [2.0, 3.0]])
    arguments = {"x": np.ones((2, 1)), "y": np.ones(2), "batch_size": 2}
    for more in ({"x": ragged}, {"validation_data": (ragged, np.ones(2))}):
        with pytest.raises(ModelFileError, match=r"a RaggedTensor cannot .* its to_tensor\(\), or"):
            batches.local_arguments({**arguments, **more}, rank=0, world_size=2)
