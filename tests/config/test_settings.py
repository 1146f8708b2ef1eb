"""The settings table: allowed values, how they are read, and texts made from the table."""

from __future__ import annotations

import json
import keyword
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hptune.config.asked import asked
from hptune.config.reference import given_options, in_python, markdown
from hptune.config.settings import BY_NAME, SETTINGS, StudySettings
from hptune.errors import UsageError
from hptune.user_code.source import ObjectiveSource, SourceKind


def settings(**asked: object) -> StudySettings:
    source = ObjectiveSource(SourceKind.FILE, "/model.py")
    return StudySettings(source=source, working_directory="/", **asked)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"stop_at": None}, "stop_at is None; allowed are batch and epoch"),
        ({"pack": None}, "pack is None; allowed are auto and off"),
        ({"executor": None}, "executor is None; allowed are dask, joblib, others installed"),
        ({"pruner_mode": "both"}, "pruner_mode is 'both'; allowed are stop and promote"),
        ({"trials": "0"}, "trials is 0; allowed are whole numbers from 1 on"),
        ({"confirm_repeats": 10**20}, "confirm_repeats: 100000000000000000000 is given, and the l"),
        (
            {"grid_resolution": 10**20},
            "grid_points: 100000000000000000000 is given, and the largest",
        ),
        ({"epochs": 2**63}, "epochs: 9223372036854775808 is given, and the largest is 92233720"),
        ({"trials": 2.5}, "trials is 2.5; allowed are whole numbers from 1 on"),
        ({"timeout_seconds": "soon"}, "timeout is 'soon'; allowed are times above 0, such as 90s"),
        ({"timeout_seconds": "1h30"}, "timeout is '1h30'; allowed are times above 0, such as 90s"),
        ({"timeout_seconds": math.nan}, "timeout is nan; allowed are times above 0"),
        ({"timeout_seconds": math.inf}, "timeout is inf; allowed are times above 0"),
        ({"hang_timeout_seconds": math.inf}, "hang_timeout is inf; allowed are times from 0 on"),
        ({"timeout_seconds": 10**400}, "allowed are times above 0"),
        ({"hang_timeout_seconds": "999999d"}, "hang_timeout is '999999d'; allowed are times from"),
        ({"priors": {1: "normal(1,1)"}}, "priors is {1: 'normal(1,1)'}; allowed are"),
        ({"timeout_seconds": True}, "timeout is True; allowed are times above 0"),
        ({"trials": True}, "trials is True; allowed are whole numbers from 1 on"),
        ({"cpus_per_trial": True}, "cpus_per_trial is True; allowed are whole numbers from 1"),
        ({"memory_per_trial_bytes": True}, "memory_per_trial is True; allowed are amounts"),
        ({"hang_timeout_seconds": None}, "hang_timeout is None; allowed are times from 0 on"),
        ({"master_grace_seconds": -1}, "master_grace is -1; allowed are times from 0 on"),
        ({"memory_per_trial_bytes": "4"}, "memory_per_trial: '4' is 4 bytes; did you mean 4GB?"),
        ({"memory_per_trial_bytes": "4000"}, "'4000' is 4000 bytes; did you mean 4000MB?"),
        ({"memory_per_trial_bytes": 4}, "memory_per_trial: 4 is 4 bytes; did you mean 4GB?"),
        ({"cache_data": 1}, "cache_data: 1 is 1 bytes; did you mean 1GB?"),
        ({"cpus_per_trial": math.inf}, "cpus_per_trial is inf; allowed are whole numbers from 1"),
        ({"gpus_per_trial": math.nan}, "gpus_per_trial is nan; allowed are whole numbers from 0"),
        ({"budget": "much"}, "budget: 'much' is no budget"),
        ({"on_failure": ["nan=panic"]}, "on_failure: 'nan=panic'"),
        ({"start_points": None}, "start_points is None; allowed are"),
        ({"start_points": [1]}, "start_points is [1]; allowed are"),
        ({"priors": 3}, "priors is 3; allowed are"),
        ({"warm_start": 3}, "warm_start is 3; allowed are directories of studies or of"),
        ({"connect": "node1"}, "connect is 'node1'; allowed are an address such as tls://"),
        ({"workers": 2, "slurm": "/a.toml"}, "slurm is '/a.toml' and workers is 2"),
        ({"connect": "tls://a:1", "executor": "joblib"}, "give one of them"),
        ({"cluster": "slurm", "connect": "tls://a:1"}, "give one of them"),
        ({"cluster": "json:loads", "workers": 2}, "cluster is 'json:loads' and workers is 2"),
        ({"cluster": "scheduler"}, "cluster is scheduler, which needs connect"),
        ({"certs": "/a"}, "certs is given, but cluster is auto; certs is for connect"),
        ({"max_jobs": 3}, "cluster is auto; max_jobs is for slurm, sge"),
        ({"min_workers": 3, "connect": "tls://a:1"}, "so is connect; min_workers is for"),
        ({"slurm": "/a.toml", "first": 3, "min_workers": 2}, "leave one of them out"),
        ({"insecure": True, "cluster": "local"}, "insecure is given, but cluster is local"),
        ({"confirm_repeats": 3}, "confirm_repeats is 3, but confirm is 0, so nothing is trained"),
    ],
)
def test_other_values_are_refused_with_what_is_allowed(given: dict[str, object], said: str) -> None:
    with pytest.raises(UsageError) as refused:
        asked(settings(**given))
    assert said in in_python(str(refused.value))


def test_in_python_a_changed_space_is_accepted_by_an_argument() -> None:
    said = "go on with `hptune resume a-1 --accept-space`, or begin `hptune run … --study OTHER`"
    assert in_python(said, "build") == (
        "go on with `Tuner(build, directory='a-1', resume=True, accept_space=True).fit()`, or "
        "begin `Tuner(build, directory='OTHER').fit()`"
    )


@pytest.mark.parametrize(
    ("asked", "value"),
    [
        ({"timeout_seconds": None}, None),
        ({"timeout_seconds": "1h30m"}, 5400.0),
        ({"timeout_seconds": "none"}, 0.0),
        ({"trial_timeout_seconds": 0.5}, 0.5),
        ({"hang_timeout_seconds": "0"}, 0.0),
        ({"memory_per_trial_bytes": "8GB"}, 8 * 10**9),
        ({"memory_per_trial_bytes": "512MiB"}, 512 * 2**20),
        ({"cache_data": "off"}, False),
        ({"cache_data": "2GB"}, 2 * 10**9),
        ({"cache_data": True}, True),
        ({"trials": "7"}, 7),
        ({"trials": np.int64(7)}, 7),
        ({"trials": 7.0}, 7),
        ({"memory_per_trial_bytes": 4e9}, 4 * 10**9),
        ({"memory_per_trial_bytes": np.float64(4e9)}, 4 * 10**9),
        ({"seed": 10**30}, 10**30),
        ({"timeout_seconds": np.int64(60)}, 60.0),
        ({"memory_per_trial_bytes": np.int64(10**9)}, 10**9),
        ({"gpus_per_trial": 0}, 0),
        ({"cpus_per_trial": "0.5"}, 0.5),
        ({"pruner_mode": None}, None),
        ({"connect": "none"}, None),
        ({"insecure": False}, None),
        ({"objectives": "loss"}, ("loss",)),
        ({"objectives": ["loss", "size:min"]}, ("loss", "size:min")),
        ({"warm_start": Path("study")}, ("study",)),
        ({"start_points": {"lr": 0.1}}, ({"lr": 0.1},)),
        ({"start_points": ["lr=0.1", {"n": 2}]}, ({"lr": "0.1"}, {"n": 2})),
        ({"priors": {"act": {"relu": 3}}}, {"act": {"relu": 3}}),
        ({"priors": {"act": {"relu": np.float32(0.5), 8: "2"}}}, {"act": {"relu": 0.5, "8": 2}}),
        ({"priors": {"act": {"relu": np.int64(3)}}}, {"act": {"relu": 3}}),
        ({"priors": ["lr~normal(1, 2)"]}, {"lr": "normal(1, 2)"}),
    ],
)
def test_allowed_values_are_read_stored_and_read_again(
    asked: dict[str, object], value: object
) -> None:
    made = settings(**asked)
    assert getattr(made, *asked) == value
    plain = json.loads(json.dumps(made.to_json()))
    assert StudySettings.from_json(plain) == made
    assert StudySettings.from_json(plain).to_json() == made.to_json()


def test_a_resumed_study_has_the_backend_that_it_had_unless_another_one_is_given(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("KERAS_BACKEND", "torch")
    first = settings()
    plain = first.to_json()
    monkeypatch.delenv("KERAS_BACKEND")
    assert first.source.backend == "torch", "what executors give to their workers"
    again = StudySettings.from_json(plain)
    of_a_function = replace(again, source=replace(again.source, kind=SourceKind.PICKLE))
    moved = again.changed({"source": ObjectiveSource(SourceKind.FILE, "/moved.py")})
    assert moved.source.path == "/moved.py"
    for resumed in (again, moved, of_a_function.found_in(tmp_path)):
        assert resumed.source.backend == "torch"
        assert resumed.to_json()["source"]["backend"] == "torch"
    monkeypatch.setenv("KERAS_BACKEND", "jax")
    assert StudySettings.from_json(plain).source.backend == "jax"


@pytest.mark.parametrize(
    ("before", "changes", "after"),
    [
        ({"workers": 2}, {"connect": "tls://a:1"}, {"connect": "tls://a:1", "workers": None}),
        ({"connect": "tls://a:1"}, {"workers": "3"}, {"connect": None, "workers": 3}),
        ({"executor": "joblib"}, {"slurm": "/a.toml"}, {"executor": "dask", "slurm": "/a.toml"}),
        ({"connect": "tls://a:1"}, {"connect": "none"}, {"connect": None}),
        ({"cluster": "json:loads"}, {"workers": 2}, {"cluster": "auto", "workers": 2}),
        (
            {"connect": "tls://a:1"},
            {"cluster": "json:loads", "options": ["cluster.nodes=2"]},
            {"cluster": "json:loads", "options": {"cluster.nodes": 2}, "connect": None},
        ),
        ({"connect": "tls://a:1"}, {"trials": 9}, {"connect": "tls://a:1", "trials": 9}),
        ({"slurm": "/a.toml", "max_jobs": 3}, {"slurm": "none"}, {"max_jobs": None}),
        ({"slurm": "/a.toml", "max_jobs": 3}, {"slurm": "/b.toml"}, {"max_jobs": 3}),
        ({"slurm": "/a.toml", "max_jobs": 3}, {"connect": "none"}, {"max_jobs": 3}),
        ({"slurm": "/a.toml", "max_jobs": 3}, {"cluster": "sge"}, {"max_jobs": 3, "slurm": None}),
        ({"slurm": "/a.toml", "min_workers": 3}, {"cluster": "sge"}, {"min_workers": None}),
        ({"slurm": "/a.toml", "max_jobs": 3}, {"workers": 2}, {"max_jobs": None}),
        ({"connect": "tls://a:1", "certs": "/a"}, {"connect": "none"}, {"certs": None}),
    ],
)
def test_a_new_source_of_workers_replaces_the_former(
    before: dict[str, object], changes: dict[str, object], after: dict[str, object]
) -> None:
    changed = settings(**before).changed(changes)
    assert {name: getattr(changed, name) for name in after} == after


@pytest.mark.parametrize(
    ("changes", "after"),
    [
        ({"pruner": "none"}, {"min_epochs": None, "reduction_factor": None}),
        ({"pruner": "median"}, {"min_epochs": 2, "reduction_factor": None}),
        ({"pruner": "none", "min_epochs": 3}, {"min_epochs": 3}),
        ({"pruner": "asha"}, {"min_epochs": 2, "reduction_factor": 4}),
        ({"trials": 9}, {"min_epochs": 2, "reduction_factor": 4, "confirm_repeats": 5}),
        ({"confirm": 0}, {"confirm_repeats": None}),
        ({"confirm": 2}, {"confirm_repeats": 5}),
    ],
)
def test_what_a_change_makes_useless_is_dropped(
    changes: dict[str, object], after: dict[str, object]
) -> None:
    before = settings(pruner="asha", min_epochs=2, reduction_factor=4, confirm=1, confirm_repeats=5)
    changed = before.changed(changes)
    assert {name: getattr(changed, name) for name in after} == after


def test_every_setting_is_explained_and_named_once() -> None:
    assert len({each.flag for each in SETTINGS}) == len(SETTINGS)
    assert len({each.argument for each in SETTINGS}) == len(SETTINGS)
    for each in SETTINGS:
        assert each.help.endswith("."), each.name
        assert each.kind.allowed, each.name
        assert each.argument.isidentifier()
        assert not keyword.iskeyword(each.argument)


def test_the_reference_of_options_is_up_to_date() -> None:
    path = Path(__file__).parents[2] / "docs" / "reference-options.md"
    assert path.read_text() == markdown(), f"python -m hptune.config.reference > {path}"


def test_options_are_shown_as_the_command_line_takes_them() -> None:
    asked = settings(
        start_points=["lr=0.1,act=relu", {"name": "a,b", "on": True}],
        priors=["lr~lognormal(0.001,0.5)", "act~{relu:3,tanh:1}"],
        timeout_seconds="none",
        hang_timeout_seconds="0s",
        cache_data="off",
        insecure=True,
        connect="tcp://a:1",
        memory_per_trial_bytes="4GB",
        trial_timeout_seconds=1234567,
        on_failure=["memory=retry:3", "nan=stop"],
        objectives=["auc:max", "params"],
        gpus_per_trial=0.5,
    )
    given: dict[str, Any] = {}
    for flag, value in given_options(asked):
        setting = next(each for each in SETTINGS if each.flag == flag)
        if setting.kind.is_repeated:
            given.setdefault(setting.name, []).append(value)
        else:
            given[setting.name] = value or True  # an option without a value
    assert settings(**given) == asked
    assert settings(cache_data=True).cache_data is True
    assert given_options(settings(cache_data=True)) == [("--cache-data", "on")]
    assert given_options(settings(priors={"act": {"relu": 3, "tanh": 1}})) == [
        ("--prior", "act~{relu:3,tanh:1}")
    ]


def test_texts_of_plug_in_options_are_read_once() -> None:
    given = settings(options=["search.number=8", 'search.text="8"', "pruner.my-name=first"])
    assert given.options == {"search.number": 8, "search.text": "8", "pruner.my_name": "first"}
    assert given.own_options("search") == {"number": 8, "text": "8"}
    assert given.changed({"trials": 3}).options == given.options
    assert StudySettings.from_json(given.to_json()).options == given.options
    assert settings(options={"search.text": "8"}).options == {"search.text": "8"}
    shown = BY_NAME["options"].kind.show(given.options)
    assert settings(options=shown.split(", ")).options == given.options
    for wrong in ("search.wide=NaN", "wide=3", "searches.wide=3", "search.=3", "search.wide"):
        with pytest.raises(UsageError, match=f"{wrong}'; allowed are texts such as search.popul"):
            settings(options=wrong)


@pytest.mark.parametrize(
    ("changes", "after"),
    [
        ({"connect": "tls://node:8786"}, {"search.a": 1, "pruner.b": 2}),
        ({"workers": 2}, {"search.a": 1, "pruner.b": 2, "executor.most": 1}),
        ({"pruner": "theirs:P"}, {"search.a": 1, "cluster.n": 3, "executor.most": 1}),
        (
            {"pruner": "mine:P", "options": {"pruner.c": 4}},
            {"search.a": 1, "pruner.b": 2, "pruner.c": 4, "cluster.n": 3, "executor.most": 1},
        ),
    ],
)
def test_what_is_replaced_loses_its_options(
    changes: dict[str, object], after: dict[str, object]
) -> None:
    options = {"search.a": 1, "pruner.b": 2, "cluster.n": 3, "executor.most": 1}
    before = settings(executor="mine:few", pruner="mine:P", options=options)
    assert before.changed(changes).options == after


def test_a_study_that_leaves_its_scheduler_leaves_its_certificates() -> None:
    given = settings(connect="tls://node1:8786", certs="worker.pem")
    assert given.changed({"connect": "none"}).certs is None
    assert given.changed({"trials": 9}).certs == given.certs


def test_brackets_are_refused_by_the_epochs_that_the_model_file_may_still_name() -> None:
    assert asked(settings(pruner="hyperband", brackets=9)).settings.brackets == 9
    with pytest.raises(UsageError, match="with 20 epochs, rungs at 2, 6 allow 3 at most"):
        asked(settings(pruner="hyperband", brackets=9, epochs=20))
