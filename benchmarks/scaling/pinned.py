"""Run `scaling.MODULE` on the core of this process's rank: python pinned.py MODULE."""

from __future__ import annotations

import os
import runpy
import sys

if __name__ == "__main__":
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[int(os.environ.get("LOCAL_RANK", "0")) % len(cores)]})
    runpy.run_module(f"scaling.{sys.argv[1]}", run_name="__main__")
