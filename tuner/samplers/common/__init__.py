"""What several samplers share: encoding, observed results, initial designs, duplicates.

Offers: `encoding.Axes`, `observations.History`, `initial_design.Start`, `untried.Unseen`.

May import: `core`.
"""
