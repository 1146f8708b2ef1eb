"""Samplers of other libraries behind the contract of ours: scikit-optimize and Optuna.

Offers: `skopt.SkoptSampler`, `optuna.OptunaSampler`.

May import: `errors`, `core`, `samplers.common`, `samplers.gp`.
"""
