"""The methods of `Study` that write it for other programs."""

from __future__ import annotations

import contextlib
import io
import itertools
import logging
import os
import time
import traceback
from abc import ABC, abstractmethod
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from ... import text
from ...errors import HptuneError, StudyError, check_installed, without_passwords
from ...storage.output_files import write_output
from ..results import export as files
from ..results.export import METRIC, PARAM, Table
from ..results.rows import Place
from ..results.view import StudyView
from .registry import EXPORTS, ExportRow
from .source import ExportedStudy, Written

if TYPE_CHECKING:
    import pandas as pd


log = logging.getLogger(__name__)

FOLLOW_SECONDS = 5.0
"""Time between two writings of the trials that have ended."""

_MOST_SECONDS = 300.0
"""The longest such time, for a large study or after a server did not answer."""

_REST = 10.0
"""The shortest such time, per time that the last writing has used a processor; so for a look."""

_END_SEEN_SECONDS = 0.5
"""The shortest time between two looks whether the study is over."""


class Exports(ABC):
    """Data frames, files and exports to other tools; a base class of `Study`."""

    @abstractmethod
    def exported(self) -> ExportedStudy:
        """Return the study as the exports need it."""

    @abstractmethod
    def view(self) -> StudyView:
        """Return the study without its reports."""

    def trials_dataframe(self, *, compact: bool = False) -> pd.DataFrame:
        """Return a table of all trials, with the columns of `hptune export --format csv`.

        Each hyperparameter (`param.<name>`) and metric (`metric.<name>`) has a column, and `origin`
        says what proposed the trial. Values keep their types; a value that a trial does not have
        is missing. `value` of a trial that was pruned is that of its last step, which cannot
        be compared with those of complete trials.

        Args:
            compact: Return a table to look at: state, value, step, hyperparameters and metrics by
                their own names, seconds, tags and notes, with the trial's number as the index.

        Raises:
            MissingPackageError: pandas is not installed.
        """
        if compact:
            return _dataframe(compact_table(self.exported().view)).set_index("trial")
        return _dataframe(self._table())

    def curves_dataframe(self) -> pd.DataFrame:
        """Return the learning curves: a row for each metric at each step of each attempt.

        The columns are trial, attempt, step, metric, value, and time (seconds since the epoch).

        Raises:
            MissingPackageError: pandas is not installed.
        """
        return _dataframe(self._curves())

    def export(self, stream: TextIO, *, file_format: str, curves: bool = False) -> None:
        """Write the study.

        Args:
            stream: Where to write; a file opened with `newline=""`.
            file_format: "csv" (a row for each trial) or "json" (with attempts and reports).
            curves: Write the learning curves instead of the trials, as CSV.
        """
        if curves or file_format == "csv":
            files.export_csv(self._curves() if curves else self._table(), stream)
        else:
            study = self.exported()
            files.export_json(study.view, study.reports, stream, now=time.time())

    def export_parquet(self, file: str | os.PathLike[str], *, curves: bool = False) -> None:
        """Write the trials, or the learning curves, as a Parquet file.

        Raises:
            MissingPackageError: pyarrow is not installed.
            UsageError: The file cannot be written.
        """
        write_parquet(self._curves() if curves else self._table(), Path(file))

    def export_to(
        self, tool: str, place: str | os.PathLike[str] = "", *, follow: bool = False
    ) -> str:
        """Write the study for a tool, in place of an earlier export of it.

        Args:
            tool: Name of an export, "optuna", "tensorboard", "mlflow", "wandb" or that of an
                installed package, or module:Name.
            place: Where to write: a file or URL of a storage for Optuna, a folder for TensorBoard
                or for W&B's files, a tracking URI, file or folder for MLflow. By default a place in
                the study's directory; for MLflow MLFLOW_TRACKING_URI, if that is set.
            follow: Write each trial soon after its end; return when nothing continues the study.
                A server that does not answer is tried again.

        Returns:
            What was written, and the command that shows it.

        Raises:
            UsageError: There is no such export, the place cannot be used, or the tool's package is
                not installed.
            StudyError: The export of a plug-in failed.
        """
        row = EXPORTS.find(tool, [Path.cwd()])
        if follow:
            row.check({})
            self._follow(row, os.fspath(place))
        # A trial that a later run continues is written when it is over, and so once.
        study = self.exported().of_ended() if follow else self.exported()
        written = _written(row, study, os.fspath(place))
        # The user who has the password sets it in the command.
        place, command = without_passwords(written.place), without_passwords(written.command)
        count = len(study.view.trials) if written.count is None else written.count
        where = place if "://" in place else text.path(place)
        named = f" as {written.name!r}" if written.name else ""
        words = f"Wrote {text.plural(count, 'trial')} to {where}{named}"
        return f"{words}. To look at them: {command}" if command else words

    def _follow(self, row: ExportRow, place: str) -> None:
        """Write the trials that end, until the study is over."""
        count, pause, next_at, used = 0, FOLLOW_SECONDS, 0.0, time.process_time()
        while not self.view().has_ended:
            look_in = max(_END_SEEN_SECONDS, _REST * (time.process_time() - used))
            if time.monotonic() >= next_at:
                used = time.process_time()
                try:
                    ended = self.exported().of_ended()
                    if len(ended.trials) != count:
                        _written(row, ended, place)
                    count, pause = len(ended.trials), FOLLOW_SECONDS
                except (HptuneError, OSError) as error:
                    pause *= 2
                    words = without_passwords(text.shorten(str(error), 300))
                    log.warning("%s; tried again in %.0f s", words, min(pause, _MOST_SECONDS))
                # A large study takes long, and others use this machine, too.
                pause = min(max(pause, _REST * (time.process_time() - used)), _MOST_SECONDS)
                next_at = time.monotonic() + pause
            time.sleep(look_in)
            used = time.process_time()

    def _table(self) -> Table:
        return files.table(self.exported().view, now=time.time())

    def _curves(self) -> Table:
        return files.curves(self.exported().reports)


def compact_table(view: StudyView) -> Table:
    """Return the columns of `table` that people compare, with short cells.

    Hyperparameters and metrics have their own names, unless another column has it. Left out are
    the objective's own metric, which is the value, and what attempts held, cost and ended with.
    """
    whole = files.table(view, Place.COMPACT)
    nested = [name for name in whole.columns if name.startswith((PARAM, METRIC))]
    names = {name: name for name in whole.columns if name != f"{METRIC}{view.goal.metric}"}
    for column in nested:
        _, _, name = column.partition(".")
        if column in names and name not in names.values():
            names[column] = name
    rows = [{names[k]: v for k, v in row.items() if k in names} for row in whole.rows]
    return Table([*names.values()], rows)


def _written(row: ExportRow, study: ExportedStudy, place: str) -> Written:
    try:
        written = row.make(study, place, given={})
    except (HptuneError, OSError):
        raise
    except Exception as error:  # a plug-in may raise anything
        words = f"the export {row.name} failed: {type(error).__name__}: {error}"
        raise StudyError(words, "".join(traceback.format_exception(error))) from error
    if not isinstance(written, Written):
        raise StudyError(f"the export {row.name} returned {written!r}; it must be a Written")
    return written


def _dataframe(rows: Table) -> pd.DataFrame:
    check_installed("pandas", "a data frame")
    import pandas as pd

    return pd.DataFrame(rows.rows, columns=rows.columns)


def write_parquet(table: Table, path: Path) -> None:
    """Write a table as a Parquet file; a value that a row lacks is null.

    A column whose values have several types, such as a hyperparameter that is a number in some
    trials and None in others, holds texts; so does one of whole numbers from 2**63 on.
    """
    check_installed("pyarrow", "the export to Parquet")
    import pyarrow as pa
    from pyarrow import parquet

    found = pa.table({name: _column(pa, table, name) for name in table.columns})
    file = io.BytesIO()
    parquet.write_table(found, file)
    write_output(path, file.getvalue())


def _column(pa: Any, table: Table, name: str) -> Any:
    # A hyperparameter may be None, which is not the same as having none.
    has_value = [
        name in row and (row[name] is not None or name.startswith(PARAM)) for row in table.rows
    ]
    cells = [row.get(name) for row in table.rows]
    kinds = {type(cell) for cell in itertools.compress(cells, has_value)}
    if kinds <= {int, float} or (len(kinds) == 1 and type(None) not in kinds):
        with contextlib.suppress(OverflowError, ValueError):  # a number that its types cannot hold
            return pa.array(cells)
    return [str(cell) if has else None for cell, has in zip(cells, has_value, strict=True)]
