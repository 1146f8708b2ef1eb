"""Early stopping of poor trials.

The contract is `core.pruner.Pruner`. Pruners are deterministic: their decisions depend only on
the reports and state changes that they were given.

Offers: `registry.make_pruner`, `registry.PRUNERS`.

May import: `errors`, `core`, `registry`.
"""
