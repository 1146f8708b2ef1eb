"""Run the command `hptune` as `python -m hptune`, for use where `hptune` is not on the PATH."""

from .cli import main

main(prog_name="hptune")
