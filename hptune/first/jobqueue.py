"""Found before a `jobqueue.py` of a user; has the package `jobqueue` loaded instead."""

import hptune  # noqa: F401 - puts the package into sys.modules
