"""Dask's settings in the processes of a study, which share their cores with the trials."""

from __future__ import annotations

import logging
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final

HTTP_SETTINGS: Final[dict[str, object]] = {
    # By default each server shows its logs and call stacks to everybody who reaches its port.
    "distributed.scheduler.http.routes": ["distributed.http.health"],
    "distributed.worker.http.routes": ["distributed.http.health"],
}
"""Settings with which Dask's servers answer `/health` on their HTTP port, and no more."""

DASK_SETTINGS: Final[dict[str, object]] = {
    **HTTP_SETTINGS,
    # By default each server (scheduler, worker) measures its event loop 50 times a second,
    # and a worker takes 100 profiles a second of the threads that only wait for trials.
    "distributed.admin.tick.interval": "1s",
    "distributed.worker.profile.enabled": False,
    # Twice a second by default, with the counters of every disk. The unused histories would grow
    # by megabytes an hour.
    "distributed.admin.system-monitor.interval": "5s",
    "distributed.admin.system-monitor.disk": False,
    "distributed.admin.system-monitor.log-length": 600,
}
"""Settings with which Dask's servers are idle while trials run.

A scheduler of the user's own takes only `HTTP_SETTINGS`, and else the user's settings.
"""

SCRATCH: Final = "temporary-directory"
"""Setting for the directory of the files of Dask's servers.

The default is one folder for all users of a machine. As each server imports modules that lie there,
another user could run code in its process. So each server of ours has a private folder.
"""


def quiet_servers(folder: Path) -> AbstractContextManager[object]:
    """Return a context in which Dask's servers start with `DASK_SETTINGS` and a folder of files."""
    import dask

    return dask.config.set({**DASK_SETTINGS, SCRATCH: str(folder)})


def silence() -> None:
    """Silence Dask, which logs every lost connection as an error; the study reports its own.

    Tornado logs the errors of Dask's periodic calls, such as a heartbeat while a study ends.
    """
    for name in ("distributed", "distributed.client", "tornado.application"):
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)
