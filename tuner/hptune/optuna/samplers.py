"""Optuna's samplers as settings of a study; options other than the seed are not used."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..ask_tell.spaces import Choice
from ..errors import UsageError
from .missing import beside, refuse

Settings = dict[str, Any]


def _sampler(search: str) -> Callable[..., Settings]:
    def sampler(*_unused: Any, seed: int | None = None, **options: Any) -> Settings:
        if options.get("constraints_func") is not None:
            instead = "use hptune.open_study with constraints, such as ['params<=2e6']"
            refuse("hptune.optuna", "constraints_func", instead)
        return {"search": search, **({} if seed is None else {"seed": seed})}

    return sampler


TPESampler = _sampler("tpe")
RandomSampler = _sampler("random")
GPSampler = _sampler("bayesian")
QMCSampler = _sampler("sobol")
CmaEsSampler = _sampler("optuna:CmaEsSampler")
NSGAIISampler = _sampler("optuna:NSGAIISampler")


def GridSampler(search_space: Mapping[str, Sequence[Any]], seed: int | None = None) -> Settings:
    """Try all combinations of these values."""
    space = {name: Choice([*values]) for name, values in search_space.items()}
    return {**_sampler("grid")(seed=seed), "space": space}


__getattr__ = beside(globals())


def settings_of(sampler: Any) -> Settings:
    """Return the settings of a sampler of this module, or of an object of Optuna's.

    Raises:
        UsageError: It is neither.
    """
    if sampler is None:
        return {"search": "tpe"}
    if type(sampler).__module__.startswith("optuna."):
        return {"search": f"optuna:{type(sampler).__name__}"}
    if isinstance(sampler, dict):
        return sampler
    raise UsageError(
        f"sampler is {sampler!r}; allowed are those of hptune.optuna.samplers and of "
        "optuna.samplers. A sampler of your own is a plug-in: `hptune help plugins`"
    )
