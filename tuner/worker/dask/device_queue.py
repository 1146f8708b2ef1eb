"""Whose turn it is on a core or a GPU that attempts of several studies want."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

from ...core.resources import Placement
from ...core.scheduling.device_pool import WHOLE, parts_of

WAITS = "waits for cores or GPUs that another study holds"


@dataclass(slots=True, eq=False)
class Turn:
    """An attempt's place in the line.

    Attributes:
        study: Whose attempt it is.
        placement: What it is to hold.
        come: Called once, when all of that is its own; must not block.
        has_come: Whether it is.
    """

    study: str
    placement: Placement
    come: Callable[[], None]
    has_come: bool = False


class DeviceQueue:
    """Attempts in the order in which they came; each holds its devices from its turn on.

    Each study's engine gives its attempts the cores and GPUs of a worker as if it had the worker
    for itself, and never gives one twice (or shares a GPU on purpose). Where several studies use
    a worker, this line keeps them apart, by one rule: an attempt's turn has come when, on each of
    its devices, it finds room beside all who run or came before it, or they are all of its own
    study, or it wants a part and its own study holds the whole device already.

    The last is so where a study packs its trials by what they use: its first attempt began with a
    whole device and uses a part of it now, which the engine knows and this line does not. What the
    study was given whole it may divide among its attempts as long as that first one runs; after it
    they count by their parts, and others' turns come.

    So whole cores and GPUs go from study to study in turn, and parts of one GPU add up to one at
    most, whosever they are. An attempt that wants several gets them all at once or waits, and
    those who come later cannot overtake it for ever. Nobody waits in a circle, since all wait for
    those that run, and for earlier ones.

    All methods may be called from any thread.
    """

    def __init__(self) -> None:
        self._turns: list[Turn] = []
        self._lock = threading.Lock()

    def enter(self, study: str, placement: Placement, come: Callable[[], None]) -> Turn:
        """Stand in line; `come` is called at once if there is nothing to wait for."""
        turn = Turn(study, placement, come)
        with self._lock:
            self._turns.append(turn)
            self._call_up()
        return turn

    def leave(self, turn: Turn) -> None:
        """Give back what is held, or wait no longer; others' turns may come. May be repeated."""
        with self._lock:
            if turn in self._turns:
                self._turns.remove(turn)
                self._call_up()

    def withdraw(self, turn: Turn) -> bool:
        """Leave, but only if the turn has not come; whether that was so."""
        with self._lock:
            if turn.has_come or turn not in self._turns:
                return False
            self._turns.remove(turn)
            self._call_up()
            return True

    def _call_up(self) -> None:
        for place, turn in enumerate(self._turns):
            if not turn.has_come:
                later = (each for each in self._turns[place + 1 :] if each.has_come)
                if self._is_free(turn, [*self._turns[:place], *later]):
                    turn.has_come = True
                    turn.come()

    @staticmethod
    def _is_free(turn: Turn, others: list[Turn]) -> bool:
        wanted = _held(turn.placement)
        taken, own = dict.fromkeys(wanted, 0), dict.fromkeys(wanted, 0)
        with_others = set()
        for other in others:
            is_own = other.study == turn.study
            for device, parts in _held(other.placement).items():
                if device in wanted:
                    taken[device] += parts
                    own[device] += parts if is_own and other.has_come else 0
                    if not is_own:
                        with_others.add(device)
        return all(
            own[device] >= WHOLE > wanted[device] or taken[device] + wanted[device] <= WHOLE
            for device in with_others
        )


def _held(placement: Placement) -> dict[int | str, int]:
    """How much of each core (by its number) and GPU (by its name) is to be held, in parts."""
    cpu, gpu = (
        WHOLE if share >= 1 else parts_of(share)
        for share in (placement.cpu_share, placement.gpu_share)
    )
    return {**dict.fromkeys(placement.cpus, cpu), **dict.fromkeys(placement.gpus, gpu)}


LINE = DeviceQueue()
"""The line of this process: of all agents in it, one for each study."""
