"""A driver library of NVIDIA's GPUs, for tests on machines without one."""

from __future__ import annotations

from dataclasses import dataclass
from types import ModuleType, SimpleNamespace
from typing import Any

GB = 10**9


class NVMLError(Exception):
    """The error that the real library raises."""


@dataclass(frozen=True, slots=True)
class Card:
    """A GPU, or a slice of one, as the driver tells of it.

    Attributes:
        uuid: Its UUID.
        total: Its memory in bytes.
        model: Its name.
        bus: The number of its PCI bus.
        slices: Its MIG slices.
        busy: Its utilization; None for a slice and for a GPU that has some.
        running: Its processes, with the memory of each.
        millijoules: Its energy counter; None for a GPU without one.
    """

    uuid: str
    total: int = 80 * GB
    model: str = "NVIDIA H100"
    bus: int = 0
    slices: tuple[Card, ...] = ()
    busy: int | None = 0
    running: tuple[tuple[int, int], ...] = ()
    millijoules: int | None = None


class Driver(ModuleType):
    """Module `pynvml` of a machine with these GPUs; their handles are the cards themselves."""

    NVMLError = NVMLError

    def __init__(self, *cards: Card) -> None:
        super().__init__("pynvml")
        self.cards = cards

    def nvmlInit(self) -> None:  # noqa: N802 - its name
        """There is a driver."""

    def __getattr__(self, name: str) -> Any:
        if name not in _CALLS:
            raise AttributeError(name)

        def call(*arguments: Any) -> Any:
            try:
                found = _CALLS[name](self, *arguments)
            except LookupError:
                found = None
            if found is None:
                raise NVMLError
            return found

        return call


def _by_uuid(driver: Driver, uuid: bytes) -> Card | None:
    every = [each for card in driver.cards for each in (card, *card.slices)]
    return next((each for each in every if each.uuid.encode() == uuid), None)


_CALLS: dict[str, Any] = {
    "nvmlDeviceGetCount": lambda driver: len(driver.cards),
    "nvmlDeviceGetHandleByIndex": lambda driver, place: driver.cards[place],
    "nvmlDeviceGetHandleByUUID": _by_uuid,
    "nvmlDeviceGetUUID": lambda _, card: card.uuid,
    "nvmlDeviceGetName": lambda _, card: card.model,
    "nvmlDeviceGetPciInfo": lambda _, card: SimpleNamespace(busId=f"00000000:{card.bus:02X}:00.0"),
    "nvmlDeviceGetMemoryInfo": lambda _, card: SimpleNamespace(
        total=card.total, used=sum(held for _, held in card.running)
    ),
    "nvmlDeviceGetUtilizationRates": lambda _, card: (
        None if card.busy is None else SimpleNamespace(gpu=card.busy)
    ),
    "nvmlDeviceGetComputeRunningProcesses": lambda _, card: [
        SimpleNamespace(pid=pid, usedGpuMemory=held) for pid, held in card.running
    ],
    "nvmlDeviceGetTotalEnergyConsumption": lambda _, card: card.millijoules,
    "nvmlDeviceGetMaxMigDeviceCount": lambda _, card: 7 if "H100" in card.model else 0,
    "nvmlDeviceGetMigDeviceHandleByIndex": lambda _, card, place: card.slices[place],
}


def two_gpus() -> Driver:
    """A machine with a GPU of 80 GB and one of 40 GB."""
    return Driver(Card("GPU-a", bus=0x3B), Card("GPU-b", 40 * GB, "NVIDIA A100", bus=0xAF))


def h100_with_slices() -> Driver:
    """A machine with two H100, of which MIG divides the second one."""
    first = Card("MIG-1", 10 * GB, busy=None, running=((11, GB),))
    second = Card("MIG-2", 20 * GB, busy=None)
    return Driver(Card("GPU-a", busy=37), Card("GPU-b", slices=(first, second), busy=None))


def a100_and_v100() -> Driver:
    """A machine with two A100 and a V100, as the PCI buses order them."""
    return Driver(
        Card("GPU-v", 16 * GB, "Tesla V100", bus=0x1A),
        Card("GPU-a", 40 * GB, "NVIDIA A100", bus=0x3B),
        Card("GPU-b", 40 * GB, "NVIDIA A100", bus=0xAF),
    )
