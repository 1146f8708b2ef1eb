"""Workers with unequal trials, on a virtual clock."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator

from hptune.core.trial import Params


def ended_trials(
    ask: Callable[[int], Params],
    seconds: Callable[[Params], float],
    *,
    trials: int,
    workers: int,
) -> Iterator[tuple[int, Params]]:
    """Yield the number and the configuration of each trial, in the order of their ends.

    A worker whose trial ends asks for its next one at once, after the caller has handled the end.
    The other workers' trials still run then.

    Args:
        ask: Returns the configuration of the trial with a number.
        seconds: Returns how long a trial takes.
        trials: How many trials there are.
        workers: How many trials run at once.
    """
    running: list[tuple[float, int, Params]] = []
    now, asked = 0.0, 0
    while running or asked < trials:
        while asked < trials and len(running) < workers:
            params = ask(asked)
            heapq.heappush(running, (now + seconds(params), asked, params))
            asked += 1
        now, number, params = heapq.heappop(running)
        yield number, params
