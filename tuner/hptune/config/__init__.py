"""The user's request, read and checked: settings, model file, objectives, start points.

The fields of `options.StudyOptions` are the table of all options: the command line, arguments of
`Tuner`, checks, help and `docs/reference-options.md` are made from it. Wrong values raise
`UsageError`.

Offers: `settings.StudySettings`, `settings.SETTINGS`, `resolved`, `reference`, `model_file.load`,
`source_checks.check_source`, `entry_points.read_entry`,
`objectives.resolve_goals`, `start_points.read_points`, `record_formats`.

May import: `errors`, `core`, `samplers`, `pruners`, `registry`, `files`.
"""
