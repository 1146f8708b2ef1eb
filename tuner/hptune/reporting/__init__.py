"""Output for people, while a study runs (`terminal`) and afterwards (`results`).

Offers: `table`: rows and columns in plain text, `sqlite_files`: SQLite files of other tools.

May import: `errors`, `text`.
"""
