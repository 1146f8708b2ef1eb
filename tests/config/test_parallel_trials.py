"""What carries a trial on several devices, and what is refused before the first trial."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hptune.config.parallel_trials import carrier_of
from hptune.config.settings import StudySettings
from hptune.core.resources import Resources
from hptune.errors import UsageError
from hptune.user_code.source import Found, ObjectiveSource, SourceKind

KERAS = Found(is_keras=True, space=(), constants={}, backend="jax")
TWO = Resources(processes=2)
FOUR_GPUS = Resources(gpus=4)


def settings(**asked: object) -> StudySettings:
    source = ObjectiveSource(SourceKind.FILE, "/model.py")
    return StudySettings(source=source, working_directory="/", **asked)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("backend", "resources", "words"),
    [
        ("jax", TWO, "2 processes, JAX DataParallel; the batch size is that of all 2 devices"),
        ("jax", FOUR_GPUS, "4 GPUs, JAX DataParallel; the batch size is that of all 4 devices"),
        ("jax", Resources(gpus=4, processes=2), "2 processes of 2 GPUs, JAX DataParallel; "),
        ("tensorflow", FOUR_GPUS, "4 GPUs, TensorFlow's MirroredStrategy; "),
        ("torch", TWO, "2 processes, PyTorch "),
    ],
)
def test_the_run_says_what_carries_a_trial(backend: str, resources: Resources, words: str) -> None:
    carrier = carrier_of(replace(KERAS, backend=backend), resources, settings())
    assert carrier.words.startswith(words)
    assert carrier.notes == (f"each trial trains on {carrier.words}",)


def test_a_trial_with_one_device_or_its_own_strategy_needs_none() -> None:
    for resources in (Resources(), Resources(gpus=1), Resources(gpus=0.5)):
        assert carrier_of(KERAS, resources, settings()).notes == ()
    assert carrier_of(replace(KERAS, is_keras=False), TWO, settings()).notes == ()
    assert carrier_of(KERAS, FOUR_GPUS, settings(strategy="none")).notes == ()


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        ("global", "the batch size is that of all 2 devices together (--batch-rule global)"),
        ("linear", "that of each device, and the learning rate rises to 2 times its value in 5 "),
        ("sqrt", "that of each device, and the learning rate rises to 1.41 times its value in 5 "),
    ],
)
def test_the_batch_rule_is_said(rule: str, words: str) -> None:
    assert words in carrier_of(KERAS, TWO, settings(batch_rule=rule)).words


def test_batch_statistics_of_parts_are_said_with_a_remedy() -> None:
    for backend, remedy in (("tensorflow", "synchronized=True"), ("torch", "KERAS_BACKEND=jax")):
        found = replace(KERAS, backend=backend, normalises_parts=True)
        (warning,) = carrier_of(found, TWO, settings()).warnings
        assert warning.startswith("BatchNormalization uses the statistics of each device's part")
        assert remedy in warning


@pytest.mark.parametrize(
    ("found", "resources", "asked", "said"),
    [
        (KERAS, TWO, {"strategy": "none"}, "leaves the 2 processes of a Keras trial without one"),
        (replace(KERAS, backend="torch"), FOUR_GPUS, {}, "use --processes-per-trial 4"),
        (
            replace(KERAS, backend="tensorflow"),
            Resources(gpus=4, processes=2),
            {},
            "a trial has 4 in 2; use --processes-per-trial 4",
        ),
        (replace(KERAS, calls_fit=False), TWO, {}, "fit() in the model file does not call model.f"),
    ],
)
def test_what_cannot_train_is_refused(
    found: Found, resources: Resources, asked: dict[str, object], said: str
) -> None:
    with pytest.raises(UsageError) as refused:
        carrier_of(found, resources, settings(**asked))
    assert said in str(refused.value)
