"""Variants: ways to run the list of trials, and how each is started and read."""

from __future__ import annotations

import json
import os
import secrets
import sqlite3
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from .cases import EPOCHS
from .protocol import collect

HERE = Path(__file__).parent
Command = Callable[[Path, int, Path], list[str]]
"""Makes the command line from the interpreter, the number of trials and the scratch directory."""


@dataclass(frozen=True, slots=True)
class Variant:
    """One way of running the trials.

    Attributes:
        name: What `--only` and the table call it.
        command: Makes its command line.
        processes: How many trials it trains at a time.
        is_peer: Whether it runs in the peers' environment.
        collect: Reads the finished cases' accuracies from the scratch directory.
        env: Further environment variables.
    """

    name: str
    command: Command
    processes: int = 2
    is_peer: bool = False
    collect: Callable[[Path], dict[int, float]] = collect
    env: Mapping[str, str] = field(default_factory=dict)


def _module(name: str, *arguments: str) -> Command:
    return lambda python, _trials, _scratch: [str(python), "-m", f"overhead.{name}", *arguments]


def _hptune(python: Path, trials: int, scratch: Path) -> list[str]:
    return [
        *(str(python.with_name("hptune")), "run", str(HERE / "hptune_model.py")),
        *("--search", "grid", "--trials", str(trials), "--epochs", str(EPOCHS)),
        *("--workers", "1", "--cpus-per-trial", "1", "--study", str(scratch / "study")),
    ]


def _read_study(scratch: Path) -> dict[int, float]:
    with closing(sqlite3.connect(scratch / "study" / "study.db")) as database:
        rows = database.execute("SELECT params, value FROM trials WHERE state = 'COMPLETE'")
        return {int(json.loads(params)["case"]): float(value) for params, value in rows}


# On Linux `ray.init` replaces 127.0.0.1 by the machine's outer address and listens on all
# interfaces, unless clusters are turned off as they are on Windows and macOS. A token of its own
# keeps it closed to the machine's other users without leaving one in the home directory.
_RAY_ENV = {
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_AUTH_MODE": "token",
    "RAY_AUTH_TOKEN": secrets.token_hex(32),
}

VARIANTS = (
    Variant("bare", _module("bare")),
    Variant("hptune", _hptune, collect=_read_study),
    Variant("ray", _module("ray_tune"), is_peer=True, env=_RAY_ENV),
    Variant("ray-reuse", _module("ray_tune", "reuse"), is_peer=True, env=_RAY_ENV),
    Variant("optuna", _module("optuna_study"), is_peer=True),
    Variant("kerastuner", _module("keras_tuner_search"), processes=1, is_peer=True),
)


def environment(variant: Variant, *, trials: int, scratch: Path) -> dict[str, str]:
    """Return the variant's whole environment: one thread per process, no GPU, no home directory."""
    # A user's own settings of these tools would change what is measured.
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("RAY_", "DASK_", "KERAS"))}
    return {
        **kept,
        "OMP_NUM_THREADS": "1",
        "TF_NUM_INTRAOP_THREADS": "1",
        "TF_NUM_INTEROP_THREADS": "1",
        "CUDA_VISIBLE_DEVICES": "-1",
        "TF_CPP_MIN_LOG_LEVEL": "3",
        "KERAS_BACKEND": "tensorflow",
        "KERAS_HOME": str(scratch),
        "TMPDIR": str(scratch),
        "PYTHONPATH": str(HERE.parent),
        "OVERHEAD_TRIALS": str(trials),
        "OVERHEAD_SCRATCH": str(scratch),
        "OVERHEAD_MARKER": str(scratch / "first-epoch"),
        **variant.env,
    }
