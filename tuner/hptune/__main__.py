"""The command `hptune`, also as `python -m hptune` where it is not on the PATH."""

from __future__ import annotations

import gc
import os
import sys

from .errors import LINUX_ONLY


def main() -> None:
    """Run the command line."""
    if os.name == "nt":  # no module of it can be imported there
        sys.exit(f"Error: {LINUX_ONLY}")
    # Modules and classes stay until the end: to look among them for garbage is time for nothing.
    gc.disable()
    try:
        from .cli import main as run
    except KeyboardInterrupt:  # loading takes seconds on a slow file system
        sys.stderr.write("interrupted\n")
        sys.exit(130)
    gc.freeze()
    gc.enable()
    run(prog_name="hptune")


if __name__ == "__main__":
    main()
