"""Searches that learn from earlier studies: trials that they save, and lose if these mislead.

    .venv-peers/bin/python benchmarks/search_with_memory.py --data DIR [--searches bayesian,tpe]

See benchmarks/README.md for what is measured and how.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[_variable] = "1"  # before numpy is loaded
HERE = Path(__file__).parent
sys.path.insert(
    0, str(HERE.parent / "tuner")
)  # the peers' environment does not have the project installed

import numpy as np
from numpy.typing import NDArray
from quality import opponents, problems

from hptune.core.sampler import Sampler
from hptune.core.space.earlier_study import EarlierStudy, EarlierTrial
from hptune.core.space.space import SearchSpace
from hptune.core.trial import Direction, Params, Suggestion, Trial, TrialState
from hptune.samplers.registry import SamplerOptions, make_sampler

_RNN = "FixedTextRNNClassification_imdb_patch"
FAMILIES: Mapping[str, tuple[str, ...]] = {
    "lcbench": (
        *("3945", "7593", "34539", "126025", "146212", "167104", "167149", "167152", "167161"),
        *("167168", "167181", "167184", "167185", "167190", "168329", "168330", "168908"),
        *("189862", "189865", "189906", "189909"),
    ),
    "rbv2_xgboost": (
        *("16", "40923", "41143", "470", "1487", "40499", "40966", "41164", "1497", "40975"),
        *("1461", "41278", "11", "54", "300", "40984", "31", "1067", "1590", "1501"),
    ),
    "taskset": (
        f"{_RNN}128_LSTM128_avg_bs64",
        f"{_RNN}128_LSTM128_bs64",
        f"{_RNN}32_GRU128_bs128",
        f"{_RNN}32_IRNN64_relu_last_bs128",
        f"{_RNN}32_VRNN64_relu_avg_bs128",
    ),
    "hpobench": ("australian", "credit_g", "vehicle"),
    "hpolib": ("protein_structure", "slice_localization"),
}
"""Tasks with the same space, and other data or another network."""

TARGETS: Mapping[str, tuple[str, ...]] = {
    "development": (
        *("lcbench-189906", "lcbench-167168", "lcbench-3945"),
        *("rbv2_xgboost-1501", "rbv2_xgboost-16", "rbv2_xgboost-40966"),
        *(f"taskset-{FAMILIES['taskset'][i]}" for i in (0, 2)),
        "hpobench-vehicle",
    ),
    "judging": (
        *("lcbench-7593", "lcbench-167185", "lcbench-168330", "lcbench-189865"),
        *("rbv2_xgboost-40923", "rbv2_xgboost-1487", "rbv2_xgboost-40984", "rbv2_xgboost-1590"),
        *(f"taskset-{FAMILIES['taskset'][i]}" for i in (1, 3, 4)),
        *("hpobench-australian", "hpobench-credit_g"),
        *("hpolib-protein_structure", "hpolib-slice_localization"),
    ),
}
"""Tasks that are searched after the earlier studies; the second set was never developed on."""

NONE = "none"
KINDS = {
    "same": "a study of the same task, with another seed",
    "family": "one to three studies of other tasks of the family",
    "negated": "a study of the same task, with all values negated",
    "unrelated": "a study of a random bowl in the same space",
}
"""What the earlier studies are of."""

EARLIER_TRIALS = 50
TRIALS = 25
COLD_TRIALS = 40
"""Trials without a memory: how many trials a memory saves is read off their curve."""
FIRST_SEED = 3000
_FIRST = ":first"
_RESAMPLES = 500
_REFERENCE_DRAWS = 20_000

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Run:
    """One search on one problem.

    Attributes:
        search: The search, with `:first` if it only tries the best trial of each study first.
        version: Fingerprint of the code.
        kind: One of `KINDS`, or `NONE`.
        problem: The problem's name.
        seed: The seed.
        best: The best value after each trial.
        cpu_seconds: CPU time of `ask` and `tell`, for each trial.
    """

    search: str
    version: str
    kind: str
    problem: str
    seed: int
    best: tuple[float, ...] = ()
    cpu_seconds: float = 0.0

    @property
    def key(self) -> tuple[str, str, str, str, int]:
        """Identity of the run: a second one with the same key is not needed."""
        return (self.search, self.version, self.kind, self.problem, self.seed)


def searched(
    sampler: Sampler, function: Callable[[Params], float], trials: int
) -> tuple[list[EarlierTrial], float]:
    """Return the trials of a search, one after the other, and its CPU time in seconds."""
    done: list[EarlierTrial] = []
    spent = 0.0
    for number in range(trials):
        begin = time.process_time()
        (asked,) = sampler.ask([number])
        _tell(sampler, number, asked, TrialState.WAITING, None)
        spent += time.process_time() - begin
        value = function(asked.params)
        begin = time.process_time()
        _tell(sampler, number, asked, TrialState.COMPLETE, value)
        spent += time.process_time() - begin
        done.append(EarlierTrial(asked.params, value))
    return done, spent


def _tell(
    sampler: Sampler, number: int, asked: Suggestion, state: TrialState, value: float | None
) -> None:
    sampler.tell(Trial(number, asked.params, asked.origin, state, value=value))


class Tasks:
    """The problems, and the studies that came before.

    Args:
        data: The folder of the problems.
        folder: Where studies and references are kept once they were computed.
    """

    def __init__(self, data: Path, folder: Path) -> None:
        self._problems = problems.load(data)
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def space(self, problem: str) -> SearchSpace:
        """Return a problem's space."""
        return problems.space_of(self._problems.get(problem))

    def function(self, problem: str) -> Callable[[Params], float]:
        """Return a problem's function, to be minimised."""
        given = self._problems.get(problem)
        return lambda params: float(given(dict(params)))

    def studies(self, kind: str, problem: str, seed: int) -> list[EarlierStudy]:
        """Return the earlier studies of this kind for a search on a problem."""
        if kind == NONE:
            return []
        if kind == "same":
            return [self._study("family", problem, seed % 2)]
        if kind != "family":
            return [self._study(kind, problem, seed)]
        family, _, own = problem.partition("-")
        others = [f"{family}-{name}" for name in FAMILIES[family] if name != own]
        drawn = np.random.default_rng([seed, len(problem)]).permutation(others).tolist()
        return [self._study(kind, name, seed % 2) for name in drawn[: 1 + seed % 3]]

    def _study(self, kind: str, problem: str, seed: int) -> EarlierStudy:
        path = self._folder / f"{kind}-{problem}-{seed}.json"
        if not path.exists():
            space, own = self.space(problem), self.function(problem)
            function = {
                "family": own,
                "negated": lambda params: -own(params),
                "unrelated": _bowl(space, seed),
            }[kind]
            options = SamplerOptions(space=space, seed=7000 + seed, directions=(Direction.MIN,))
            trials, _ = searched(make_sampler("bayesian", options), function, EARLIER_TRIALS)
            study = EarlierStudy(path.stem, Direction.MIN, is_same_metric=True, trials=trials)
            path.write_text(json.dumps(study.to_json()))
        return EarlierStudy.from_json(json.loads(path.read_text()))

    def reference(self, problem: str, runs: Sequence[Run]) -> tuple[float, float]:
        """Return the best known value and the median of a random draw."""
        given = self._problems.get(problem)
        low, median = given.fmin, given.fmed
        if low is None or median is None:
            path = self._folder / f"reference-{problem}.json"
            if not path.exists():
                space, rng = self.space(problem), np.random.default_rng(0)
                function = self.function(problem)
                values = [function(space.sample(rng)) for _ in range(_REFERENCE_DRAWS)]
                path.write_text(json.dumps([min(values), float(np.median(values))]))
            low, median = json.loads(path.read_text())
            low = min([low, *(run.best[-1] for run in runs if run.problem == problem)])
        return low, median


def _bowl(space: SearchSpace, seed: int) -> Callable[[Params], float]:
    """Return a bowl with a random centre and weight in each parameter."""
    drawn = np.random.default_rng(seed).random((len(space), 2)).tolist()

    def function(params: Params) -> float:
        return math.fsum(
            weight * (parameter.to_unit(params[parameter.name]) - centre) ** 2
            for parameter, (centre, weight) in zip(space, drawn, strict=True)
            if parameter.name in params
        )

    return function


def done(run: Run, tasks: Tasks) -> Run:
    """Return the run with its result."""
    name, is_first = run.search.removesuffix(_FIRST), run.search.endswith(_FIRST)
    space = tasks.space(run.problem)
    studies = tasks.studies(run.kind, run.problem, run.seed)
    points = [params for each in studies if (params := each.best_within(space)) is not None]
    options = SamplerOptions(
        space=space,
        seed=run.seed,
        directions=(Direction.MIN,),
        studies=() if is_first else studies,
        start_points=points if is_first else (),
    )
    count = COLD_TRIALS if run.kind == NONE else TRIALS
    trials, spent = searched(make_sampler(name, options), tasks.function(run.problem), count)
    best = np.minimum.accumulate([trial.value for trial in trials])
    return Run(*run.key, tuple(best.tolist()), round(spent / count, 5))


# --- figures -------------------------------------------------------------------------------------


def first_at(curve: Floats, goal: float) -> float:
    """Return the trial, from 1, at which a falling curve reaches a goal; its length + 1 if never.

    Between two trials it is interpolated.
    """
    if curve[-1] > goal:
        return len(curve) + 1.0
    after = int((curve <= goal).argmax())
    if after == 0:
        return 1.0
    above, below = float(curve[after - 1]), float(curve[after])
    return after + (above - goal) / (above - below)


def figures(cold: Floats, warm: Floats) -> tuple[float, ...]:
    """Return trials to the goal, trials lost and differences of the scores @5, @10, @15, @25.

    Args:
        cold: Mean scores without a memory (trials).
        warm: The same with one.
    """
    return (
        first_at(warm, float(cold[TRIALS - 1])),
        TRIALS - first_at(cold, float(warm[TRIALS - 1])),
        *(float(warm[at - 1] - cold[at - 1]) for at in (5, 10, 15, 25)),
    )


Curves = Sequence[Floats]  # of each problem: seeds x trials


def with_intervals(cold: Curves, warm: Curves) -> list[tuple[float, float, float]]:
    """Return `figures` with bootstrap 95 % intervals: problems and their seeds are resampled."""
    rng = np.random.default_rng(0)

    def mean(curves: Curves, chosen: Sequence[int], *, resample: bool) -> Floats:
        found = [curves[i] for i in chosen]
        if resample:
            found = [each[rng.integers(len(each), size=len(each))] for each in found]
        means: Floats = np.mean([each.mean(axis=0) for each in found], axis=0)
        return means

    every = range(len(cold))
    value = figures(mean(cold, every, resample=False), mean(warm, every, resample=False))
    sampled = []
    for _ in range(_RESAMPLES):
        chosen = rng.integers(len(cold), size=len(cold)).tolist()
        sampled.append(
            figures(mean(cold, chosen, resample=True), mean(warm, chosen, resample=True))
        )
    low, high = np.quantile(sampled, (0.025, 0.975), axis=0)
    return list(zip(value, low.tolist(), high.tolist(), strict=True))


def table(runs: Sequence[Run], references: Mapping[str, tuple[float, float]]) -> str:
    """Return the figures as Markdown."""
    curves: dict[tuple[str, str], dict[str, list[Floats]]] = {}
    cpu: dict[tuple[str, str], list[float]] = {}
    for run in runs:
        low, median = references[run.problem]
        regret = np.maximum((np.array(run.best) - low) / (median - low), 1e-300)
        scores = np.maximum(np.log10(regret), problems.LEAST_SCORE)
        way = run.search, run.kind
        curves.setdefault(way, {}).setdefault(run.problem, []).append(scores)
        cpu.setdefault(way, []).append(run.cpu_seconds)
    head = ("search", "earlier studies", "runs", "trials to the value", "trials lost")
    heads = (*head, "score @5", "@10", "@15", "@25", "CPU ms per trial")
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for way in curves:
        search, kind = way
        if kind == NONE:
            continue
        cold = curves[search.removesuffix(_FIRST), NONE]
        found = with_intervals(
            [np.array(cold[problem]) for problem in references],
            [np.array(curves[way][problem]) for problem in references],
        )
        forms = (*("{:.1f} ({:.1f} to {:.1f})",) * 2, *("{:+.2f} ({:+.2f} to {:+.2f})",) * 4)
        cells = [form.format(*each) for form, each in zip(forms, found, strict=True)]
        cells.append(f"{1000 * float(np.mean(cpu[way])):.1f}")
        lines.append(f"| {search} | {kind} | {len(cpu[way])} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> None:
    options = _options()
    tasks = Tasks(options.data, options.out / "studies")
    file = options.out / "runs.jsonl"
    known = {run.key: run for run in _read(file)}
    names = TARGETS[options.problems]
    runs: list[Run] = []
    with file.open("a") as out:
        # Seed by seed, so that an interrupted run has compared everything with everything.
        for seed, search, kind, name in itertools.product(
            range(options.seeds), options.searches, (NONE, *options.kinds), names
        ):
            if kind == NONE and search.endswith(_FIRST):
                continue
            version = opponents.version(search.removesuffix(_FIRST))
            run = Run(search, version, kind, name, FIRST_SEED + seed)
            if run.key not in known:
                known[run.key] = done(run, tasks)
                out.write(json.dumps(asdict(known[run.key])) + "\n")
                out.flush()
            runs.append(known[run.key])
    print(table(runs, {name: tasks.reference(name, runs) for name in names}))


def _read(path: Path) -> list[Run]:
    if not path.exists():
        return []
    lines = map(json.loads, path.read_text().splitlines())
    return [Run(**{**line, "best": tuple(line["best"])}) for line in lines]


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)

    def listed(text: str) -> list[str]:
        return text.split(",")

    parser.add_argument("--data", type=Path, required=True, help="folder of the problems")
    parser.add_argument(
        "--searches",
        type=listed,
        default=["bayesian", "tpe"],
        help=f"searches; NAME{_FIRST} only tries the best trial of each earlier study first",
    )
    parser.add_argument("--problems", choices=list(TARGETS), default="judging")
    parser.add_argument("--kinds", type=listed, default=list(KINDS), help=", ".join(KINDS))
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--out", type=Path, default=HERE / "results" / "search_with_memory")
    return parser.parse_args()


if __name__ == "__main__":
    main()
