"""Output for people, while a study runs (`terminal`) and afterwards (`results`).

Offers: `text`: values, times and sizes as text.

May import: `core`.
"""
