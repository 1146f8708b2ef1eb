"""Bayesian optimisation with a Gaussian process (`--search bayesian`).

Offers: `sampler.BayesianSampler`.

May import: `core`, `samplers.common`.
"""
