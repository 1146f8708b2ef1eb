"""The same surroundings for every test, independent of who starts the tests, and from where."""

from __future__ import annotations

import os
import re
import signal
import time

KNOWN = {
    "LANG": "C.UTF-8",
    "TERM": "xterm",
    "TZ": "UTC",
    # Threads of PyTorch, LightGBM and MXNet would wait for each other in a loop, which takes the
    # cores from the tests beside them.
    "OMP_WAIT_POLICY": "passive",
}
# What says how to write and where to draw, what other tools take as settings, and a job of Slurm.
FOREIGN = re.compile(
    r"LANGUAGE|LC_.*|COLUMNS|LINES|COLORTERM|.*_COLOR|CLICOLOR.*|PAGER|DISPLAY|BROWSER"
    r"|TTY_.*|JUPYTER_.*|PYTHON(?!DONTWRITEBYTECODE|UNBUFFERED).*"
    r"|HPTUNE_(?!TEST_).*|(DASK|DISTRIBUTED|SLURM|SBATCH|KERAS|TF|JAX|XLA|OMP|MLFLOW)_.*|MPLBACKEND"
    r"|(ROCR|HIP|ZE|ONEAPI)_.*"
)
UMASK = 0o022
# The tests themselves survive their terminal under `nohup`; a handler ends at an exec.
HANDLERS = {signal.SIGINT: signal.default_int_handler, signal.SIGHUP: lambda *_: None}


def make_known() -> None:
    """Set signals, environment and umask of this process, and so of all that it starts.

    A script's command in the background ignores Ctrl-C, and `nohup` hang-ups; so would hptune.
    Python ignores SIGPIPE and SIGXFSZ itself, and gives them back to what it starts.
    """
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    for number in signal.valid_signals() - {signal.SIGPIPE, signal.SIGXFSZ}:
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, HANDLERS.get(number, signal.SIG_DFL))
    for name in list(os.environ):
        if FOREIGN.fullmatch(name):
            del os.environ[name]
    os.environ.update(KNOWN)
    time.tzset()
    os.umask(UMASK)
