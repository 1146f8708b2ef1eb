"""The user's request, read and checked: settings, objectives, start points.

The fields of `options.StudyOptions` are the table of all options: the command line, arguments of
`Tuner`, checks, help and `docs/reference-options.md` are made from it. Wrong values raise
`UsageError`.

Offers: `settings.StudySettings`, `settings.SETTINGS`, `asked`, `resolved`, `plugins`, `reference`,
`objectives.resolve_goals`, `start_points.read_points`, `record_formats`.

May import: `errors`, `core`, `samplers`, `pruners`, `registry`, `files`, `user_code`.
"""
