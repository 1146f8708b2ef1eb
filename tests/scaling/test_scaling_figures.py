"""The figures on how a model scales."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from browser import browser
from hptune.scaling.curve import Mode, Sample, ScalingCurve, points
from hptune.scaling.page import scaling_panel, scaling_report

FIVE = [
    "Samples a second", "Speed-up", "Efficiency, %", "Communication, % of a step",
    "Memory of each core, MB",
]  # fmt: skip


def curve(
    backend: str, step: Callable[[int, int], float], *, noise: float = 0.001, batch: int = 128
) -> ScalingCurve:
    """Return the curve of a model whose step takes `step(devices, batch_per_device)` seconds."""
    devices = (1, 2, 4)
    samples = [
        Sample(each, step(each.devices, each.batch_per_device) * (1 + noise * run), 20, 2**28)
        for run in range(3)
        for each in points(devices, batch, tuple(Mode))
    ]
    return ScalingCurve(
        backend=backend, device="core", batch=batch, devices=devices, samples=tuple(samples)
    )


def quiet(devices: int, batch: int) -> float:
    return 0.01 + 0.001 * batch + (0.0125 if devices > 1 else 0.0)


def figures(*curves: ScalingCurve, modes: tuple[Mode, ...] = tuple(Mode)) -> dict[str, Any]:
    panel = scaling_panel(curves, modes=modes)
    assert panel is not None
    return {str(each.given["title"]): each.given for each in panel.figures}


def labels(figure: Any) -> list[str]:
    return [each["name"] for each in figure["series"]]


def devices(figure: Any) -> list[float]:
    return sorted({mark[0] for each in figure["series"] for mark in each["at"]})


def dots(figure: Any) -> list[list[list[Any]]]:
    """The points of each line: where, middle, low, high, whether it is a ring, and its text."""
    return [[mark for mark in each["at"] if mark[1] is not None] for each in figure["series"]]


def test_each_figure_names_its_lines_and_shows_their_spread() -> None:
    found = figures(curve("jax", quiet, noise=0.01))
    assert list(found) == [*FIVE, "Efficiency by batch, %"]
    for title in FIVE:
        assert labels(found[title]) == ["strong", "weak"], title
        assert devices(found[title]) == [1, 2, 4]
    spread = [high - low for _, _, low, high, *_ in dots(found["Efficiency, %"])[0]]
    assert spread[0] == 0 < min(spread[1:])
    assert [y for _, y in found["Speed-up"]["reference"]] == [1, 2, 4]
    shares = dots(found["Communication, % of a step"])[0]
    assert shares[0][1] == 0.0
    assert shares[2][-1] == "22.9 (21.4 to 24.4)"  # 12.5 of 54.5 ms


def test_efficiency_is_shown_over_the_batch_of_each_device() -> None:
    figure = figures(curve("jax", quiet))["Efficiency by batch, %"]
    assert labels(figure) == ["2 cores", "4 cores"]
    assert devices(figure) == [32, 64, 128]
    assert {y for _, y in figure["reference"]} == {80.0}


def test_what_the_noise_hides_is_a_ring_or_missing() -> None:
    noisy = curve("jax", lambda _, batch: 0.001 * batch, noise=0.9)
    found = figures(noisy, curve("torch", quiet), modes=(Mode.STRONG,))
    assert [is_ring for *_, is_ring, _ in dots(found["Speed-up"])[0]] == [False, True, False]
    assert labels(found["Communication, % of a step"]) == ["jax", "torch"]
    unknown, known = dots(found["Communication, % of a step"])
    assert ([at[0] for at in unknown], [at[0] for at in known]) == ([1], [1, 2, 4])


def test_what_was_not_measured_is_not_shown() -> None:
    both = curve("jax", quiet)
    # As a study that chooses the devices of its trials measures: the model's own batch, divided.
    strong = replace(both, samples=tuple(each for each in both.samples if each.point.batch == 128))
    panel = scaling_panel([strong])
    assert panel is not None
    assert {row[1] for row in panel.tables[1].rows} == {"strong"}
    assert [each.given["title"] for each in panel.figures] == [*FIVE[:3], *FIVE[4:]]
    one = replace(strong, devices=(1,))
    panel = scaling_panel([one])
    assert panel is not None
    assert not panel.figures
    assert "Pale" not in panel.words
    assert len(panel.tables[1].rows) == 1


def test_backends_are_compared_in_one_figure(tmp_path: Path) -> None:
    both = [curve("jax", quiet), curve("torch", lambda n, batch: 2 * quiet(n, batch))]
    found = figures(*both)
    assert list(found) == [*FIVE, *(f"Efficiency by batch, %, {each.backend}" for each in both)]
    assert labels(found[FIVE[0]]) == ["jax strong", "jax weak", "torch strong", "torch weak"]
    assert labels(figures(*both, modes=(Mode.WEAK,))[FIVE[0]]) == ["jax", "torch"]
    file = tmp_path / "report.html"
    page = scaling_report(both, modes=tuple(Mode), efficiency=0.8, as_html=True)
    file.write_text(page, encoding="utf-8")
    with browser(width=390, dark=True) as seen:
        seen.open(file)
        assert seen.points("scaling") == 2 * 2 * 5 * 3 + 2 * (2 + 2)
        for width in (390, 1200):
            seen.page.set_viewport_size({"width": width, "height": 900})
            seen.page.wait_for_function("document.documentElement.scrollWidth <= innerWidth")
        # Three in a row on a wide page.
        boxes = [each.bounding_box() for each in seen.page.locator(".figure").all()[:4]]
        tops = [box["y"] for box in boxes if box is not None]
        assert tops[0] == tops[2] < tops[3]
        assert seen.complaints == []
