"""No tool: two processes, each training its half of the list."""

from __future__ import annotations

import sys

from .cases import config
from .protocol import hand_back, second_process, trials, wait_for


def half(first_case: int) -> None:
    from .digits_trial import train

    cases = range(first_case, trials(), 2)
    hand_back({case: train(config(case)) for case in cases}, part=str(first_case))


if __name__ == "__main__":
    if sys.argv[1:] == ["second"]:
        half(1)
    else:
        second = second_process("overhead.bare")
        half(0)
        wait_for(second)
