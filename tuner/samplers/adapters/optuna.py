"""Optuna's samplers behind the contract of ours."""

from __future__ import annotations

import contextlib
import copy
import difflib
import importlib.util
import inspect
import math
import warnings
from collections.abc import Hashable, Iterator, Mapping, Sequence
from types import ModuleType
from typing import Any

import numpy as np

from ...core.sampler import Sampler
from ...core.seeds import Purpose, generator
from ...core.space.enumeration import is_open
from ...core.space.space import SearchSpace
from ...core.trial import Direction, Params, ParamValue, Suggestion, Trial, TrialState
from ...errors import UsageError
from ..common.encoding import Column, Encoding
from ..common.untried import Keyed, Untried

_TRIES = 4
_FORGETFUL = ("TPESampler", "GPSampler", "RandomSampler")
"""These look at the trials alone; the others leave notes in the study, which they go on from."""
_NEEDS = {"GPSampler": "torch", "CmaEsSampler": "cmaes"}
_UNFIT = ("BruteForceSampler", "GridSampler", "PartialFixedSampler")
_FOR_SEVERAL = (
    *("TPESampler", "NSGAIISampler", "NSGAIIISampler", "GPSampler", "RandomSampler", "QMCSampler"),
)
"""Those that take several objectives."""


class OptunaSampler(Sampler):
    """Asks one of Optuna's samplers, made anew with its own settings, about a study in memory.

    - Each declaration is a parameter of its own: words and truth values are categories, steps and
      ordered choices are numbered, all others are positions on their own scale. Suggestions are
      asked for one by one, as conditions open them.
    - Trials that run are RUNNING in the study, FAILED ones FAIL, PRUNED ones PRUNED with their
      last value (with several objectives, where Optuna takes no reports, without one).
    - What it proposes again is asked for anew some times, and then drawn at random.
    - Most samplers need no more than these trials. Those that keep notes in the study, such as
      CMA-ES, are led through the whole history by trial number, so that they have them again.

    Args:
        space: What to search.
        seed: The study's seed.
        direction: Which values are better.
        name: The sampler's name in `optuna.samplers`.
        extra_directions: Which values are better of the objectives after the first.

    Raises:
        UsageError: Optuna or what the sampler needs is not installed, there is no such sampler,
            or it takes one objective only.
    """

    def __init__(
        self,
        space: SearchSpace,
        seed: int,
        *,
        direction: Direction,
        name: str,
        extra_directions: Sequence[Direction] = (),
    ) -> None:
        self._optuna = _optuna()
        self._class = _sampler_class(self._optuna, name)
        if extra_directions and name not in _FOR_SEVERAL:
            raise UsageError(
                f"Optuna's {name} takes one objective, and there are {1 + len(extra_directions)}; "
                f"for several there are {', '.join(_FOR_SEVERAL)}"
            )
        self._name = name
        self._seed = seed
        self._directions = [
            "minimize" if each is Direction.MIN else "maximize"
            for each in (direction, *extra_directions)
        ]
        self._encoding = Encoding(space)
        self._distributions = [self._distribution(column) for column in self._encoding.columns]
        self._untried = Untried(space)
        self._trials: dict[int, Trial] = {}
        self._led: list[Trial] = []
        self._led_study: Any = None

    def tell(self, trial: Trial) -> None:
        """Take note of the trial; only its last standing counts."""
        self._untried.mark_tried(trial)
        if self._encoding.encode(trial.params) is not None:
            self._trials[trial.number] = trial

    def ask(self, numbers: Sequence[int]) -> list[Suggestion]:
        """One configuration for each number, each with those before it taken for running."""
        return self._untried.suggest(numbers, self._seed, f"optuna {self._name}", self._proposed)

    def _proposed(
        self, number: int, _: np.random.Generator, pending: Mapping[Hashable, Params]
    ) -> Keyed | None:
        first = number - len(pending)
        running = [
            Trial(first + i, params, "", TrialState.RUNNING)
            for i, params in enumerate(pending.values())
        ]
        told = [self._trials[each] for each in sorted(self._trials)]
        with _quiet(self._optuna):
            if self._name in _FORGETFUL:
                study = self._new_study(number)
                for trial in (*told, *running):
                    study.add_trial(self._frozen(trial))
            else:
                study = self._led_through(told, running)
            return self._untried.first_untried((self._asked(study) for _ in range(_TRIES)), pending)

    def _asked(self, study: Any) -> Params:
        """What the sampler proposes, where each value decides on what is asked for next."""
        trial = study.ask()
        chosen: dict[str, ParamValue] = {}
        for i, column in enumerate(self._encoding.columns):
            if is_open(column.parameter, chosen):
                chosen[column.parameter.name] = column.decode(self._suggested(trial, i))
        return chosen

    # --- Optuna's words -----------------------------------------------------------------------

    def _new_study(self, number: int) -> Any:
        rng = generator(self._seed, Purpose.SUGGESTION, number)
        sampler = self._class(seed=int(rng.integers(2**31)))
        return self._optuna.create_study(directions=self._directions, sampler=sampler)

    def _distribution(self, column: Column) -> Any:
        kinds = self._optuna.distributions
        if column.values is None:
            return kinds.FloatDistribution(0.0, 1.0)
        if column.ordered:
            return kinds.IntDistribution(0, column.count - 1)
        return kinds.CategoricalDistribution(range(column.count))

    def _suggested(self, trial: Any, index: int) -> float:
        name, column = str(index), self._encoding.columns[index]
        if column.values is None:
            return float(trial.suggest_float(name, 0.0, 1.0))
        if column.ordered:
            return float(trial.suggest_int(name, 0, column.count - 1))
        return float(trial.suggest_categorical(name, range(column.count)))

    def _params(self, trial: Trial) -> dict[str, float]:
        row = self._encoding.encode(trial.params)
        if row is None:
            return {}
        return {
            str(i): number if self._encoding.columns[i].values is None else int(number)
            for i, number in enumerate(row.tolist())
            if not math.isnan(number)
        }

    def _frozen(self, trial: Trial) -> Any:
        params = self._params(trial)
        state, values = self._standing(trial)
        return self._optuna.trial.create_trial(
            state=state,
            values=values,
            params=params,
            distributions={name: self._distributions[int(name)] for name in params},
            intermediate_values=_reports(trial, values),
        )

    def _standing(self, trial: Trial) -> tuple[Any, Sequence[float] | None]:
        """The trial's state in Optuna, and its values if they can be of use there."""
        states = self._optuna.trial.TrialState
        usable = len(trial.values) == len(self._directions) and all(
            map(math.isfinite, trial.values)
        )
        values = trial.values if usable else None
        match trial.state:
            case TrialState.COMPLETE if values is not None:
                return states.COMPLETE, values
            case TrialState.PRUNED:
                return states.PRUNED, values
            case TrialState.COMPLETE | TrialState.FAILED:
                return states.FAIL, None
            case _:
                return states.RUNNING, None

    # --- samplers with notes ------------------------------------------------------------------

    def _led_through(self, told: Sequence[Trial], running: Sequence[Trial]) -> Any:
        """A study of the caller's own in which the sampler was asked for each of these trials.

        What comes before the first unfinished trial stays as it is, and is gone through once.
        """
        settled = next((i for i, t in enumerate(told) if not t.state.is_final), len(told))
        if self._led != told[: len(self._led)] or self._led_study is None:
            self._led, self._led_study = [], self._new_study(0)
        for trial in told[len(self._led) : settled]:
            self._lead(self._led_study, trial)
            self._led.append(trial)
        study = copy.deepcopy(self._led_study)
        for trial in (*told[settled:], *running):
            self._lead(study, trial)
        return study

    def _lead(self, study: Any, trial: Trial) -> None:
        params = self._params(trial)
        study.enqueue_trial(params)
        asked = study.ask()
        # Given values need no drawing, so Optuna would not call the sampler, which notes by it to
        # which generation the trial belongs.
        _ = asked.relative_params
        for name in params:
            self._suggested(asked, int(name))
        state, values = self._standing(trial)
        states = self._optuna.trial.TrialState
        for step, reached in _reports(trial, values).items():
            asked.report(reached, step)
        if state is not states.RUNNING:
            study.tell(asked, values if state is states.COMPLETE else None, state=state)


def _reports(trial: Trial, values: Sequence[float] | None) -> dict[int, float]:
    return {} if values is None or len(values) > 1 else {trial.step or 1: values[0]}


def _optuna() -> ModuleType:
    try:
        import optuna
    except ImportError as error:
        raise UsageError(
            "Optuna's samplers need Optuna, which is not installed; "
            "install it with: pip install 'hptune[optuna]'"
        ) from error
    found: ModuleType = optuna
    return found


def _sampler_class(optuna: ModuleType, name: str) -> Any:
    names = [
        each
        for each, found in vars(optuna.samplers).items()
        if inspect.isclass(found)
        and issubclass(found, optuna.samplers.BaseSampler)
        and "seed" in inspect.signature(found).parameters
        and each not in _UNFIT
    ]
    if name not in names:
        wanted = {each.lower(): each for each in names}
        near = difflib.get_close_matches(name.lower(), wanted, n=1, cutoff=0.4)
        hint = f" Did you mean 'optuna:{wanted[near[0]]}'?" if near else ""
        raise UsageError(
            f"unknown search 'optuna:{name}'; Optuna's samplers that can be used are "
            f"{', '.join(sorted(names))}.{hint}"
        )
    needed = _NEEDS.get(name)
    if needed is not None and importlib.util.find_spec(needed) is None:
        raise UsageError(
            f"Optuna's {name} needs the package {needed}, which is not installed; "
            f"install it with: pip install {needed}"
        )
    return getattr(optuna.samplers, name)


@contextlib.contextmanager
def _quiet(optuna: ModuleType) -> Iterator[None]:
    """Optuna tells of every study that is made, and warns of what this module does on purpose."""
    level = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        optuna.logging.set_verbosity(level)
