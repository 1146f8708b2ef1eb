"""What the tests inherit from the process that starts them does not reach them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from surroundings import KNOWN

SUPPORT = Path(__file__).parent / "support"

# A child of the changed process says what it has inherited.
INHERITED = """\
import json, os, signal, subprocess, sys
sys.path.insert(0, sys.argv[1])
import surroundings
surroundings.make_known()
child = '''import os, signal, time
for each in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM, signal.SIGCHLD):
    assert signal.getsignal(each) in (signal.SIG_DFL, signal.default_int_handler), each
assert not signal.pthread_sigmask(signal.SIG_BLOCK, ())
assert os.umask(0) == 0o022
assert time.tzname[0] == "UTC"
print(*sorted(os.environ))'''
sys.exit(subprocess.call([sys.executable, "-I", "-c", child]))
"""


def test_signals_environment_and_umask_of_the_caller_do_not_reach_the_tests() -> None:
    theirs = {"NO_COLOR": "1", "FORCE_COLOR": "1", "COLUMNS": "200", "LC_ALL": "C", "TZ": "Japan"}
    others = {"PYTHONPATH": "/nowhere", "SLURM_JOB_ID": "7", "HPTUNE_WORKER_NOTICE": "1"}
    kept = {"PATH": os.environ["PATH"], "HPTUNE_TEST_EVERYTHING": "1", "TERM": "dumb"}
    ignoring = 'trap "" INT HUP TERM CHLD; umask 077; exec "$@"'
    child = subprocess.run(
        ["bash", "-c", ignoring, "bash", sys.executable, "-c", INHERITED, SUPPORT],
        env=theirs | others | kept,
        check=False,
        capture_output=True,
        text=True,
        preexec_fn=lambda: signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT}),
    )
    assert child.returncode == 0, child.stderr
    seen = set(child.stdout.split()) - {"PWD", "SHLVL", "_", "OLDPWD", "LC_CTYPE"}
    assert seen == {"HPTUNE_TEST_EVERYTHING", "PATH", *KNOWN}
