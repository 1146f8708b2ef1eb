"""The seeds of a training: all random numbers follow from the trial's seed and the epoch."""

from __future__ import annotations

import atexit
import contextlib
import functools
import random
import sys
from collections.abc import Callable
from types import ModuleType

from ...user_code.watched_imports import imports_run_by
from ..unused_tensorflow import tensorflow_left_out

_later_imports = contextlib.ExitStack()
atexit.register(_later_imports.close)  # later there is no list of finders to remove it from


def seed_everything(seed: int, *, deterministic: bool) -> None:
    """Seed every generator that the process has loaded, and a framework's if it is loaded later.

    Args:
        seed: The trial's seed.
        deterministic: Whether TensorFlow is to use deterministic operations only.
    """
    _seed_host(seed)
    if "keras" in sys.modules:
        with tensorflow_left_out():
            sys.modules["keras"].utils.set_random_seed(seed)
    _later_imports.close()
    run_by = functools.partial(_import_seeded, seed, deterministic)
    later = {"tensorflow", "torch"} - sys.modules.keys()
    _later_imports.enter_context(imports_run_by(run_by, *later))
    if deterministic and "tensorflow" not in later:
        sys.modules["tensorflow"].config.experimental.enable_op_determinism()


def _import_seeded(
    seed: int,
    deterministic: bool,  # noqa: FBT001 - of a partial function
    module: ModuleType,
    run: Callable[[ModuleType], None],
) -> None:
    run(module)
    with contextlib.suppress(AttributeError):  # a package that has only its name
        if module.__name__ == "torch":
            module.manual_seed(seed)
            return
        module.random.set_seed(seed)
        if deterministic:
            module.config.experimental.enable_op_determinism()


def seed_after_loading(seed: int) -> None:
    """Seed every generator again once the data is there.

    So a training draws the same numbers whether its process called `load_data`, which may have
    drawn some itself, or took the data from the cache.

    Args:
        seed: The trial's seed. Another one is derived from it: what the training makes must not
            begin with the seeds that the model's layers were given.
    """
    import numpy as np

    words = np.random.SeedSequence(seed, spawn_key=(1,)).generate_state(1)
    seed_everything(int(words[0]), deterministic=False)


def seed_epoch(seed: int, *keys: int) -> None:
    """Seed the generators that shuffle the data, and that the user's code uses on the host.

    So a training that continues at this epoch draws the same numbers as without an interruption.
    These are the generators of Python, NumPy and PyTorch: Keras shuffles arrays with NumPy's on JAX
    and with PyTorch's on PyTorch, and the batches of a `PyDataset` with Python's. On TensorFlow, a
    dataset keeps the seeds that it was made with. Seeding TensorFlow again would not change it, but
    would compile the model again.

    Args:
        seed: The trial's seed.
        keys: The phase and the epoch, from 0.
    """
    import numpy as np

    words = np.random.SeedSequence([seed, *keys]).generate_state(1)
    _seed_host(int(words[0]))


def _seed_host(seed: int) -> None:
    random.seed(seed)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(seed % 2**32)
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(seed)
