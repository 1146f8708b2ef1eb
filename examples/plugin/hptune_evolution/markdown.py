"""Writes the trials of a study as a table in Markdown."""

from __future__ import annotations

from pathlib import Path

from hptune.reporting.exports.source import ExportedStudy, Written


def write(study: ExportedStudy, place: str) -> Written:
    """A table of all trials in Markdown."""
    path = Path(place or Path(study.view.directory) / "trials.md")
    names = sorted({name for trial in study.trials for name in trial.params})
    rows = [["trial", "state", "value", *names], ["---"] * (3 + len(names))]
    for trial in study.trials:
        values = [trial.number, trial.state.name.lower(), trial.value]
        rows.append([str(each) for each in (*values, *(trial.params.get(n, "") for n in names))])
    path.write_text("".join(f"| {' | '.join(row)} |\n" for row in rows))
    return Written(str(path))
