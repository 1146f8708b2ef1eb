"""Where past trials are found: which kind of source a name means, and the last study of a file."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence, Set
from pathlib import Path

from ... import text
from ...config.objectives import goals_of
from ...core.trial import TrialState
from ...errors import HptuneError, UsageError, without_passwords
from ...files.access import exists, is_file, is_folder
from ...storage.directory import StudyDirectory
from ...storage.ledger import LedgerReader
from .found import NOT_COMPLETE, FoundTrial, FoundTrials
from .keras_tuner_project import is_project, read_project
from .optuna_storage import is_storage, read_storage
from .table import is_table, read_table

_ALLOWED = (
    "allowed are .csv, .json, a storage of Optuna, and the directories of studies and of KerasTuner"
)


def check_source(name: str) -> None:
    """Check that past trials can be read from here, before the seconds that the model takes.

    Raises:
        UsageError: There is no such source.
    """
    path = Path(name)
    if is_storage(name) or (is_folder(path) and is_project(path)):
        return
    if is_file(path):
        if not is_table(path):
            raise UsageError(
                f"--warm-start {name} is a file that cannot be read as trials; {_ALLOWED}"
            )
        return
    if not exists(path):
        raise UsageError(
            f"--warm-start {name}: there is no such file or directory, and so no study to learn "
            f"from; {_ALLOWED}. `hptune list FOLDER` finds the studies below a folder"
        )
    StudyDirectory(path).open(otherwise=f"For --warm-start, {_ALLOWED}")


def read_sources(
    name: str, *, hyperparameters: Set[str], metrics: Sequence[str]
) -> dict[str, FoundTrials]:
    """Return the complete trials that a name means, by what messages call their source.

    A directory may hold a study beside a project of KerasTuner; both are read, and one that has
    no complete trial is passed over if the other has some.

    Args:
        name: The directory of a study or of a KerasTuner project, a storage of Optuna, or a table.
        hyperparameters: The names that the new study searches.
        metrics: The metrics that the new study needs.

    Raises:
        UsageError: There is no such source, or it cannot be read.
    """
    path = Path(name)
    if is_storage(name):
        return {without_passwords(name): read_storage(name)}
    if is_file(path) and is_table(path):
        return {name: read_table(path, hyperparameters=hyperparameters, metrics=metrics)}
    directory = StudyDirectory(path)
    if not (is_folder(path) and is_project(path)):
        return {name: _read_study(directory)}
    if not directory.has_ledger:
        return {name: read_project(path)}
    both = {name: _read_study(directory), f"KerasTuner in {name}": read_project(path)}
    return {source: found for source, found in both.items() if found.trials} or both


def _read_study(directory: StudyDirectory) -> FoundTrials:
    """Return the complete trials of a study of hptune; it may run, and a trial may train on."""
    reader = LedgerReader(directory)
    facts, trials = reader.snapshot(lambda now: (now.facts(), now.trials()))
    complete = [trial for trial in trials if trial.has_result]
    return FoundTrials(
        [FoundTrial(trial.params, trial.metrics, trial.value) for trial in complete],
        goals_of(facts).goal,
        {NOT_COMPLETE: len(trials) - len(complete)},
    )


def notes_on_last_study(studies: Sequence[StudyDirectory], model_file: str) -> list[str]:
    """Return a line on the first study with results of this model file; empty if there is none.

    Args:
        studies: Directories that may hold earlier studies, the last one first.
        model_file: The file's path, as studies store it.
    """
    for earlier in studies:
        # One that cannot be read, such as of another format, is passed over.
        with contextlib.suppress(HptuneError, OSError):
            facts, trials = LedgerReader(earlier).snapshot(lambda now: (now.facts(), now.trials()))
            if facts["settings"]["source"]["path"] != model_file:
                continue
            complete = sum(trial.state is TrialState.COMPLETE for trial in trials)
            if complete:
                results = f"{text.plural(complete, 'complete trial')} of this model file"
                return [f"{earlier} has {results}; --warm-start {earlier} would learn from them"]
    return []
