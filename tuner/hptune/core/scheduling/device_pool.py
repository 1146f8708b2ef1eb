"""The devices of one kind on a worker (its cores, or its GPUs), held whole or in parts."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Sequence
from typing import Generic, TypeVar

Device = TypeVar("Device", bound=Hashable)

WHOLE = 1_000_000
"""The parts of a device."""


def parts_of(amount: float) -> int:
    """Return the parts of a device that an amount below 1 takes; three thirds fit into a whole.

    >>> parts_of(0.5), 3 * parts_of(1 / 3) <= WHOLE
    (500000, True)
    """
    return max(1, int(amount * WHOLE))


class DevicePool(Generic[Device]):
    """Some devices, and what of them is free.

    An amount below 1 is a part of one device, never of two. A larger amount is whole devices.

    Worked example::

        >>> pool = DevicePool(("A", "B"))
        >>> pool.take(0.5), pool.take(1), pool.take(0.5), pool.take(0.5)
        (('A',), ('B',), ('A',), None)
        >>> pool.give_back(("B",), 1)
        >>> pool.take(0.5)
        ('B',)

    Args:
        devices: The devices, in the order in which they are taken.
        groups: Devices that are near each other; whole devices are taken from one group if
            possible.

    Attributes:
        whole: The number of devices of which all is free.
    """

    def __init__(self, devices: Sequence[Device], groups: Iterable[Sequence[Device]] = ()) -> None:
        self._free = dict.fromkeys(devices, WHOLE)
        self.whole = len(self._free)
        known = [[each for each in group if each in self._free] for group in groups]
        self._groups = [group for group in known if group]

    def __len__(self) -> int:
        return len(self._free)

    @property
    def free(self) -> float:
        """What is free of all devices together."""
        return sum(self._free.values()) / WHOLE

    @property
    def most(self) -> float:
        """The largest amount that can be taken: whole devices, or else a part of one."""
        return self.whole or max(self._free.values(), default=0) / WHOLE

    def free_slots(self, amount: float) -> int:
        """Return how often an amount above 0 can be taken now."""
        if amount >= 1:
            return self.whole // int(amount)
        parts = parts_of(amount)
        return sum(free // parts for free in self._free.values())

    def take(
        self, amount: float, *, spread: bool = False, near: Collection[Device] = ()
    ) -> tuple[Device, ...] | None:
        """Hold an amount, and return its devices; None if not enough is free.

        Args:
            amount: The amount, above 0.
            spread: Whether a part is taken from the emptiest device, so that none is idle; else it
                is taken from the fullest that has room, so that whole devices stay free.
            near: Devices of which whole ones are taken first.
        """
        if amount >= 1:
            return self._take_whole(int(amount), near)
        parts = parts_of(amount)
        fitting = [each for each, free in self._free.items() if free >= parts]
        if not fitting:
            return None
        chosen = (max if spread else min)(fitting, key=self._free.__getitem__)
        self._put(chosen, -parts)
        return (chosen,)

    def _take_whole(self, count: int, near: Collection[Device]) -> tuple[Device, ...] | None:
        if count > self.whole:
            return None
        chosen = [each for each, free in self._free.items() if free == WHOLE]
        close = [each for each in chosen if each in near]
        if 0 < len(close) < count:
            chosen = [*close, *(each for each in chosen if each not in near)]
        elif self._groups and count < len(chosen):
            chosen = close or chosen
            among = set(chosen)
            groups = [[each for each in group if each in among] for group in self._groups]
            enough = [group for group in groups if len(group) >= count]
            # The smallest group that is large enough; without one, as few groups as possible.
            groups.sort(key=len, reverse=True)
            listed = {each for group in groups for each in group}
            rest = [each for each in chosen if each not in listed]
            chosen = min(enough, key=len) if enough else [*(e for g in groups for e in g), *rest]
        held = tuple(chosen[:count])
        for each in held:
            self._put(each, -WHOLE)
        return held

    def hold(self, devices: Iterable[Device], amount: float) -> None:
        """Hold an amount of each of these devices, free or not."""
        parts = WHOLE if amount >= 1 else parts_of(amount)
        for device in devices:
            self._put(device, -parts)

    def give_back(self, devices: Iterable[Device], amount: float) -> None:
        """Free an amount of each of these devices."""
        parts = WHOLE if amount >= 1 else parts_of(amount)
        for device in devices:
            self._put(device, parts)

    def _put(self, device: Device, parts: int) -> None:
        before = self._free[device]
        self._free[device] = before + parts
        self.whole += (before + parts == WHOLE) - (before == WHOLE)
