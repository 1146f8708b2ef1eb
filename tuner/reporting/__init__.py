"""What people see of a study, while it runs (`terminal`) and afterwards (`results`).

Offers: `text`: how values, times and sizes are written everywhere.

May import: `core`.
"""
