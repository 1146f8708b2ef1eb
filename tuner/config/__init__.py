"""What the user asked for, read and checked.

Settings, the model file, objectives, constraints and start points. Raises `UsageError` for
anything that cannot be meant.

Offers: `settings.StudySettings`, `model_file.load`, `objectives.resolve_goals`,
`start_points.read_points`.

May import: `errors`, `core`, `samplers`, `storage`.
"""
