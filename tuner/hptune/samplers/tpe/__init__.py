"""The tree-structured Parzen estimator (`--search tpe`).

Offers: `sampler.TpeSampler`.

May import: `core`, `samplers.common`.
"""
