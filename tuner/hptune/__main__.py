"""The command `hptune`, also as `python -m hptune` where it is not on the PATH."""

from __future__ import annotations

import os
import sys

from .errors import LINUX_ONLY


def main() -> None:
    """Run the command line."""
    if os.name == "nt":  # no module of it can be imported there
        sys.exit(f"Error: {LINUX_ONLY}")
    try:
        from .cli import main as run
    except KeyboardInterrupt:  # loading takes seconds on a slow file system
        sys.stderr.write("interrupted\n")
        sys.exit(130)
    run(prog_name="hptune")


if __name__ == "__main__":
    main()
