"""The settings of a study as keyword arguments of `Tuner`, with the types that they take."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypedDict

if TYPE_CHECKING:  # for type checkers alone
    from optuna.samplers import BaseSampler

    from ..core.pruner import Pruner
    from ..core.sampler import Sampler
    from ..core.space.user_priors import PriorSpec

    Text = str | os.PathLike[str]


class TunerSettings(TypedDict, total=False):
    """What `Tuner` takes besides its own arguments; `docs/reference-options.md` explains each."""

    constraints: str | Sequence[str]
    confirm: int
    confirm_repeats: int | None

    search: str | Callable[..., Sampler] | BaseSampler
    options: str | Mapping[str, Any] | Sequence[str]
    grid_points: int | None
    start_points: str | Mapping[str, object] | Sequence[str | Mapping[str, object]]
    priors: str | Mapping[str, PriorSpec] | Sequence[str]
    warm_start: Text | Sequence[Text]
    seed: int | None

    trials: int | None
    epochs: int | None
    timeout: str | float | None
    budget: str
    trial_timeout: str | float | None

    pruner: str | Callable[..., Pruner] | None
    min_epochs: int | None
    reduction_factor: int | None
    brackets: int | None
    pruner_mode: Literal["stop", "promote"] | None

    workers: int | None
    cpus_per_trial: float | None
    gpus_per_trial: float | Literal["auto"] | None
    processes_per_trial: int | Literal["auto"] | None
    nodes_per_trial: int | None
    memory_per_trial: str | int
    pack: Literal["auto", "off"]
    strategy: Literal["auto", "data-parallel", "none"]
    batch_rule: Literal["global", "linear", "sqrt"]
    warm_up_epochs: int
    cluster: str | Callable[..., Any]
    connect: Text | None
    certs: Text | None
    insecure: bool | None
    slurm: Text | None
    max_jobs: int | None
    min_workers: int | None
    executor: str | Callable[..., Any]
    cache_data: bool | int | str | None
    file_limit: str | int

    checkpoint_every: int | None
    keep_checkpoints: int
    stop_at: Literal["batch", "epoch"]
    master_grace: str | float

    on_failure: str | Sequence[str]
    max_failures: int | None
    first: int
    same_failures: int
    hang_timeout: str | float

    notify: str
    notify_wait: str | float
    mirror: str
