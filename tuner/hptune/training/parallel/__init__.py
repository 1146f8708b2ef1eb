"""A trial of several processes: its ranks, and the connections between them.

A *rank* is one process of an attempt. The ranks meet, then agree over connections of their own at
which step they stop. The framework's connections are its own affair.

Offers: `ranks.Ranks` (the handle of one rank).

May import: `core`, `training`.
"""
