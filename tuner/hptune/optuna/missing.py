"""What to do in place of names of Optuna that are not here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..errors import UsageError

_PLUGIN = "one of your own is a plug-in of hptune: `hptune help plugins`"
_KEPT = "a study keeps those that create_study was given"
OF_ANOTHER_STUDY = (
    "study.enqueue_trial runs a configuration, and hptune.open_study takes warm_start= for the "
    "results of an earlier study"
)
_INSTEAD = {
    "add_trial": OF_ANOTHER_STUDY,
    "artifacts": "write files where you like, and their paths by set_user_attr",
    "copy_study": "copy the study's directory while no process uses it",
    "delete_study": "remove the study's directory",
    "get_all_study_summaries": "`hptune list --json FOLDER` has the studies in a folder",
    "set_metric_names": "the metrics are value, or value_0, value_1, …",
    "set_constraint": "hptune.open_study has constraints, such as ['params<=2e6']",
    "sampler": _KEPT,
    "pruner": _KEPT,
    "BaseSampler": _PLUGIN,
    "BasePruner": _PLUGIN,
}


def refuse(where: str, name: str, instead: str = "") -> Any:
    """Say what to do in place of a name.

    Raises:
        UsageError: Always. Of an AttributeError, `from module import name` would show nothing.
    """
    instead = _INSTEAD.get(name) or instead
    raise UsageError(
        f"{where} has no {name!r}{'; ' if instead else ''}{instead}. `hptune help from-optuna` "
        "says what there is"
    )


def refused(where: str, name: str) -> Callable[..., Any]:
    """Return a method that says what to do in its place."""
    return lambda *_arguments, **_options: refuse(where, name)


def beside(names: dict[str, Any], module: Any = None) -> Callable[[str], Any]:
    """Return a module's `__getattr__`, for names that it does not define.

    Args:
        names: The module's names.
        module: The module of Optuna that has the rest; None if there is no rest.
    """

    def get(name: str) -> Any:
        if module is not None and name not in _INSTEAD:
            return getattr(module, name)
        if name.startswith("_"):  # asked for by tools that look at every module
            raise AttributeError(f"module {names['__name__']!r} has no attribute {name!r}")
        kinds = [known for known in names if known.endswith(name[-6:]) and known[0] != "_"]
        return refuse(names["__name__"], name, f"it has {', '.join(kinds)}" if kinds else "")

    return get
