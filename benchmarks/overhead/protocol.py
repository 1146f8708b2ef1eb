"""Protocol between the driver and a variant's script: its orders and its results."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path


def trials() -> int:
    """Return how many cases to run, from case 0."""
    return int(os.environ["OVERHEAD_TRIALS"])


def scratch() -> Path:
    """Return an empty directory for everything that the variant writes."""
    return Path(os.environ["OVERHEAD_SCRATCH"])


def hand_back(accuracies: Mapping[int, float], *, part: str = "all") -> None:
    """Write the finished cases' accuracies; several processes hand back one part each."""
    (scratch() / f"accuracies-{part}.json").write_text(json.dumps(dict(accuracies)))


def collect(folder: Path) -> dict[int, float]:
    """Return the accuracies from all processes of a variant."""
    found: dict[int, float] = {}
    for path in folder.glob("accuracies-*.json"):
        found |= {int(case): value for case, value in json.loads(path.read_text()).items()}
    return found


def second_process(module: str) -> subprocess.Popen[bytes]:
    """Start the second of two equal processes; the caller is the first."""
    return subprocess.Popen([sys.executable, "-m", module, "second"])


def wait_for(process: subprocess.Popen[bytes]) -> None:
    """Wait for the second process; fail if it failed."""
    if code := process.wait():
        sys.exit(f"the second process failed with exit code {code}")
