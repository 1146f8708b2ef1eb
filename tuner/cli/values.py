"""What options take: lengths of time and amounts of memory."""

from __future__ import annotations

import re
from typing import Any, ClassVar

import click


class Duration(click.ParamType[float]):
    """A length of time such as 90s, 30m, 2h, 1d, or 1h30m; a bare number means seconds."""

    name = "time"
    _UNITS: ClassVar = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Seconds."""
        if isinstance(value, int | float):
            return float(value)
        text = value.strip().lower()
        parts = re.findall(r"(\d+(?:\.\d+)?)([smhd]?)", text)
        if not parts or "".join(number + unit for number, unit in parts) != text:
            self.fail(f"{value!r} is no length of time; say for example 90s, 30m or 2h", param, ctx)
        return sum(float(number) * self._UNITS[unit or "s"] for number, unit in parts)


_LEAST_BYTES = 1_000_000
"""Nobody who trains asks for less."""


class Size(click.ParamType[int]):
    """An amount of memory such as 4GB or 512MiB; a bare number means bytes."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Bytes."""
        if isinstance(value, int):
            return value
        found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]?)(i?)b?\s*", value.lower())
        if found is None:
            self.fail(f"{value!r} is no amount of memory; say for example 4GB", param, ctx)
        number, prefix, binary = found.groups()
        power = ["", "k", "m", "g", "t"].index(prefix)
        found_bytes = int(float(number) * (1024 if binary else 1000) ** power)
        if 0 < found_bytes < _LEAST_BYTES:
            self.fail(f"{value!r} is {found_bytes} bytes; did you mean {number}GB?", param, ctx)
        return found_bytes


class CacheSize(Size):
    """Whether to use a cache: on, off, or an amount of memory that limits it."""

    name = "cache"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return a bool for on and off, and bytes for an amount."""
        if isinstance(value, str) and value.lower() in ("on", "off"):
            return value.lower() == "on"
        return super().convert(value, param, ctx)
