"""Adapters of scikit-optimize and Optuna to the sampler contract.

Offers: `skopt.SkoptSampler`, `optuna.OptunaSampler`.

May import: `errors`, `core`, `samplers.common`, `samplers.gp`.
"""
