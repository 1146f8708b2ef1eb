"""Scaling curves: what is measured, what follows from it, and what noise hides."""

from __future__ import annotations

import doctest
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from hptune.core.step_request import check_divides
from hptune.errors import UsageError
from hptune.scaling import curve as curve_module
from hptune.scaling.curve import (
    Failure,
    Mode,
    Point,
    Range,
    Sample,
    ScalingCurve,
    points,
    read_curves,
    write_curves,
)
from hptune.scaling.page import scaling_panel, scaling_report
from hptune.scaling.rows import EfficientBatch, Side, efficient_batch, rows
from hptune.scaling.texts import scaling_json, scaling_text

BOTH = tuple(Mode)


def measured(
    step: Callable[[int, int], float], *, noise: float = 0.02, batch: int = 128, runs: int = 3
) -> ScalingCurve:
    """Return the curve of a model whose step takes `step(devices, batch_per_device)` seconds."""
    devices = (1, 2, 4)
    samples = [
        Sample(point, step(point.devices, point.batch_per_device) * (1 + noise * run), 20, 2**28)
        for run in range(runs)
        for point in points(devices, batch, BOTH)
    ]
    return ScalingCurve(
        backend="jax", device="core", batch=batch, devices=devices, samples=tuple(samples)
    )


def with_communication(seconds: float) -> Callable[[int, int], float]:
    """Return the step time of a model that exchanges gradients in some seconds."""
    return lambda devices, batch: 0.01 + 0.001 * batch + (seconds if devices > 1 else 0.0)


def test_doctests() -> None:
    assert not doctest.testmod(curve_module).failed


def test_rows_of_a_curve_give_throughput_efficiency_and_communication() -> None:
    curve = measured(with_communication(0.05), noise=0.0)
    found = {(row.mode, row.devices): row for row in rows(curve)}
    strong, weak = found[Mode.STRONG, 4], found[Mode.WEAK, 4]
    assert (strong.batch_per_device, weak.batch_per_device) == (32, 128)
    assert strong.samples_per_second is not None
    assert strong.samples_per_second.middle == pytest.approx(128 / 0.092)
    assert strong.speed_up is not None
    assert strong.speed_up.middle == pytest.approx(0.138 / 0.092)
    assert strong.efficiency is not None
    assert strong.efficiency.middle == pytest.approx(0.138 / 0.092 / 4)
    # Against a step of the same local batch that exchanges nothing.
    assert strong.communication is not None
    assert weak.communication is not None
    assert strong.communication.middle == pytest.approx(0.05 / 0.092)
    assert weak.communication.middle == pytest.approx(0.05 / 0.188)
    assert weak.efficiency is not None
    assert weak.efficiency.middle == pytest.approx(1 - weak.communication.middle)
    assert strong.is_distinguishable
    assert weak.memory_bytes == 2**28
    one = found[Mode.STRONG, 1]
    assert one.communication == Range(0, 0, 0, 3)
    assert strong.device_memory_bytes == 2**26, "that of all processes, divided"
    assert one.speed_up == Range(1, 1, 1, 3)


def test_communication_has_the_noise_of_both_steps() -> None:
    _, _, row = rows(measured(with_communication(0.05), noise=0.05), [Mode.WEAK])
    assert row.communication is not None
    # Runs take up to 10 % longer: 0.138 to 0.1518 seconds alone, 0.188 to 0.2068 together.
    assert row.communication.low == pytest.approx(1 - 0.1518 / 0.188)
    assert row.communication.high == pytest.approx(1 - 0.138 / 0.2068)


def test_what_the_noise_hides_is_not_concluded() -> None:
    # Two devices take 5 % less time a sample, and runs differ by up to 60 %.
    noisy = measured(lambda n, batch: 0.001 * batch * (1.0 if n == 1 else 0.95 * n), noise=0.3)
    text = scaling_text([noisy], modes=[Mode.WEAK])
    assert "not distinguishable from 1" in text
    assert "train" not in text
    assert all(not row.is_distinguishable for row in rows(noisy, [Mode.WEAK]))
    little = measured(lambda n, batch: 0.001 * batch * (1.0 if n == 1 else 1.05), noise=0.1)
    assert {row.communication for row in rows(little) if row.devices > 1} == {None}
    quiet = measured(lambda n, batch: 0.001 * batch, noise=0.001)
    assert "times as many samples a second as 1" in scaling_text([quiet], modes=[Mode.STRONG])
    # One run has an unknown noise, whatever it says.
    once = measured(lambda n, batch: 0.001 * batch / n, runs=1)
    assert "not distinguishable from 1" in scaling_text([once], modes=BOTH)
    assert efficient_batch(once, 0.8, 2) is None
    slower = measured(lambda n, batch: 0.001 * batch * n * n)
    text = scaling_text([slower], modes=[Mode.WEAK])
    assert "2, 4 devices are slower than 1" in text
    assert "2,089 (2,048 to 2,130)" in text  # milliseconds, without an exponent


def test_the_batch_at_which_efficiency_turns() -> None:
    # 0.01 + 0.001 b = 0.8 (0.01 + 0.001 b + 0.0125), so b = 40; measured at 32 and 128.
    found = efficient_batch(measured(with_communication(0.0125), noise=0.001), 0.8, 4)
    assert found == EfficientBatch(4, Side.WITHIN, 40)
    assert efficient_batch(measured(with_communication(0.001)), 0.8, 4) == EfficientBatch(
        4, Side.BELOW, 32
    )
    assert efficient_batch(measured(with_communication(1.0)), 0.8, 4) == EfficientBatch(
        4, Side.ABOVE, 128
    )
    assert efficient_batch(measured(with_communication(0.0125), noise=0.5), 0.8, 4) is None
    text = scaling_text([measured(with_communication(0.0125), noise=0.001)], modes=BOTH)
    assert "4 devices reach 80 % efficiency from about 40 samples on each on" in text
    plain = scaling_json([measured(with_communication(0.0125), noise=0.001)], modes=BOTH)
    assert plain["efficient_batches"][-1] == {
        "backend": "jax", "devices": 4, "side": "within", "batch_per_device": 40,
    }  # fmt: skip


def test_a_model_that_fits_no_single_device_is_compared_with_the_fewest_that_hold_it() -> None:
    whole = measured(with_communication(0.01))
    samples = tuple(each for each in whole.samples if each.point.devices > 1)
    lacking = Failure(Point(1, 128), "out of memory", is_too_large=True)
    curve = ScalingCurve(
        backend="jax", device="GPU", batch=128, devices=(1, 2, 4), samples=samples,
        failures=(lacking,),
    )  # fmt: skip
    one, two, four = rows(curve, [Mode.STRONG])
    assert one.failure == "out of memory"
    assert two.speed_up_relative_to == four.speed_up_relative_to == 2
    assert two.efficiency == Range(1, 1, 1, 3)
    assert two.communication is None, "nothing is known without one device"
    assert efficient_batch(curve, 0.8, 2) is None
    text = scaling_text([curve], modes=BOTH)
    assert "1 GPU, 128 samples each: out of memory" in text


def test_batches_that_do_not_divide_are_refused_with_some_that_do() -> None:
    check_divides(24, [1, 2, 4])
    with pytest.raises(UsageError, match=r"batch size is 30, .* 4 devices; use .*28 or 32"):
        check_divides(30, [1, 2, 4])
    with pytest.raises(UsageError, match="batch-size 12,"):
        check_divides(2, [3, 4])


def test_a_curve_is_kept_in_a_study_and_shown_in_reports(tmp_path: Path) -> None:
    curve = measured(with_communication(0.05))
    assert read_curves(tmp_path) == ()
    write_curves(tmp_path, [curve])
    assert read_curves(tmp_path) == (curve,)
    json.dumps(scaling_json([curve], modes=BOTH))
    panel = scaling_panel([curve])
    assert panel is not None
    assert len(panel.figures) == 6
    page, shown = (
        scaling_report([curve], modes=BOTH, efficiency=0.8, as_html=is_html)
        for is_html in (True, False)
    )
    for words in ("reach 80 % efficiency", "speed-up", "communication"):
        assert words in page
        assert words in shown
    (tmp_path / "scaling.json").write_text("[{}]")
    assert read_curves(tmp_path) == ()
