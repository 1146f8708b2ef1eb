"""The figures on how a model scales."""

from __future__ import annotations

import doctest
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from browser import browser
from hptune.scaling import line_figures
from hptune.scaling.curve import Sample, ScalingCurve
from hptune.scaling.page import scaling_page, scaling_panel
from hptune.scaling.points import Mode, points

SIX = [
    "Samples a second", "Speed-up", "Efficiency, %", "Communication, % of a step",
    "Memory of each core, MB", "Time of a step, ms",
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
    return {each.title.text: each for each in panel.figures}


def glyphs(figure: Any, kind: str) -> list[Any]:
    return [each for each in figure.renderers if type(each.glyph).__name__ == kind]


def labels(figure: Any) -> list[str]:
    return [each.data_source.data["text"][0] for each in glyphs(figure, "Text")]


def test_doctests() -> None:
    assert not doctest.testmod(line_figures).failed


def test_each_figure_names_its_lines_and_shows_their_spread() -> None:
    found = figures(curve("jax", quiet, noise=0.01))
    assert list(found) == [*SIX[:5], "Efficiency by batch, %"]
    for title in SIX[:5]:
        assert {"strong", "weak"} <= set(labels(found[title])), title
        assert found[title].xaxis[0].ticker.ticks == [1, 2, 4]
        assert not found[title].legend
    assert "ideal" in labels(found["Speed-up"])
    (strong, _) = glyphs(found["Efficiency, %"], "Segment")
    ends = strong.data_source.data
    spread = [high - low for low, high in zip(ends["y0"], ends["y1"], strict=True)]
    assert spread[0] == 0 < min(spread[1:])
    dots = glyphs(found["Communication, % of a step"], "Scatter")[0].data_source.data
    assert dots["y"][0] == 0.0
    assert dots["shown"][2] == "22.9 (21.4 to 24.4)"  # 12.5 of 54.5 ms


def test_the_batch_at_which_efficiency_turns_is_marked() -> None:
    figure = figures(curve("jax", quiet))["Efficiency by batch, %"]
    # 80 % from 40 samples on each of 4 cores; 2 cores reach it at all batches measured.
    assert labels(figure) == ["40", "2 cores", "4 cores"]
    assert figure.xaxis[0].ticker.ticks == [32, 64, 128]


def test_what_the_noise_hides_is_a_ring_or_a_question_mark() -> None:
    noisy = curve("jax", lambda _, batch: 0.001 * batch, noise=0.9)
    found = figures(noisy, curve("torch", quiet), modes=(Mode.STRONG,))
    dots, _ = glyphs(found["Speed-up"], "Scatter")
    assert dots.data_source.data["fill"] == [1.0, 0.0, 1.0]
    assert labels(found["Communication, % of a step"]) == ["jax ?", "torch"]
    dots, _ = glyphs(found["Communication, % of a step"], "Scatter")
    assert list(dots.data_source.data["x"]) == [1]


def test_what_was_not_measured_is_not_shown() -> None:
    both = curve("jax", quiet)
    # As a study that chooses the devices of its trials measures: the model's own batch, divided.
    strong = replace(both, samples=tuple(each for each in both.samples if each.point.batch == 128))
    panel = scaling_panel([strong])
    assert panel is not None
    assert {row[1] for row in panel.tables[1].rows} == {"strong"}
    assert [each.title.text for each in panel.figures] == [*SIX[:3], *SIX[4:]]
    one = replace(strong, devices=(1,))
    panel = scaling_panel([one])
    assert panel is not None
    assert not panel.figures
    assert "Pale" not in panel.words
    assert len(panel.tables[1].rows) == 1


def test_backends_are_compared_within_a_mode(tmp_path: Path) -> None:
    both = [curve("jax", quiet), curve("torch", lambda n, batch: 2 * quiet(n, batch))]
    found = figures(*both)
    of_mode = [f"{title}, {mode}" for mode in Mode for title in SIX]
    by_batch = [f"Efficiency by batch, %, {each.backend}" for each in both]
    assert list(found) == [*of_mode, *by_batch]
    assert labels(found["Samples a second, weak"]) == ["torch", "jax"]
    assert list(figures(*both, modes=(Mode.WEAK,)))[:6] == SIX
    panel = scaling_panel(both)
    assert panel is not None
    file = tmp_path / "report.html"
    file.write_text(scaling_page("scaling", [], panel), encoding="utf-8")
    with browser(width=390, dark=True) as seen:
        seen.open(file)
        assert seen.points("scaling") == 2 * 2 * 6 * 3 + 2 * (2 + 2)
        for width in (390, 1200):
            seen.page.set_viewport_size({"width": width, "height": 900})
            assert seen.page.evaluate("document.documentElement.scrollWidth") == width
        # Three in a row on a wide page.
        boxes = [each.bounding_box() for each in seen.page.locator(".figure").all()[:4]]
        tops = [box["y"] for box in boxes if box is not None]
        assert tops[0] == tops[2] < tops[3]
        assert seen.complaints == []
