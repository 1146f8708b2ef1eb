"""Optuna's importance of parameters, for `from hptune.optuna.importance import …`.

A module of its own, so that only a script that asks for it loads scikit-learn.
"""

import sys
from importlib import import_module

sys.modules[__name__] = import_module("optuna.importance")
