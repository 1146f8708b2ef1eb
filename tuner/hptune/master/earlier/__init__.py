"""Trials of the past that a new study learns from (`--warm-start`), from several sources.

Sources are studies of hptune, project directories of KerasTuner, storages of Optuna, and tables
(CSV, JSON). Each is read into a common form, `found.FoundTrials`, and judged by the new study's
goals and space in one place.

Offers: `read.read_earlier`, `sources.check_source`, `sources.notes_on_last_study`,
`keras_tuner_project.notes_on_project`.

May import: `errors`, `text`, `core`, `samplers`, `files`, `storage`, `config`, `reporting`.
"""
