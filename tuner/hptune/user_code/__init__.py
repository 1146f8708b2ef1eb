"""The user's own code: found, read, checked, copied and pickled, on every machine that runs it.

The master never runs it: it reads the source, and asks a child process for the rest. Workers and
trials know this room and nothing of the settings (`config`), which stand on it.

Offers: `source` (where the code is), `model_file.load`, `entry_points.read_entry`,
`source_checks.check_source`, `scripts`,
`programs` (`--command`), `search_arguments` (constants with the names of KerasTuner's arguments),
`pickling` (functions and data given in Python), `code_copy`, `user_errors`.

May import: `errors`, `core`, `files`.
"""
