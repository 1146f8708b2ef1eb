"""The tools that a study is exported to, and where to by default."""

from __future__ import annotations

import enum
import os
import shlex
from pathlib import Path

from ...errors import UsageError, without_passwords
from .. import text
from .source import ExportedStudy


class Tool(enum.StrEnum):
    """A tool that reads exported studies."""

    OPTUNA = "optuna"
    TENSORBOARD = "tensorboard"
    MLFLOW = "mlflow"


def export_to(tool: Tool, study: ExportedStudy, place: str) -> str:
    """Write the study for a tool; see `Exports.export_to`."""
    directory = Path(study.view.directory)
    count = text.plural(len(study.view.trials), "trial")
    match tool:
        case Tool.OPTUNA:
            from .optuna import export_optuna, storage_url

            place = place or str(directory / "optuna.db")
            name = export_optuna(study, place)
            command = f"optuna-dashboard {shlex.quote(storage_url(place))}"
            named = f" as {name!r}"
        case Tool.TENSORBOARD:
            from .tensorboard import export_tensorboard

            if "://" in place:
                raise UsageError(f"{place} is a URL; TensorBoard's files are written to a folder")
            folder = Path(place or directory / "tensorboard")
            export_tensorboard(study, folder)
            place, named = str(folder), ""
            command = f"tensorboard --logdir {text.path(folder)}"
        case Tool.MLFLOW:
            from .mlflow import export_mlflow, tracking_uri

            place = place or os.environ.get("MLFLOW_TRACKING_URI") or str(directory / "mlflow.db")
            uri = tracking_uri(place)
            named = f" as {export_mlflow(study, uri)!r}"
            is_server = uri.startswith("http")
            command = "" if is_server else f"mlflow ui --backend-store-uri {shlex.quote(uri)}"
    # The user who has the password sets it in the command.
    place, command = without_passwords(place), without_passwords(command)
    written = f"Wrote {count} to {place if '://' in place else text.path(place)}{named}"
    return f"{written}. To look at them: {command}" if command else written
