"""Step times of three models, measured by `hptune scaling`, for studies in virtual time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import linear_regression

DEVICES = (1, 2, 4, 8)


@dataclass(frozen=True, slots=True)
class MeasuredModel:
    """Step times of a model on one and on two devices.

    Attributes:
        batch: The global batch.
        alone: Seconds of a step on one device, by batch.
        on_two: Seconds of a step on two devices, each with half of the batch.
        fits_one: Whether one device holds the whole batch.
    """

    batch: int
    alone: Mapping[int, float]
    on_two: float
    fits_one: bool = True

    def seconds(self, devices: int) -> float:
        """Return the time of a step whose batch some devices divide.

        One and two devices were measured. For more, the machine had too few cores, so the time
        follows from those: A step without communication is linear in the batch of a device, by the
        batches that one device was measured with. The exchange between two devices takes what is
        measured beyond that. In a ring, each of n devices sends 2 (n - 1) / n times the gradient
        (Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms", 2009), so the exchange
        takes as many times the one between two.
        """
        if devices == 1:
            return self.alone[self.batch]
        if devices == 2:
            return self.on_two
        exchange = self.on_two - self.alone[self.batch // 2]
        line = linear_regression(list(self.alone), list(self.alone.values()))
        alone = line.intercept + line.slope * self.batch / devices
        return alone + exchange * 2 * (devices - 1) / devices


# Keras 3.15.1 on PyTorch 2.13, processes of one core each on a machine of two cores (AMD EPYC).
# Medians of three runs (of two for the small batch). The commands:
#
#   hptune scaling examples/cifar10_cnn.py --batch-size 256 …        with DATA=fashion
#   hptune scaling examples/digits_cnn.py …                          with its own batch
#   prlimit --data=1600000000 hptune scaling examples/digits_cnn.py --batch-size 32768 …
#   prlimit --data=1600000000 hptune scaling examples/digits_cnn.py --batch-size 16384 …
#
# each with --devices 1,2 --mode strong --compare torch. The limit of 1.6 GB for each process stands
# for the memory of a device: one process ran out of it, two did not.
_MODELS = {
    "scales well": MeasuredModel(256, {256: 1.055, 128: 0.514}, on_two=0.649),
    "scales badly": MeasuredModel(64, {64: 0.00655, 32: 0.00578}, on_two=0.01241),
    "does not fit one device": MeasuredModel(
        32768, {16384: 1.062, 8192: 0.464}, on_two=1.294, fits_one=False
    ),
}


def _relative(model: MeasuredModel) -> dict[int, float]:
    fewest, *more = DEVICES if model.fits_one else DEVICES[1:]
    base = model.seconds(fewest)
    return {fewest: 1.0, **{devices: model.seconds(devices) / base for devices in more}}


CURVES = {name: _relative(model) for name, model in _MODELS.items()}
"""Time of a step relative to the fewest devices that hold the batch, by their number."""
