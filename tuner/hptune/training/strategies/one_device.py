"""One device, in a study whose batch rule multiplies learning rates."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from .base import Fit, Strategy


class OneDevice(Strategy):
    """Keras alone. A trial that began on several devices continues with the rate of one."""

    on_cpu = False

    def enter(self) -> None:
        """Do nothing."""

    def fit(self, original: Fit, model: Any, arguments: dict[str, Any]) -> Any:
        """Train with Keras's own `fit`."""
        return original(model, **arguments)

    def copies(self, _model: Any) -> Iterator[Mapping[str, Any]]:
        """Yield nothing: there is nothing to compare."""
        yield from ()
