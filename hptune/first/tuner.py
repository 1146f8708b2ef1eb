"""Found before a `tuner.py` of a user; has the package `tuner` loaded instead."""

import hptune  # noqa: F401 - puts the package into sys.modules
