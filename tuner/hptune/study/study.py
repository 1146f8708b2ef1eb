"""Results of a study: what `Tuner.fit` returns, and what the command line shows."""

from __future__ import annotations

import contextlib
import itertools
import os
import shlex
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from ..config.objectives import goals_of
from ..config.other_tuners import result_meant
from ..config.reference import given_options
from ..core.attempt import ReportedValue
from ..core.goals import Goals
from ..core.ranking import Ranking
from ..core.space.space import SearchSpace
from ..core.trial import Goal, Trial
from ..core.user_requests import Note
from ..errors import HptuneError, StartingStudyError, StudyError, UsageError
from ..files.access import whole_path
from ..reporting.exports.exports import Exports
from ..reporting.exports.source import ExportedStudy
from ..reporting.html.reports import Reports
from ..reporting.results.best import best_line
from ..reporting.results.listing import ListedStudy
from ..reporting.results.trials import configurations, ranked
from ..reporting.results.view import StudyView
from ..storage.artifacts import StudyFiles
from ..storage.directory import StudyDirectory
from ..storage.ledger import FollowedReports, LedgerReader
from ..storage.lock import living_owner
from ..storage.whose import Use
from ..text import moment, path, printable
from ..training.hyperparameters import ChosenHyperparameters
from ..user_code.code_copy import as_trained
from ..user_code.source import SourceKind
from .view_reading import MasterJobOf, ViewReading, judged, settings_of

if TYPE_CHECKING:
    from ..reporting.html.report import Setup
    from ..reporting.html.trials import StudyTrials
    from .dashboard import Dashboard


_Found = TypeVar("_Found")


class Study(Reports, Exports):
    """A study, read from its directory.

    An access reads the ledger if it has changed, so the results of a running study can be followed.
    Reading does not disturb its master.

    Example::

        study = Study("studies/digits")
        study.best_trial.value, study.best_hyperparameters
        # (0.9889, {'filters': 24, 'learning_rate': 0.0031})
        model = study.best_model()

    Args:
        directory: The study's directory.

    Raises:
        NoStudyError: The directory holds no study.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str] | StudyDirectory,
        *,
        _reader: LedgerReader | None = None,
        _job_of: MasterJobOf = lambda _: None,
    ) -> None:
        given = directory if isinstance(directory, StudyDirectory) else StudyDirectory(directory)
        self._directory = given
        self._reader = _reader or LedgerReader(self._directory)
        self._job_of = _job_of
        self._best_at: tuple[tuple[float, int], tuple[Trial, ...]] = ((0.0, -1), ())

    def read(self, what: Callable[[Study], _Found]) -> _Found:
        """Return what a function reads with the study that it is given, of one state of the study.

        A study that runs changes between two reads of it, but not within this call.
        """
        return self._reader.snapshot(
            lambda now: what(Study(self._directory, _reader=now, _job_of=self._job_of))
        )

    def __dir__(self) -> list[str]:
        """Return what a release keeps, for completion in notebooks."""
        return [name for name in super().__dir__() if name not in _NOT_KEPT]

    if not TYPE_CHECKING:  # type checkers know the attributes

        def __getattr__(self, name: str) -> Any:
            meant = result_meant(name, [each for each in dir(self) if each[0] != "_"])
            # Without the object, to which Python would add a suggestion of its own.
            raise AttributeError(f"a Study has no attribute {name!r}.{meant}", name=name)

    def __repr__(self) -> str:
        shown = f"Study('{self._directory}')"
        with contextlib.suppress(HptuneError):  # the study may be removed
            view = self.view()
            best = view.best and f", best {' '.join(best_line(view, view.best).split())}"
            shown += f": {view.progress}{best or ''}"
        return shown

    def _repr_html_(self) -> str:
        from ..reporting.html.card import card

        return card(self._study_trials(lambda _: ()), now=time.time())

    @property
    def directory(self) -> Path:
        """The study's directory."""
        return self._directory.path

    @cached_property
    def goals(self) -> Goals:
        """The study's objectives and constraints."""
        return goals_of(self._reader.facts())

    @property
    def goal(self) -> Goal:
        """The first objective, with its direction."""
        return self.goals.goal

    @property
    def space(self) -> SearchSpace:
        """The search space, with the hyperparameters that trials have declared so far."""
        return SearchSpace.from_json(self._reader.facts()["space"])

    @property
    def trials(self) -> list[Trial]:
        """All trials, in the order of their numbers.

        Those that ran when the master was killed are RUNNING until the study is resumed; in tables
        and commands, they wait.
        """
        return judged(self._directory, self.goals, self._reader.trials())

    def trial(self, number: int) -> Trial:
        """Return one trial.

        Raises:
            UsageError: There is no trial of this number.
        """
        found = self._reader.trial(int(number)) if hasattr(number, "__index__") else None
        if found is None:
            count = len(self._reader.trials())
            there = f"its trials are 0 to {count - 1}" if count else "no trial has begun yet"
            raise UsageError(f"{self._directory} has no trial {number!r}; {there}")
        return judged(self._directory, self.goals, [found])[0]

    def log_path(self, number: int, rank: int = 0) -> Path | None:
        """Return the file with a trial's output, of all its attempts; None if it wrote none yet.

        Args:
            number: The trial's number.
            rank: The process of a parallel trial whose output is wanted.

        Raises:
            UsageError: There is no trial of this number.
        """
        path = self._directory.log(self.trial(number).number, rank)
        return path if path.exists() else None

    @property
    def complete_trials(self) -> list[Trial]:
        """The complete trials, also those that train on, the best first."""
        found = ranked(self.view())  # which have rungs, and those of `trials` have none
        return [replace(each, rungs={}) for each in found if each.has_result]

    @property
    def best_trials(self) -> list[Trial]:
        """The Pareto front, sorted by the first objective; empty if no trial is complete.

        No other trial is better than one of these in one objective and as good in all others. With
        one objective, the front is the best trial.
        """
        return list(self._reader.snapshot(self._best))

    @property
    def best_trial(self) -> Trial:
        """The best trial by the first objective.

        Raises:
            StudyError: No trial is complete.
        """
        return first_of(self._reader.snapshot(self._best), self._directory)

    def _best(self, now: LedgerReader) -> tuple[Trial, ...]:
        """Return the best trials, which are read again only after further events."""
        # Another study may take the place of this one, as by `overwrite=True`.
        facts = now.facts()
        state = facts["created_at"], now.event_count()
        known_at, best = self._best_at
        if state != known_at:
            goals = goals_of(facts)
            known = judged(self._directory, goals, now.trials())
            best = Ranking.of(goals, known, now.attempts()).best
            self._best_at = state, best
        return best

    @property
    def best_hyperparameters(self) -> ChosenHyperparameters:
        """The best trial's configuration: a dict, and an `hp` for the model function.

        `build_model(study.best_hyperparameters)` builds the best model, to be trained again.
        """
        best, facts = self._reader.snapshot(lambda now: (self._best(now), now.facts()))
        return ChosenHyperparameters.of(
            facts["space"], dict(first_of(best, self._directory).params)
        )

    @property
    def model_path(self) -> Path | None:
        """Path of the best model; None if the objective stored none."""
        return StudyFiles(self._directory, self.goals).model_path()

    def best_model(self, number: int | None = None) -> Any:
        """Return the best trial's Keras model, as it was after its best epoch.

        A model that Keras cannot load from its file alone is built again by the model function,
        and gets the stored weights. If the model file was changed after the study's last run, the
        study's own copy of it is used, with a warning.

        Args:
            number: Number of one of `best_trials`; None for `best_trial`.

        Raises:
            StudyError: There is no Keras model, or it cannot be loaded.
        """
        self._directory.open(Use.RUN)
        best = [each for each in self.best_trials if number in (None, each.number)]
        if fault := self.best_fault(best[:1]):  # a master that was killed may not have kept it yet
            raise StudyError(fault)
        files = StudyFiles(self._directory, self.goals)
        of = files.best_number() if number is None else number
        path = None if of is None else files.models().get(of)
        if of is None or path is None or not path.is_file():
            found = "no trial stored a model" if path is None else f"the trial stored {path}"
            if path is None and number is not None:
                found = f"trial {number} is none of the best, or stored none (see trial_model)"
            raise StudyError(f"{self._directory} has no Keras model: {found}")
        return self._load(path, of)

    def best_models(self, count: int = 1) -> list[Any]:
        """Return the Keras models of the best trials, the best first, each as after its best epoch.

        If a `fit` of the user's own returned a result of no epoch, the model is as `fit` left it.
        The models of the trials after the best are read from their last checkpoints. A study keeps
        those of `keep_checkpoints` trials. Repeats are no further trials here.

        Args:
            count: The number of models; fewer if fewer trials are complete.

        Raises:
            StudyError: The model of one of them is not kept.
        """
        best = [trial.number for trial in configurations(self.view()) if trial.has_result]
        return [*map(self.trial_model, best[:count])]

    def trial_model(self, number: int) -> Any:
        """Return the Keras model of one trial, as `best_models` does.

        Raises:
            StudyError: It is not kept.
        """
        self._directory.open(Use.RUN)
        kept = StudyFiles(self._directory, self.goals).models()
        return self._load(kept.get(number, self._directory.trial(number)), number)

    def _load(self, path: Path, number: int) -> Any:
        facts = self._reader.facts()
        given = settings_of(self._directory, facts).source
        of_here = replace(given, working_directory="")  # this process is the user's
        source, warning = as_trained(of_here, self._directory.path)
        if warning:
            warnings.warn(warning, stacklevel=3)
        from ..training.keras.kept_model import load_kept

        trial = self.trial(number)
        return load_kept(path, source, facts["space"], trial.params, step=trial.step)

    # --- notes and the live page --------------------------------------------------------------

    def note(
        self,
        words: str = "",
        *,
        trial: int | None = None,
        tags: Sequence[str] = (),
        remove_tags: Sequence[str] = (),
    ) -> None:
        """Write a note on the study or on a trial, or change its tags, also while it runs.

        `status`, reports and exports show them; the search does not see them.

        Args:
            words: The note; empty to change only tags.
            trial: The trial's number; None for the study as a whole.
            tags: Tags to add, each a word such as "baseline".
            remove_tags: Tags to remove.

        Raises:
            UsageError: There is no such trial, or a tag is no word.
            StudyError: This user may not write to the study.
        """
        from ..storage.notes import write_note

        note = Note(words, tuple(tags), tuple(remove_tags))
        write_note(self._directory, note, trial=trial, tool="Python")

    def dashboard(self, port: int = 0) -> Dashboard:
        """Serve the live page of the study until this process ends, or until its `close`.

        Args:
            port: The port on this machine to listen on; 0 for a free one.

        Returns:
            The page's `address`; a notebook shows it as a link.

        Raises:
            OSError: The port cannot be had.
        """
        from .dashboard import Dashboard, study_server

        self.view()  # an error of the study comes now, not in the browser
        return Dashboard(study_server(self, port))

    @property
    def notes(self) -> list[str]:
        """The notes on the study as a whole; those on trials are in `trials_dataframe`."""
        return self.view().texts_on()

    @property
    def tags(self) -> tuple[str, ...]:
        """The tags of the study as a whole."""
        return self.view().tags_of()

    # --- for figures, reports and exports -----------------------------------------------------

    def study_trials(self, known: FollowedReports | None = None) -> StudyTrials:
        """Return the trials as the figures need them.

        Args:
            known: The reports of the first objective that were read before; None to read all.
        """
        return self._study_trials(LedgerReader.reports if known is None else known.rows)

    def _study_trials(
        self, reports: Callable[[LedgerReader], Sequence[ReportedValue]]
    ) -> StudyTrials:
        from ..reporting.html.trials import StudyTrials

        reading = self._view_reading()

        def trials(now: LedgerReader) -> StudyTrials:
            space = SearchSpace.from_json(now.facts()["space"])
            return StudyTrials(reading.view(now), space, reports(now))

        return self._reader.snapshot(trials)

    def exported(self) -> ExportedStudy:
        """Return the study as the exports need it."""
        reading = self._view_reading()
        facts, view, reports = self._reader.snapshot(
            lambda now: (now.facts(), reading.view(now), now.reports())
        )
        known = {
            "hptune version": facts["hptune_version"],
            "hptune search": view.search,
            "hptune seed": str(facts["seed"]),
            "hptune directory": printable(view.directory),
        }
        return ExportedStudy(
            view,
            SearchSpace.from_json(facts["space"]),
            reports,
            identity=f"{facts['created_at']!r} {facts['seed']}",
            facts=known,
        )

    def setup(self) -> Setup:
        """Return how the study was started."""
        from ..reporting.html.report import Setup
        from ..scaling.page import kept_panel

        facts, requests = self._reader.snapshot(lambda now: (now.facts(), now.user_requests()))
        settings = settings_of(self._directory, facts)
        given = given_options(settings)
        without_seed = [pair for pair in given if pair[0] != "--seed"]
        seeded = [*without_seed, ("--seed", str(facts["seed"]))]
        options = shlex.join(filter(None, itertools.chain.from_iterable(seeded)))
        command = f"hptune run {path(settings.source.path)} {options}"
        of_trial = itertools.chain.from_iterable(p for p in given if p[0] in _OF_TRIAL)
        parts = ("hptune run", path(settings.source.path), shlex.join(of_trial), "--trials 1")
        run_one = " ".join(filter(None, parts))
        if settings.source.kind is not SourceKind.FILE:
            call = "Tuner" if settings.source.kind is SourceKind.PICKLE else "hptune.open_study"
            command, run_one = f"in Python, with {call}(...) and the settings below", ""
        return Setup(
            command,
            [
                *without_seed,
                ("seed", str(facts["seed"])),
                ("hptune", facts["hptune_version"]),
                ("begun", moment(facts["created_at"])),
            ],
            run_one=run_one,
            scaling=lambda: kept_panel(self._directory.path),
            requests=[each for each in requests if each.note is None],
        )

    # --- for the command line ---------------------------------------------------------------

    def view(self) -> StudyView:
        """Return the data that texts and tables about the study are made from."""
        reading = self._view_reading()
        return self._reader.snapshot(reading.view)

    def _view_reading(self) -> ViewReading:
        return ViewReading(self._directory, self.goals, self._job_of)

    def best_fault(self, best: Sequence[Trial]) -> str:
        """Return what is wrong with the best trials' files in `best/`, and what helps; or "".

        Not known while a master runs the study, because it may be replacing them.
        """
        if self._directory.owner() is not None:
            return ""
        files = StudyFiles(self._directory, self.goals)
        return next(filter(None, (files.fault(trial.number) for trial in best)), "")

    def reports(self, number: int | None = None) -> list[ReportedValue]:
        """Return what a trial reported, in all its attempts; for None, what all trials did."""
        return self._reader.reports(number)


_OF_TRIAL = {"--entry", "--objective", "--epochs", "--strategy", "--python"}
"""Options that the command for one trial has."""

_NOT_KEPT = {
    *("best_fault", "exported", "read", "report_contents", "report_html", "report_markdown"),
    *("reports", "setup", "study_trials", "view"),
}
"""Names that hptune's own modules use; see docs/stability.md."""


def first_of(best: Sequence[Trial], directory: StudyDirectory) -> Trial:
    """Return the first of the best trials of the study in a directory.

    Raises:
        StudyError: There is none, as no trial is complete.
    """
    if not best:
        raise StudyError(
            f"no trial of {directory} is complete yet; see `hptune status {directory}`."
        )
    return best[0]


_FOLDERS_DEEP = 3
"""How deep `find_directories` looks: below `studies`, and in folders of experiments."""


def listed(directory: Path, job_of: MasterJobOf = lambda _: None) -> ListedStudy:
    """Return a study that was found, or why it cannot be read.

    Args:
        directory: Its directory.
        job_of: Asks Slurm for its master.
    """
    study = StudyDirectory(directory)
    try:
        return ListedStudy(str(directory), Study(study, _job_of=job_of).view())
    except HptuneError as error:
        job = None if study.has_ledger else job_of(study)
        is_starting = isinstance(error, StartingStudyError) or (job is not None and not job.is_gone)
        return ListedStudy(str(directory), None, error.message, is_starting)


def find_directories(
    folder: str | os.PathLike[str], on_error: Callable[[OSError], object] | None = None
) -> list[Path]:
    """Return the directories of the studies in and below a folder, at most three levels deep.

    Args:
        folder: The folder.
        on_error: Called for each folder that cannot be read, and so has no studies here.
    """
    found: list[Path] = []
    top = whole_path(folder)
    for name, folders, files in os.walk(top, onerror=on_error):
        path = Path(name)
        is_begun = "study.db" in files or ("lock" in files and living_owner(path) is not None)
        if is_begun or os.access(path / "jobs" / "master.sbatch", os.F_OK):
            folders.clear()
            found.append(path)
        elif len(path.relative_to(top).parts) >= _FOLDERS_DEEP:
            folders.clear()
        folders[:] = sorted(each for each in folders if not each.startswith("."))
        # A study may lie elsewhere, as in a scratch file system; other links are not followed.
        links = [path / each for each in folders if (path / each).is_symlink()]
        found += [each for each in links if os.access(each / "study.db", os.F_OK)]
    return found
