"""The device queue: access of several studies to one worker's cores and GPUs."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

from ..core.resources import Placement
from ..core.scheduling.device_pool import WHOLE, parts_of

WAITS = "waits for cores or GPUs that another study holds"


@dataclass(slots=True, eq=False)
class QueueEntry:
    """An attempt in the queue.

    Attributes:
        study: The attempt's study.
        placement: The devices that it needs.
        on_granted: Called once, when it holds all of them; must not block.
        is_granted: Whether it holds them.
    """

    study: str
    placement: Placement
    on_granted: Callable[[], None]
    is_granted: bool = False


class DeviceQueue:
    """A queue of attempts, each of which holds its devices from its turn until it leaves.

    Each study's engine places attempts on a worker as if it had the worker for itself, and never
    gives a device twice (or shares a GPU on purpose). If several studies use the worker, the queue
    keeps them apart. An attempt gets its turn when, on each of its devices, one of these holds:

    - It fits next to all attempts that hold the device or entered earlier.
    - All those attempts belong to its own study.
    - It needs a part of the device, and its own study holds the whole device.

    The third rule is for a study that packs its trials: its first attempt began with a whole device
    and now uses a part of it, which the engine knows but the queue does not. The study may divide
    the device until that attempt leaves. After that its attempts count by their parts.

    So whole cores and GPUs go from study to study in turn, and the parts of a GPU add up to one at
    most. An attempt that needs several devices gets them all at once, and later ones cannot
    overtake it forever. There is no deadlock: an attempt waits only for those that hold devices
    and for earlier ones.

    All methods may be called from any thread.
    """

    def __init__(self) -> None:
        self._entries: list[QueueEntry] = []
        self._lock = threading.Lock()

    def enter(self, study: str, placement: Placement, on_granted: Callable[[], None]) -> QueueEntry:
        """Enter the queue; `on_granted` is called at once if the devices are free."""
        entry = QueueEntry(study, placement, on_granted)
        with self._lock:
            self._entries.append(entry)
            self._grant()
        return entry

    def release(self, entry: QueueEntry) -> None:
        """Release the devices, or stop waiting for them. May be repeated."""
        with self._lock:
            if entry in self._entries:
                self._entries.remove(entry)
                self._grant()

    def _grant(self) -> None:
        for place, entry in enumerate(self._entries):
            if not entry.is_granted:
                later = (each for each in self._entries[place + 1 :] if each.is_granted)
                if _fits(entry, [*self._entries[:place], *later]):
                    entry.is_granted = True
                    entry.on_granted()


def _fits(entry: QueueEntry, others: list[QueueEntry]) -> bool:
    """Return whether an entry gets its devices next to those that hold them or come first."""
    wanted = _parts(entry.placement)
    taken, own = dict.fromkeys(wanted, 0), dict.fromkeys(wanted, 0)
    contested = set()
    for other in others:
        is_own = other.study == entry.study
        for device, parts in _parts(other.placement).items():
            if device in wanted:
                taken[device] += parts
                own[device] += parts if is_own and other.is_granted else 0
                if not is_own:
                    contested.add(device)
    return all(
        own[device] >= WHOLE > wanted[device] or taken[device] + wanted[device] <= WHOLE
        for device in contested
    )


def _parts(placement: Placement) -> dict[int | str, int]:
    """Return how much is needed of each core (by number) and GPU (by name), in parts."""
    cpu, gpu = (
        WHOLE if share >= 1 else parts_of(share)
        for share in (placement.cpu_share, placement.gpu_share)
    )
    return {**dict.fromkeys(placement.cpus, cpu), **dict.fromkeys(placement.gpus, gpu)}


DEVICE_QUEUE = DeviceQueue()
"""The queue of this process, shared by the plugins of all studies on its worker."""
