"""The built-in executors, made for workers on this machine."""

from __future__ import annotations

from collections.abc import Sequence

from .base import Executor, RunContext


def dask(run: RunContext, cores: Sequence[tuple[int, ...]], gpus: tuple[str, ...]) -> Executor:
    """Return an executor that starts Dask workers."""
    from .dask import DaskExecutor

    return DaskExecutor(
        name=run.name,
        source=run.source,
        clock=run.clock,
        cores=cores,
        gpus=gpus,
        fork_server_address=run.fork_server,
    )


def joblib(run: RunContext, cores: Sequence[tuple[int, ...]], gpus: tuple[str, ...]) -> Executor:
    """Return an executor that starts joblib workers, which share out all GPUs of the machine."""
    from .joblib import JoblibExecutor

    del gpus
    return JoblibExecutor(
        source=run.source,
        clock=run.clock,
        cores=list(cores),
        fork_server_address=run.fork_server,
    )
