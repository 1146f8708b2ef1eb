"""hptune: the package `tuner` under a name that no file of a user's hides.

`hptune.Tuner` is `tuner.Tuner`, and `hptune.errors` is `tuner.errors`. The packages `tuner` and
`jobqueue` are loaded from next to this folder, even if the user has a `tuner.py` or `jobqueue.py`
that comes first on `sys.path`. Processes are started as `python -P -m hptune…` for that reason.

May import: nothing of `tuner`.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import InspectLoader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from types import CodeType, ModuleType

_HERE = Path(__file__).parent


class _Alias(MetaPathFinder, InspectLoader):
    """Finder of `hptune.x`, which it loads as `tuner.x`."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        del path, target
        if not name.startswith("hptune.") or (real := find_spec(_real(name))) is None:
            return None
        is_package = real.submodule_search_locations is not None
        return ModuleSpec(name, self, origin=real.origin, is_package=is_package)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module = import_module(_real(spec.name))
        spec.loader_state = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        if module.__spec__ is not None:  # it is the alias's; the module keeps its own
            module.__spec__ = module.__spec__.loader_state

    def get_source(self, fullname: str) -> None:
        del fullname

    def get_code(self, fullname: str) -> CodeType | None:
        """Return what `python -m` runs."""
        spec = find_spec(_real(fullname))
        loader = None if spec is None else spec.loader
        return loader.get_code(_real(fullname)) if isinstance(loader, InspectLoader) else None


def _real(name: str) -> str:
    return name.replace("hptune", "tuner", 1)


def _load(name: str) -> ModuleType:
    """Return the package next to this one, whatever comes first on `sys.path`."""
    home = _HERE.parent / name / "__init__.py"
    loaded = sys.modules.get(name)
    if loaded is not None and loaded.__file__ and Path(loaded.__file__).samefile(home):
        return loaded
    spec = spec_from_file_location(name, home)
    if spec is None or spec.loader is None:
        raise ImportError(f"{home} cannot be imported")
    sys.modules[name] = package = module_from_spec(spec)
    spec.loader.exec_module(package)
    return package


def _is_hidden(name: str) -> bool:
    spec = PathFinder.find_spec(name)
    return spec is None or spec.origin is None or Path(spec.origin).parent.parent != _HERE.parent


if any(map(_is_hidden, ("tuner", "jobqueue"))):
    # Processes that Python spawns from this one import what they unpickle by name.
    sys.path.insert(0, str(_HERE / "first"))
sys.meta_path.insert(0, _Alias())
_load("jobqueue")
sys.modules[__name__] = _load("tuner")
