"""Notes and tags of a study and its trials, as text and as plain data."""

from __future__ import annotations

from dataclasses import asdict

from ... import text
from .view import StudyView


def note_lines(view: StudyView, trial: int | None = None) -> list[tuple[str, str]]:
    """Return the tags and the notes of a trial or of the study, each with a label."""
    tags = " ".join(map(text.clean, view.tags_of(trial)))
    notes = [
        f"{text.clean(each.text)} ({text.clean(each.by.partition(' (')[0])}, "
        f"{text.moment(each.at)[:-3]})"
        for each in view.notes_on(trial)
    ]
    return [("tags", tags)] * bool(tags) + [("note", note) for note in notes]


def note_words(view: StudyView, trial: int) -> str:
    """Return the tags and the notes of a trial in one line."""
    tags = [f"#{tag}" for tag in view.tags_of(trial)]
    return text.clean("; ".join(filter(None, (" ".join(tags), *view.texts_on(trial)))))


def notes_text(view: StudyView, trial: int | None = None) -> str:
    """Return the output of `hptune note`: all notes and tags, or those of one trial."""
    numbers = sorted({note.trial for note in view.notes if note.trial is not None})
    of: list[int | None] = [None, *numbers] if trial is None else [trial]
    lines = [
        f"{'study' if number is None else f'trial {number}'}, {label}: {words}"
        for number in of
        for label, words in note_lines(view, number)
    ]
    return "\n".join(lines) or "there are no notes"


def notes_json(view: StudyView, trial: int | None = None) -> dict[str, object]:
    """Return the tags and the notes of a trial or of the study as plain data."""
    return {
        "tags": list(view.tags_of(trial)),
        "notes": [asdict(each) for each in view.notes_on(trial)],
    }
