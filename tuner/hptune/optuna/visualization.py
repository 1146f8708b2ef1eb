"""Optuna's figures, for `from hptune.optuna.visualization import …`.

A module of its own, so that only a script that asks for it loads Matplotlib and Plotly.
"""

import sys
from importlib import import_module

sys.modules[__name__] = import_module("optuna.visualization")
