"""Output for people, while a study runs (`terminal`) and afterwards (`results`).

Offers: `table`: rows and columns in plain text, `sqlite_files`: databases of other tools.

May import: `errors`, `text`.
"""
