"""The methods of `Study` that write it for other programs."""

from __future__ import annotations

import os
import shlex
from abc import ABC, abstractmethod
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from ... import text
from ...errors import UsageError, check_installed, without_passwords
from ...storage.output_files import check_folder
from ..results import export as files
from ..results.export import Table
from .source import ExportedStudy

if TYPE_CHECKING:
    import pandas as pd


class Exports(ABC):
    """Data frames, files and exports to other tools; a base class of `Study`."""

    @abstractmethod
    def exported(self) -> ExportedStudy:
        """Return the study as the exports need it."""

    def trials_dataframe(self) -> pd.DataFrame:
        """Return a table of all trials, with the columns of `hptune export --format csv`.

        Each hyperparameter (`param.<name>`) and metric (`metric.<name>`) has a column, and `origin`
        says what proposed the trial. Values keep their types; a value that a trial does not have
        is missing.

        Raises:
            MissingPackageError: pandas is not installed.
        """
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
        if curves:
            files.export_csv(self._curves(), stream)
        elif file_format == "csv":
            files.export_csv(self._table(), stream)
        else:
            study = self.exported()
            files.export_json(study.view, study.reports, stream)

    def export_parquet(self, file: Path, *, curves: bool = False) -> None:
        """Write the trials, or the learning curves, as a Parquet file.

        Raises:
            MissingPackageError: pyarrow is not installed.
            UsageError: The file cannot be written.
        """
        from .parquet import export_parquet

        rows = self._curves() if curves else self._table()
        export_parquet(rows, file)

    def export_to(self, tool: str, place: str | os.PathLike[str] = "") -> str:
        """Write the study for a tool, in place of an earlier export of it.

        Args:
            tool: "optuna", "tensorboard" or "mlflow".
            place: Where to write: a file or URL of a storage for Optuna, a folder for TensorBoard,
                a tracking URI, file or folder for MLflow. By default a place in the study's
                directory; for MLflow MLFLOW_TRACKING_URI, if that is set.

        Returns:
            What was written, and the command that shows it.

        Raises:
            UsageError: The place cannot be used, or the tool's package is not installed.
        """
        study, place = self.exported(), os.fspath(place)
        directory = Path(study.view.directory)
        if not place and not (tool == "mlflow" and os.environ.get("MLFLOW_TRACKING_URI")):
            check_folder(directory)
        count = text.plural(len(study.view.trials), "trial")
        match tool:
            case "optuna":
                from .optuna import export_optuna, storage_url

                place = place or str(directory / "optuna.db")
                name = export_optuna(study, place)
                command = f"optuna-dashboard {shlex.quote(storage_url(place))}"
                named = f" as {name!r}"
            case "tensorboard":
                from .tensorboard import export_tensorboard

                if "://" in place:
                    raise UsageError(
                        f"{place} is a URL; TensorBoard's files are written to a folder"
                    )
                folder = Path(place or directory / "tensorboard")
                export_tensorboard(study, folder)
                place, named = str(folder), ""
                command = f"tensorboard --logdir {text.path(folder)}"
            case "mlflow":
                from .mlflow import export_mlflow, tracking_uri

                place = (
                    place or os.environ.get("MLFLOW_TRACKING_URI") or str(directory / "mlflow.db")
                )
                uri = tracking_uri(place)
                named = f" as {export_mlflow(study, uri)!r}"
                is_server = uri.startswith(("http", "databricks"))
                command = "" if is_server else f"mlflow ui --backend-store-uri {shlex.quote(uri)}"
            case _:
                raise UsageError(
                    f"the tool is {tool!r}; allowed are optuna, tensorboard and mlflow"
                )
        # The user who has the password sets it in the command.
        place, command = without_passwords(place), without_passwords(command)
        written = f"Wrote {count} to {place if '://' in place else text.path(place)}{named}"
        return f"{written}. To look at them: {command}" if command else written

    def _table(self) -> Table:
        return files.table(self.exported().view)

    def _curves(self) -> Table:
        return files.curves(self.exported().reports)


def _dataframe(rows: Table) -> pd.DataFrame:
    check_installed("pandas", "a data frame")
    import pandas as pd

    return pd.DataFrame(rows.rows, columns=rows.columns)
