"""How many trials share a core or a GPU, and how much memory each is given.

Decided from what finished and running trials were measured to use.

Offers: `packing.Packing`, `decision.decide`.

May import: `core`, `core.scheduling`.
"""
