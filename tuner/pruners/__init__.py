"""Early stopping: which running trials are not worth more epochs.

The contract is `core.pruner.Pruner`. Pruners are pure: their answers follow from the reports that
they were given.

Offers: `registry.make_pruner`, `registry.PRUNER_NAMES`.

May import: `errors`, `core`.
"""
