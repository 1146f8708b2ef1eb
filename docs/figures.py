"""Figures of the explanation pages, drawn by the code that they explain: `make figures`.

Their colours are CSS variables, so that a figure follows the light or dark theme of the reader.
"""

from __future__ import annotations

import io
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))  # simulated workers

from hptune.core.goals import Goals
from hptune.core.messages import Reported
from hptune.core.pruner import PrunerSettings
from hptune.core.resources import Amount
from hptune.core.space.space import FloatParameter, Scale, SearchSpace
from hptune.core.trial import Direction, Goal, Params, Trial, TrialState
from hptune.pruners.registry import make_pruner
from hptune.samplers.common.encoding import Encoding, Floats
from hptune.samplers.common.observations import History
from hptune.samplers.gp.acquisition import log_expected_improvement
from hptune.samplers.gp.kernel_features import KernelFeatures
from hptune.samplers.gp.sampler import BayesianSampler
from hptune.samplers.gp.surrogate import Surrogate, SurrogateFitter, standardised
from hptune.samplers.random_search import RandomSampler
from hptune.samplers.tpe.parzen_estimator import ParzenEstimator
from simulated import SimulatedExecutor
from simulated_parts import Curve, Needs, SimulatedWorker
from simulated_studies import Memory, play

FOLDER = Path(__file__).parent / "figures"
INK, FAINT, BLUE, ORANGE, PAPER = "#010101", "#020202", "#030303", "#040404", "#050505"
LIGHT = {INK: "#1f2328", FAINT: "#8a9099", BLUE: "#1a6fb5", ORANGE: "#b8500c", PAPER: "#ffffff"}
DARK = {INK: "#d6dae0", FAINT: "#858b95", BLUE: "#6db3f2", ORANGE: "#f0a05a", PAPER: "#131416"}
GOALS = Goals((Goal("loss", Direction.MIN),))
RATE = SearchSpace((FloatParameter("learning_rate", 1e-4, 1e-1, scale=Scale.LOG),))
GB = 10**9


def loss(params: Params) -> float:
    """A loss with two valleys, of which the right one is deeper."""
    x = np.log10(float(params["learning_rate"] or 0.0))
    return float(0.9 - 0.35 * np.exp(-8 * (x + 3.4) ** 2) - 0.7 * np.exp(-5 * (x + 2.0) ** 2))


def observed(rates: list[float]) -> tuple[Encoding, History, list[Trial]]:
    """Return complete trials at these rates, as a sampler learns them."""
    encoding = Encoding(RATE)
    history = History(encoding, directions=(Direction.MIN,))
    trials = []
    for number, rate in enumerate(rates):
        params = {"learning_rate": rate}
        trial = Trial(number, params, "", TrialState.COMPLETE, value=loss(params), step=1)
        history.tell(trial)
        trials.append(trial)
    return encoding, history, trials


def panels(rows: int, height: float) -> tuple[Figure, list[Any]]:
    """Return a figure with rows of axes that share x."""
    figure = Figure(figsize=(5.6, height), layout="constrained")
    made = figure.subplots(rows, 1, sharex=True, squeeze=False)[:, 0]
    return figure, list(made)


# The model of `--search bayesian`, on six trials.

SIX = [1.3e-4, 3.2e-4, 1.1e-3, 4e-3, 2.6e-2, 9e-2]
GRID = np.linspace(0.0, 1.0, 201)
GRID_RATES = 10 ** (-4 + 3 * GRID)


def fitted() -> tuple[Encoding, KernelFeatures, Surrogate, History, list[Trial]]:
    """Return the model of six trials, and what it is made of."""
    encoding, history, trials = observed(SIX)
    features = KernelFeatures(encoding)
    return (
        encoding,
        features,
        SurrogateFitter(features).fit(history.observations()),
        history,
        trials,
    )


def predicted(features: KernelFeatures, model: Surrogate) -> tuple[Floats, Floats, Floats]:
    """Return mean, standard deviation and expected improvement over the grid."""
    rows = GRID[:, None]
    mean, deviation = model.process.predict(features.features(rows, np.ones_like(rows, bool)))
    gain = np.exp(log_expected_improvement(mean, deviation, model.incumbent))
    return mean, deviation, gain


def next_rates(trials: list[Trial], count: int) -> list[float]:
    """Return the learning rates that the search proposes at once."""
    sampler = BayesianSampler(RATE, 1, directions=(Direction.MIN,))
    for trial in trials:
        sampler.tell(trial)
    asked = sampler.ask(range(len(trials), len(trials) + count))
    return [float(each.params["learning_rate"] or 0.0) for each in asked]


def draw_model(axes: Any, mean: Floats, deviation: Floats, trials: list[Trial]) -> None:
    """Draw mean, two standard deviations, and the trials."""
    targets = standardised(np.array([float(each.value or 0.0) for each in trials]))
    axes.fill_between(
        GRID_RATES, mean - 2 * deviation, mean + 2 * deviation, color=BLUE, alpha=0.18
    )
    axes.plot(GRID_RATES, mean, color=BLUE)
    axes.plot([t.params["learning_rate"] for t in trials], targets, "o", color=INK, markersize=5)
    axes.set(xscale="log", ylabel="loss (scaled)")


def model() -> Figure:
    """The Gaussian process after six trials, and where it expects the largest improvement."""
    _, features, surrogate, _, trials = fitted()
    mean, deviation, gain = predicted(features, surrogate)
    figure, (above, below) = panels(2, 4.2)
    draw_model(above, mean, deviation, trials)
    (rate,) = next_rates(trials, 1)
    below.fill_between(GRID_RATES, gain, color=ORANGE, alpha=0.25)
    below.plot(GRID_RATES, gain, color=ORANGE)
    below.set(xlabel="learning rate", ylabel="expected improvement", yticks=[])
    for axes in (above, below):
        axes.axvline(rate, color=ORANGE, linestyle="--")
    above.annotate("next trial", (rate, above.get_ylim()[1]), (6, -12), textcoords="offset points",
                   color=ORANGE)  # fmt: skip
    return figure


def batch() -> Figure:
    """Eight suggestions at once: the model after each, when it counts with its prediction."""
    encoding, features, surrogate, _, trials = fitted()
    rates = next_rates(trials, 8)
    figure, (above, below) = panels(2, 4.6)
    mean, deviation, _ = predicted(features, surrogate)
    draw_model(above, mean, deviation, trials)
    above.set_title("before", loc="left")
    for rate in rates:
        row = encoding.rows([{"learning_rate": rate}])
        (known,) = features.features(row, ~np.isnan(row))
        surrogate = surrogate.with_fantasy(known)
    mean, deviation, _ = predicted(features, surrogate)
    draw_model(below, mean, deviation, trials)
    below.set(xlabel="learning rate")
    below.set_title("while eight trials run", loc="left", pad=30)
    for place, number in enumerate(np.argsort(rates)):
        below.axvline(rates[number], color=ORANGE, linewidth=1, linestyle="--")
        below.text(rates[number], 1.0 + 0.12 * (place % 2), str(number + 1), color=ORANGE,
                   ha="center", transform=below.get_xaxis_transform())  # fmt: skip
    return figure


def tpe() -> Figure:
    """The two densities of TPE after forty random trials, and their ratio."""
    rng = np.random.default_rng(3)
    encoding, history, trials = observed(list(10 ** (-4 + 3 * rng.random(40))))
    seen = history.observations()
    ranked = np.argsort(seen.losses)
    best, rest = ranked[:4], ranked[4:]  # a tenth of them is good
    gains = seen.losses[rest[0]] - seen.losses[best]
    good = ParzenEstimator(encoding, seen.rows[best], gains / gains.mean())
    others = ParzenEstimator(encoding, seen.rows[rest], np.ones(len(rest)))
    rows = GRID[:, None]
    active = np.ones_like(rows, bool)
    figure, (top, above, below) = panels(3, 5.4)
    for chosen, colour, name in ((rest, FAINT, "others"), (best, BLUE, "best tenth")):
        at = [trials[i] for i in chosen]
        top.plot([t.params["learning_rate"] for t in at], [t.value for t in at], "o", color=colour,
                 markersize=5, label=name)  # fmt: skip
    top.set(xscale="log", ylabel="loss")
    top.legend(loc="lower left")
    for density, colour, name in ((good, BLUE, "l: of the best"), (others, FAINT, "g: of others")):
        above.plot(GRID_RATES, np.exp(density.log(rows, active)), color=colour, label=name)
    above.set(ylabel="density", yticks=[])
    above.legend(loc="upper left")
    ratio = np.exp(good.log(rows, active) - others.log(rows, active))
    below.fill_between(GRID_RATES, ratio, color=ORANGE, alpha=0.25)
    below.plot(GRID_RATES, ratio, color=ORANGE)
    below.set(xlabel="learning rate", ylabel="l / g", yticks=[])
    return figure


# Studies on simulated workers.


def training(params: Params, _seed: int) -> Curve:
    """A learning curve of 27 epochs; a small rate learns slowly."""
    rate = float(params["learning_rate"] or 0.0)
    speed = 0.08 + 0.5 * np.clip(np.log10(rate) + 4, 0, 2.2) / 2.2
    noise = np.random.default_rng(int(rate * 1e9)).normal(0.0, 0.012, 27)
    end = loss(params)
    return [{"loss": float(end + (1.6 - end) * np.exp(-speed * e) + noise[e - 1])}
            for e in range(1, 28)]  # fmt: skip


def rungs() -> Figure:
    """Forty trials with ASHA: most end at a rung."""
    settings = PrunerSettings(name="asha", epochs=27)
    executor = SimulatedExecutor(
        curve=training, seconds_per_epoch=lambda _params, _worker: 1.0, stop_seconds=0.0,
        workers=[SimulatedWorker(name=f"w{n}") for n in range(4)],
    )  # fmt: skip
    memory = Memory()
    played = play(
        executor, space=RATE, goals=GOALS, trials=40, epochs=27, pruner=settings, memory=memory,
        make_sampler=lambda space: RandomSampler(space, 5),
    )  # fmt: skip
    steps: dict[int, list[tuple[int, float]]] = {}
    for event in memory.events:
        if isinstance(event, Reported):
            value = event.report.metrics["loss"]
            steps.setdefault(event.attempt.trial, []).append((event.report.step, value))
    figure, (axes,) = panels(1, 3.6)
    for trial in played.engine.trials:
        x, y = zip(*steps[trial.number], strict=True)
        is_complete = trial.state is TrialState.COMPLETE
        axes.plot(x, y, color=BLUE if is_complete else FAINT, linewidth=1.6 if is_complete else 0.9,
                  marker="" if is_complete else "x", markevery=[-1], markersize=5)  # fmt: skip
    top = axes.get_ylim()[1]
    for rung in make_pruner(settings, GOALS.objectives).rungs:
        axes.axvline(rung, color=ORANGE, linestyle="--", linewidth=1)
        axes.text(rung + 0.2, top, f"epoch {rung}", color=ORANGE, va="top")
    axes.set(xlabel="epoch", ylabel="loss", xlim=(0.5, 27.5))
    return figure


def packing() -> Figure:
    """Which trials run when on one worker of four cores, as they are packed."""
    executor = SimulatedExecutor(
        curve=lambda _params, _seed: [{"loss": 1.0}] * 12,
        seconds_per_epoch=lambda params, _worker: 2.0 + 100 * float(params["learning_rate"] or 0.0),
        workers=[SimulatedWorker(name="w", cores=4, memory_bytes=24 * GB)],
        startup_seconds=1.0,
        needs=lambda _: Needs(memory_bytes=2 * GB, busy=0.2),
    )
    memory = Memory()
    play(
        executor, space=RATE, goals=GOALS, trials=60, memory=memory,
        measured=tuple(Amount), make_sampler=lambda space: RandomSampler(space, 1),
    )  # fmt: skip
    figure, (above, below) = panels(2, 4.4)
    attempts = sorted(memory.attempts.values(), key=lambda each: each.placed_at)
    begun = attempts[0].placed_at
    rows: list[float] = []
    for each in attempts:
        start, end = each.placed_at - begun, (each.ended_at or each.placed_at) - begun
        row = next((i for i, free in enumerate(rows) if free <= start), len(rows))
        rows[row : row + 1] = [end]
        above.barh(row, end - start, left=start, height=0.8, color=BLUE, edgecolor=PAPER)
    moments = np.linspace(0, max(rows), 600)
    held = np.array([[(e.placed_at - begun <= t) & (t < (e.ended_at or 0) - begun)
                      for e in attempts] for t in moments])  # fmt: skip
    below.plot(moments, held.sum(axis=1), color=BLUE, label="trials at once")
    below.axhline(4, color=FAINT, linestyle="--", label="cores")
    above.set(ylabel="trials, by place", yticks=[])
    below.set(xlabel="seconds", ylim=(0, None))
    below.legend(loc="lower center")
    return figure


# To SVG.

FIGURES: dict[str, Callable[[], Figure]] = {
    "model": model, "batch": batch, "tpe": tpe, "rungs": rungs, "packing": packing,
}  # fmt: skip
STYLE: dict[Any, Any] = {
    "svg.fonttype": "none", "svg.hashsalt": "hptune", "font.family": "sans-serif", "font.size": 10,
    "text.color": INK, "axes.labelcolor": INK, "axes.edgecolor": FAINT, "axes.facecolor": PAPER,
    "xtick.color": INK, "ytick.color": INK, "xtick.labelcolor": INK, "ytick.labelcolor": INK,
    "figure.facecolor": PAPER, "legend.frameon": False, "axes.spines.top": False,
    "axes.spines.right": False, "xtick.minor.visible": False, "axes.titlesize": 10,
}  # fmt: skip


def svg(figure: Figure) -> str:
    """Return a figure as SVG whose colours follow the reader's theme."""
    stream = io.StringIO()
    figure.savefig(stream, format="svg", metadata={"Date": None, "Creator": None})
    text = stream.getvalue()
    names = {colour: f"--c{number}" for number, colour in enumerate(LIGHT)}
    for colour, name in names.items():
        text = text.replace(colour, f"var({name})")

    def rules(theme: dict[str, str]) -> str:
        return "svg{" + ";".join(f"{names[each]}:{value}" for each, value in theme.items()) + "}"

    style = f"<style>{rules(LIGHT)}@media(prefers-color-scheme:dark){{{rules(DARK)}}}</style>"
    text = re.sub(r"(<svg\b[^>]*>)", rf"\1{style}", text, count=1)
    return re.sub(r"[ \t]+\n", "\n", text)


def main() -> None:
    """Write all figures."""
    FOLDER.mkdir(exist_ok=True)
    with mpl.rc_context(STYLE):
        for name, draw in FIGURES.items():
            (FOLDER / f"{name}.svg").write_text(svg(draw()))


if __name__ == "__main__":
    main()
