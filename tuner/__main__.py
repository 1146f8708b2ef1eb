"""`python -m tuner` is `hptune`, for where a command's path is not known, as in a container."""

from .cli import main

main(prog_name="hptune")
