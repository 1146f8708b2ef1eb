"""A multirun of Hydra as a study: each trial runs the application with overrides of its own."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NoReturn

from hydra.core.config_store import ConfigStore
from hydra.core.singleton import Singleton
from hydra.errors import HydraException
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, OmegaConf

from ..config.other_tuners import argument_meant
from ..config.reference import MULTIRUN, SWEEPER, SWEEPERS_STUDY, in_python
from ..errors import HptuneError, UsageError
from ..files.file_errors import storage_errors
from ..study.study import Study
from ..training.hyperparameters import HyperParameters
from ..tuner import Tuner
from .application import Application, overrides
from .overrides import declare, split, value_in

_LAUNCHER = "hydra._internal.core_plugins.basic_launcher.BasicLauncher"
_DIRECTIONS = {"minimize": "min", "maximize": "max"}
_INTERRUPTED = 130
"""Exit code: 128 + SIGINT, as in shells."""


def sweep(
    context: HydraContext, function: TaskFunction, config: DictConfig, arguments: list[str]
) -> None:
    """Run the study of a multirun, or continue it, and write its results.

    Args:
        context: The loader of configurations, and callbacks.
        function: The application.
        config: The configuration of the multirun.
        arguments: The overrides of the command line.

    Raises:
        SystemExit: It was interrupted, a request was wrong, or the study had to stop. The reason
            was printed.
        HydraException: An override does not fit the configuration.
    """
    try:
        _sweep(context, function, config, arguments)
    except HptuneError as error:
        _exit(f"Error: {error}", 2 if isinstance(error, UsageError) else 1)
    except KeyboardInterrupt as interrupted:
        _exit(str(interrupted), _INTERRUPTED)


def _exit(line: str, code: int) -> NoReturn:
    sys.stderr.write(f"{line}\n")
    raise SystemExit(code) from None


def _sweep(
    context: HydraContext, function: TaskFunction, config: DictConfig, arguments: list[str]
) -> None:
    launcher = config.hydra.launcher._target_
    if launcher != _LAUNCHER:
        raise UsageError(
            f"hydra/launcher is {launcher}, but hptune itself runs the trials; leave the launcher "
            "out, and use hydra.sweeper.slurm=slurm.toml or hydra.sweeper.workers=N"
        )
    given = _options(config)
    fixed, space = _space([*overrides(given.pop("params", {})), *arguments], context, config)
    folder = Path(config.hydra.sweep.dir).absolute()
    variables = {name: os.environ[name] for name in config.hydra.job.env_copy}
    state = Singleton.get_state()
    application = Application(context, function, config, tuple(fixed), folder, state, variables)
    objectives = _objectives(_listed(given.pop("objective", [])), given.pop("direction", []))
    given.setdefault("directory", folder / SWEEPERS_STUDY)
    given |= {"hyperparameters": space, "resume": True}
    tuner = _Multirun(application, objectives, **given)
    tuner.folder = folder
    _make(folder)
    with storage_errors(folder):
        OmegaConf.save(config, folder / "multirun.yaml")
    write_results(tuner.fit(), folder)


def _options(config: DictConfig) -> dict[str, Any]:
    """Return the options of the sweeper that are given.

    Raises:
        UsageError: One is unknown, or `params` is no mapping.
    """
    options: Any = OmegaConf.to_container(config.hydra.sweeper, resolve=True)
    known = ConfigStore.instance().load("hydra/sweeper/hptune.yaml").node
    for name in options.keys() - known.keys():
        hint = argument_meant(name, known) or "`--cfg hydra -p hydra.sweeper` lists the options"
        raise UsageError(f"{SWEEPER} has no option {name!r}; {in_python(hint)}")
    given = {name: value for name, value in options.items() if value is not None}
    del given["_target_"]
    if not isinstance(params := given.get("params", {}), Mapping):
        raise UsageError(
            f"{SWEEPER}.params is {params!r}; allowed are overrides by their keys, such as "
            "{lr: 'interval(0, 1)'}"
        )
    return given


def _make(folder: Path) -> None:
    """Create the folder of the multirun.

    Raises:
        UsageError: A file is in the way.
    """
    try:
        with storage_errors(folder):
            folder.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError) as error:
        raise UsageError(
            f"hydra.sweep.dir is {folder}, but {error.filename} is not a directory; choose another"
        ) from error


def _space(
    lines: Iterable[str], context: HydraContext, config: DictConfig
) -> tuple[list[str], HyperParameters]:
    """Return the overrides that all trials have, and what is searched.

    The values of the configuration itself are the defaults, which a study tries first.
    """
    loader = context.config_loader
    fixed, searched = split(lines, loader)
    own = config
    with contextlib.suppress(HydraException):  # without what is searched it may be incomplete
        own = loader.load_sweep_config(config, fixed)
    space = HyperParameters()
    for override in searched:
        declare(space, override, value_in(own, override))
    loader.load_sweep_config(config, [*fixed, *overrides(space.values)])  # raises what is wrong
    return fixed, space


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _objectives(names: list[Any], direction: Any) -> list[Any]:
    """Return the objectives with their directions.

    Raises:
        UsageError: A direction is none, or there are not as many as objectives.
    """
    several = _listed(direction)
    if not several:
        return names or ["value:min"]
    if not names:
        names = ["value"] if len(several) == 1 else [f"value_{i}" for i in range(len(several))]
    if not {*map(str, several)} <= _DIRECTIONS.keys() or len(several) != len(names):
        raise UsageError(
            f"{SWEEPER}.direction is {direction!r}; allowed are minimize and maximize, one for "
            f"each objective ({', '.join(map(str, names))})"
        )
    return [f"{name}:{_DIRECTIONS[each]}" for name, each in zip(names, several, strict=True)]


class _Multirun(Tuner):
    """Says how to continue in options of the sweeper, and in the study where its folder is."""

    _function = SWEEPER
    folder: Path

    def _run(self, directory: Any, given: Any, code: Any, *arguments: Any, **options: Any) -> Any:
        def with_folder(directory: Any) -> Any:
            directory.draft(file := directory.path / MULTIRUN)
            file.write_text(os.path.relpath(self.folder, directory.path))
            return code(directory)

        return super()._run(directory, given, with_folder, *arguments, **options)

    def _shown_command(self, command: str) -> str:
        return super()._shown_command(command) or command


def write_results(study: Study, folder: Path) -> None:
    """Write the best trials of a multirun into its folder."""
    with storage_errors(folder):
        OmegaConf.save(OmegaConf.create(_results(study)), folder / "optimization_results.yaml")


def _results(study: Study) -> dict[str, Any]:
    """Return the best trials in the form in which Hydra's sweeper of Optuna writes them."""
    best = study.best_trials
    if len(study.goals.objectives) > 1:
        found = [{"params": dict(each.params), "values": [*each.values]} for each in best]
        return {"name": "hptune", "solutions": found}
    params, value = (dict(best[0].params), best[0].value) if best else (None, None)
    return {"name": "hptune", "best_params": params, "best_value": value}
