"""Optuna's interface on top of a study's ask and tell: `import hptune.optuna as optuna`.

A script of Optuna changes this import. The study is a directory, which the path of `storage`
names. Trials run in the script's process, or with `n_jobs` each in one of its own. All that only
reads results is Optuna's own code, on a storage of the study's trials; every other name is that of
the installed package, too.

Offers: these names, and the modules of Optuna.

May import: `errors`, `text`, `core`, `ask_tell`, `files`, `samplers`, `storage`, `training`,
`user_code`.
"""

from __future__ import annotations

import sys
from importlib import import_module

from ..errors import check_installed

check_installed("optuna", "hptune.optuna")

import optuna

from . import pruners, samplers, storages, study
from .missing import beside
from .study import Study, create_study, get_all_study_names, load_study

__all__ = [
    "Study", "create_study", "get_all_study_names", "load_study", "pruners", "samplers",
    "storages", "study",
]  # fmt: skip
__getattr__ = beside(globals(), optuna)

for _name in ("distributions", "exceptions", "integration", "logging", "trial"):
    sys.modules[f"{__name__}.{_name}"] = import_module(f"optuna.{_name}")  # for `from` imports
