"""The types of `Tuner`'s arguments: those of the settings table, as type checkers see them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import typing
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import UnionType
from typing import Any

import pytest

import hptune
from hptune.config import tuner_settings
from hptune.config.settings import SETTINGS
from hptune.config.tuner_settings import TunerSettings
from hptune.core.table import Setting
from hptune.errors import UsageError

ROOT = Path(__file__).parents[1]
OWN = {"entry", "python", "objective"}
"""Two of a model file alone, and an argument that `Tuner` names itself."""

WORDS = (
    "auto", "lr=0.1", "lr~normal(1,1)", "memory=retry:3", "params<2e6", "a=1", "10m", "4GB", "tpe",
    "tcp://a:1", "100gpu-h", "min", "stop", "off", "none", "global", "dask", "batch",
    "search.size=8",
)  # fmt: skip
SAMPLES: Mapping[Any, Sequence[object]] = {
    type(None): (None,),
    bool: (True,),
    int: (3, 5_000_000),
    float: (0.5, 2.5),
    str: WORDS,
    Path: (Path("there.json"),),
    list: (["lr=0.1"], ["lr~normal(1,1)"], ["memory=retry:3"], ["params<2e6"], ["search.size=8"]),
    dict: ({"lr": "normal(1,1)"}, {"search.size": 8}),
}
"""Values of each type; a setting takes the type if it takes one of them."""


def parts(annotation: Any) -> set[Any]:
    """Return the types of an annotation, as the keys of `SAMPLES`."""
    origin = typing.get_origin(annotation)
    if origin in (typing.Union, UnionType):
        return set().union(*map(parts, typing.get_args(annotation)))
    if origin is typing.Literal:
        return {str}
    if origin in (Sequence, Mapping):
        return {list if origin is Sequence else dict}
    if origin is Callable or annotation not in SAMPLES:
        return {Path} if annotation == os.PathLike[str] else set()
    return {annotation} | ({int} if annotation is float else set())


def taken(setting: Setting) -> set[Any]:
    """Return the types that a setting takes."""
    found = set()
    for kind, values in SAMPLES.items():
        for value in values:
            try:
                setting.read(value)
            except UsageError:
                continue
            found.add(kind)
    return found


def declared_types() -> dict[str, Any]:
    from optuna.samplers import BaseSampler

    from hptune.core.pruner import Pruner
    from hptune.core.sampler import Sampler
    from hptune.core.space.user_priors import PriorSpec

    names = {
        "BaseSampler": BaseSampler,
        "Pruner": Pruner,
        "Sampler": Sampler,
        "PriorSpec": PriorSpec,
        "Text": str | os.PathLike[str],
    }
    known = vars(tuner_settings) | names
    return {
        name: eval(each.__forward_arg__, known)
        for name, each in TunerSettings.__annotations__.items()
    }


def test_each_setting_is_an_argument() -> None:
    assert declared_types().keys() == {each.argument for each in SETTINGS} - OWN


@pytest.mark.parametrize("setting", [each for each in SETTINGS if each.argument not in OWN])
def test_an_argument_has_the_types_that_its_setting_takes(setting: Setting) -> None:
    annotation = declared_types()[setting.argument]
    # A path may stand where a text does, and bool is an int to type checkers.
    declared, real = parts(annotation), taken(setting)
    assert declared <= real
    assert real - {Path, bool} <= declared
    words = re.fullmatch(r"\[(.*)\]", setting.kind.metavar)
    if words is not None:
        literals = [each for each in (annotation, *typing.get_args(annotation))
                    if typing.get_origin(each) is typing.Literal]  # fmt: skip
        assert {w for each in literals for w in typing.get_args(each)} == {*words[1].split("|")}


def checked(tmp_path: Path, source: str) -> str:
    """Return what mypy says of a user's script, in strict mode."""
    script = tmp_path / "script.py"
    script.write_text(source)
    (tmp_path / "model.py").write_text(MODEL)
    sources = [str(Path(hptune.__file__).parents[1]), str(ROOT / "jobqueue")]
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--config-file=", "--strict", "--follow-imports=silent",
         "--cache-dir", str(tmp_path / "cache"), str(script)],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env=os.environ | {"MYPYPATH": os.pathsep.join(sources)},
    )  # fmt: skip
    return done.stdout


MODEL = """
from typing import Any
Digits: Any = None
load_data: Any = None
"""

PRELUDE = """
from typing import Any
import optuna
from hptune import Study
from hptune.samplers.random_search import RandomSampler as MySampler
build_model: Any = None
x: Any = None
y: Any = None
x_val: Any = None
y_val: Any = None
client: Any = None
"""

WRONG = {
    'Tuner(build_model, trials="many")': 'Argument "trials"',
    "Tuner(build_model, trails=3)": 'Unexpected keyword argument "trails"',
    'Tuner(build_model, pruner_mode="sometimes")': 'Argument "pruner_mode"',
    "Tuner(build_model, population=8)": 'Unexpected keyword argument "population"',
    "Tuner(build_model, search=3)": 'Argument "search"',
}


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_calls_of_the_documentation_are_accepted_and_wrong_ones_are_not(tmp_path: Path) -> None:
    pages = [(ROOT / "README.md").read_text(), (ROOT / "docs/guide/python.md").read_text()]
    blocks = re.findall(r"^```python\n(.*?)^```", "\n".join(pages), re.DOTALL | re.MULTILINE)
    calls = [block for block in blocks if "model.py" not in block]
    assert len(calls) >= 5
    right = PRELUDE + "\n".join(calls)
    said = checked(tmp_path, right + "\n" + "\n".join(WRONG))
    first_wrong = right.count("\n") + 2
    errors = [line for line in said.splitlines() if ": error: " in line]
    lines = {int(line.split(":")[1]) for line in errors}
    assert lines == {*range(first_wrong, first_wrong + len(WRONG))}, said
    for number, words in enumerate(WRONG.values(), start=first_wrong):
        assert any(f":{number}: " in line and words in line for line in errors), said
