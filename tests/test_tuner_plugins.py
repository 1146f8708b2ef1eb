"""Samplers and pruners that `Tuner` is given as classes, functions and objects."""

from __future__ import annotations

import os

import pytest

from in_process import InProcess
from real_runs import trials

SCRIPT = """
    import numpy as np
    import optuna
    from hptune import Tuner
    from hptune.core.pruner import NeverPrune
    from hptune.core.sampler import Sampler
    from hptune.core.trial import Suggestion
    from hptune.executors.joblib import JoblibExecutor
    from hptune.samplers.random_search import RandomSampler

    def objective(hp, trial):
        x = hp.Float("x", 0.0, 1.0)
        trial.report(1, value=x)
        return x

    class Own(Sampler):
        def __init__(self, space, seed, *, directions, origin="own"):
            self.seed, self.origin = seed, origin

        def ask(self, numbers):
            drawn = (np.random.default_rng([self.seed, n]).random() for n in numbers)
            return [Suggestion({"x": float(x)}, self.origin) for x in drawn]

        def tell(self, trial):
            pass

    class Strict(NeverPrune):
        def __init__(self, *, directions, epochs):
            pass

        def report(self, trial, step, values):
            return step > 9

    def own(run, cores, gpus):
        return JoblibExecutor(run, cores, gpus)

    def patient(*, directions, epochs, patience=3):
        return NeverPrune()

    FIXED = {"executor": "joblib", "quiet": True, "directory": "study", "resume": True}
"""


@pytest.mark.parametrize(
    ("given", "origin"),
    [
        ("RandomSampler", "random"),
        ("Own, options={'search.origin': 'mine'}", "mine"),
        ("lambda space, seed, *, directions: RandomSampler(space, seed)", "random"),
        ("optuna.samplers.CmaEsSampler()", "optuna CmaEsSampler"),
        ("optuna.samplers.TPESampler(n_startup_trials=2)", "optuna TPESampler"),
        ("optuna.samplers.NSGAIISampler", "optuna NSGAIISampler"),
    ],
)
def test_what_python_gives_is_stored_resumed_and_replayed(
    cli: InProcess, given: str, origin: str
) -> None:
    call = f"\n    Tuner(objective, trials=4, search={given}, **FIXED).fit()\n"
    ended = cli.script(SCRIPT + call)
    assert ended.code == 0, ended.err
    ended = cli("resume", "study", "--trials", 6, "-q")
    assert ended.code == 0, ended.err
    assert [each["origin"] for each in trials(cli.study())] == ["defaults", *[origin] * 5]
    assert cli("replay", "study").out == "6 suggestions, all equal\n"
    (stored,) = cli.study().glob("*@*.pkl")
    stored.rename(stored.with_suffix(".gone"))
    ended = cli("resume", "study", "--trials", 7)
    assert (ended.code, "cannot be loaded from" in ended.err) == (2, True), ended.err


def test_another_search_of_a_study_is_refused_and_the_same_is_not(cli: InProcess) -> None:
    first = SCRIPT + "\n    Tuner(objective, trials=2, search=Own, **FIXED).fit()\n"
    assert cli.script(first).code == 0
    assert cli.script(first.replace("trials=2", "trials=3")).code == 0
    ended = cli.script(first.replace("trials=2, search=Own", "search=RandomSampler"))
    assert "search is RandomSampler" in ended.err
    assert "which cannot be changed" in ended.err
    # Each run stores what it was given, which may be corrected; a refused one leaves nothing.
    assert len([*cli.study().glob("Own@*.pkl")]) == len([*cli.study().glob("*@*.pkl")]) == 2


@pytest.mark.parametrize(
    ("given", "before", "after"),
    [
        ("search=Own", "drawn = (np", "drawn = [1 / (n < 2) for n in numbers] and (np"),
        ("pruner=patient", "return NeverPrune()", "return NeverPrune() if epochs else 3"),
        ("pruner=Strict", "step > 9", "step / (trial < 2) > 9"),
        ("executor=own", "return JoblibExecutor(", "return 1 / 0 and JoblibExecutor("),
    ],
)
def test_one_that_fails_is_corrected_and_the_study_resumed(
    cli: InProcess, given: str, before: str, after: str
) -> None:
    good = SCRIPT + f"\n    Tuner(objective, trials=4, {given}, **FIXED).fit()\n"
    if "executor" in given:
        good = good.replace('"executor": "joblib", ', "")
    ended = cli.script(good.replace(before, after))
    assert ended.code != 0
    assert not cli.study().exists() or "failed" in ended.err
    ended = cli.script(good)
    assert ended.code == 0, ended.err
    assert len(trials(cli.study())) == 4
    assert cli("replay", "study").out == "4 suggestions, all equal\n"


def test_a_pruner_may_change_and_each_run_finds_its_own(cli: InProcess) -> None:
    first = SCRIPT + "\n    Tuner(objective, trials=2, pruner=patient, **FIXED).fit()\n"
    assert cli.script(first).code == 0
    other = first.replace("trials=2", "trials=3").replace("NeverPrune()", "None or NeverPrune()")
    assert cli.script(other).code == 0
    assert len([*cli.study().glob("patient@*.pkl")]) == 2
    ended = cli("resume", "study", "--pruner", "none", "--trials", 4, "-q")
    assert ended.code == 0, ended.err


def test_a_file_of_others_is_not_loaded(cli: InProcess) -> None:
    first = SCRIPT + "\n    Tuner(objective, trials=2, search=Own, **FIXED).fit()\n"
    assert cli.script(first).code == 0
    (stored,) = cli.study().glob("Own@*.pkl")
    stored.chmod(0o666)
    for folder in stored.parents:  # let all users enter, as in /tmp
        if folder.stat().st_uid == os.getuid() and folder.stat().st_mode & 0o011 != 0o011:
            folder.chmod(folder.stat().st_mode | 0o055)
    ended = cli("replay", "study")
    assert (ended.code, "every user of this machine may write" in ended.err) == (2, True), ended.err


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("search=3", "search is 3; allowed are auto, tpe, "),
        ("search=Own(None, 0, directions=())", "class or function that is called as factory(space"),
        ("search=optuna.samplers.GridSampler({})", "takes a search space of its own"),
        ("search=optuna.samplers.BruteForceSampler", "takes a search space of its own"),
        ("search=Own, options={'search.orign': 1}", "Did you mean origin?"),
        ("search=lambda space: 1", "cannot be called as <lambda>(space, seed, directions=…)"),
        ("pruner=patient, options={'pruner.patients': 1}", "Did you mean patience?"),
        ("cluster=patient, workers=2", "cluster is 'patient' and workers is 2, but"),
        ("pruner=patient, min_epochs=2", "min_epochs is for asha, hyperband and median"),
    ],
)
def test_a_wrong_one_is_refused_at_once(cli: InProcess, given: str, said: str) -> None:
    ended = cli.script(SCRIPT + f"\n    Tuner(objective, {given})\n")
    assert (ended.code, said in ended.err) == (1, True), ended.err
    assert not cli.study().exists()
