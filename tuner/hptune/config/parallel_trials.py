"""Trials on several devices: what carries them, as the user's code and settings allow."""

from __future__ import annotations

from dataclasses import dataclass

from ..core.data_parallel import BatchRule, StrategyChoice
from ..core.resources import Resources
from ..core.spelling import plural
from ..errors import UsageError
from ..user_code.source import Found
from .settings import StudySettings

_CARRIERS = {
    ("jax", False): "JAX DataParallel",
    ("jax", True): "JAX DataParallel",
    ("tensorflow", False): "TensorFlow's MirroredStrategy",
    ("tensorflow", True): "TensorFlow over processes",
    ("torch", True): "PyTorch with averaged gradients",
}
"""What carries a Keras model's trial, by backend and whether it has several processes."""


@dataclass(frozen=True, slots=True)
class Carrier:
    """What trains a study's Keras models on several devices.

    Attributes:
        words: What it is, and what the batch size means; empty for one device.
        warnings: Lines for the user.
    """

    words: str = ""
    warnings: tuple[str, ...] = ()

    @property
    def notes(self) -> tuple[str, ...]:
        """Lines for the user before the first trial."""
        return (f"each trial trains on {self.words}", *self.warnings) if self.words else ()


def check_splits(found: Found, settings: StudySettings) -> None:
    """Check that trials can train on several devices.

    Raises:
        UsageError: The user's code cannot be measured or divided.
    """
    if not settings.chooses_split:
        return
    if not found.is_keras:
        raise UsageError(
            f"{found.entry}(hp, trial) trains with a loop of its own, whose steps hptune cannot "
            "measure; give a number instead of auto, such as --processes-per-trial 2"
        )
    carrier_of(found, Resources(processes=2), settings)


def carrier_of(found: Found, resources: Resources, settings: StudySettings) -> Carrier:
    """Return what trains the user's model on these devices, if hptune has to see to that.

    Raises:
        UsageError: Nothing can train it; says what can.
    """
    processes, gpus = resources.processes, int(resources.gpus or 0)
    devices = max(processes, gpus)
    if not found.is_keras or devices == 1:
        return Carrier()
    if settings.strategy is StrategyChoice.NONE and processes == 1:
        return Carrier()
    _check(found, processes, gpus, settings)
    words = f"{processes} processes" if processes > 1 else f"{gpus} GPUs"
    if processes > 1 and gpus > processes:
        words += f" of {gpus // processes} GPUs"
    carrier = _CARRIERS[found.backend, processes > 1]
    warnings = []
    if found.normalises_parts:
        remedy = (
            "BatchNormalization(synchronized=True) uses those of the whole batch"
            if found.backend == "tensorflow"
            else "KERAS_BACKEND=jax uses those of the whole batch"
        )
        warnings.append(
            "BatchNormalization uses the statistics of each device's part of a batch, so results "
            f"differ from one device; {remedy}"
        )
    return Carrier(f"{words}, {carrier}; {_rule_text(settings, devices)}", tuple(warnings))


def _rule_text(settings: StudySettings, devices: int) -> str:
    """Return what the batch size means, in words."""
    if settings.batch_rule is BatchRule.GLOBAL:
        return f"the batch size is that of all {devices} devices together (--batch-rule global)"
    factor = settings.batch_rule.factor(devices)
    return (
        f"the batch size is that of each device, and the learning rate rises to {factor:.3g} times "
        f"its value in {plural(settings.warm_up_epochs, 'epoch')} (--batch-rule "
        f"{settings.batch_rule})"
    )


def _check(found: Found, processes: int, gpus: int, settings: StudySettings) -> None:
    if settings.strategy is StrategyChoice.NONE:
        raise UsageError(
            f"--strategy none leaves the {processes} processes of a Keras trial without one; use "
            "--strategy data-parallel, or write objective(hp, trial)"
        )
    if not found.calls_fit:
        raise UsageError(
            f"a trial has {max(processes, gpus)} devices, but fit() in the model file does not "
            "call model.fit, so nothing divides its batches; call model.fit, use "
            "objective(hp, trial) with trial.rank, or --strategy none with one process"
        )
    is_known = (found.backend, processes > 1) in _CARRIERS
    several_in_each = found.backend != "jax" and gpus > processes > 1
    if not is_known or several_in_each:
        raise UsageError(
            f"Keras on {found.backend} trains on one GPU in each of several processes, and a "
            f"trial has {gpus} in {processes}; use --processes-per-trial {gpus}"
        )
