"""A Python of its own for frameworks that must not run in the process of the tests."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any


def answer_of(script: str, *arguments: str, given: Any = None, **environment: str) -> Any:
    """Run a script in a new Python process; return the JSON in the last line that it prints.

    Args:
        script: Python code.
        arguments: `sys.argv[1:]` of the script.
        given: What the script reads as JSON from its standard input.
        environment: Further environment variables.
    """
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", script, *arguments],
        env={**os.environ, **environment},
        input=json.dumps(given),
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])
