"""Where the user's code is, and what a probe of it has found."""

from __future__ import annotations

import enum
import os
from collections.abc import Mapping
from dataclasses import dataclass, field

OF_EACH_TRIAL = "of each trial"
"""Stands for a RESOURCES that is a function of the hyperparameters."""


class SourceKind(enum.StrEnum):
    """Way in which user code reaches a process."""

    FILE = "file"
    PICKLE = "pickle"
    ASKED = "asked"
    """It reaches none: programs of the user's ask for trials and tell their results."""


@dataclass(frozen=True, slots=True)
class ObjectiveSource:
    """Place of the user's code.

    Attributes:
        kind: A Python file, or a cloudpickle of a `UserCode`.
        path: The file's absolute path.
        entry: Name of the entry point in the file; empty for the one that hptune finds.
        python: The Python that runs it; empty for that of the worker.
        copy: A copy of the file, which is run in its place; empty for the file itself.
        backend: Keras's backend, by default that of KERAS_BACKEND where the user asks; empty for
            that of the worker's environment.
        working_directory: Where the code's relative paths start, which is the directory of the
            user's command; empty for that of the process that runs the code.
    """

    kind: SourceKind
    path: str
    entry: str = ""
    python: str = ""
    copy: str = ""
    backend: str = field(default_factory=lambda: os.environ.get("KERAS_BACKEND", ""))
    working_directory: str = ""

    @property
    def shown(self) -> str:
        """What messages call it."""
        if self.kind is SourceKind.ASKED:
            return "the programs that ask"
        return self.path if self.kind is SourceKind.FILE else "your model function"


@dataclass(frozen=True, slots=True)
class Found:
    """Result of a probe of the user's code.

    Attributes:
        is_keras: Whether the code builds Keras models; if not, it is an `objective` function.
        space: The search space in its JSON form.
        constants: The file's values of `CONSTANTS`, by name.
        metric: Default objective of a Keras model: its accuracy if it measures one, else its loss;
            on the validation data if there are any.
        metrics: Metrics that a trial reports; empty if unknown, as for an `objective` that returns
            a number.
        vector_metrics: Those that have several numbers, which trials leave out.
        partial_metrics: Those that only some configurations report, and which do not.
        reports_others: Whether trials may report metrics beyond those, such as a callback's.
        warnings: Warnings for the user.
        is_complete: Whether the probe saw all declarations. If not, trials may find more
            hyperparameters.
        may_train: Whether the code that follows may be a training, which can take long.
        entry: Name of the entry point.
        backend: Keras's backend; empty if the code builds no Keras models.
        calls_fit: Whether `keras.Model.fit` trains, not a training loop of the user's own.
        own_epochs: The epochs that a `fit` of the user's own trains whatever it is given; None if
            it trains as many as it is told, or if that is unknown.
        normalises_parts: Whether a layer normalises by the statistics of a batch, and on several
            devices by those of each one's part.
        runs_elsewhere: Whether trials work where their use of the machine is not measured.
    """

    is_keras: bool
    space: tuple[Mapping[str, object], ...]
    constants: Mapping[str, object]
    metric: str = ""
    metrics: tuple[str, ...] = ()
    vector_metrics: tuple[str, ...] = ()
    partial_metrics: Mapping[str, str] = field(default_factory=dict)
    reports_others: bool = True
    warnings: tuple[str, ...] = ()
    is_complete: bool = False
    may_train: bool = False
    entry: str = ""
    backend: str = ""
    calls_fit: bool = True
    own_epochs: int | None = None
    normalises_parts: bool = False
    runs_elsewhere: bool = False
