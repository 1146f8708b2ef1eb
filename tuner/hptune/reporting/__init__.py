"""Output for people, while a study runs (`terminal`) and afterwards (`results`).

Offers: `table`: rows and columns in plain text.

May import: `text`.
"""
