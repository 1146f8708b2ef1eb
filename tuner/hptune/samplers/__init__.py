"""Search algorithms, which choose the configurations to try.

The contract is `core.sampler.Sampler`. Samplers are deterministic: random numbers come from the
study's seed and the trial's number. They do not import each other; `registry` makes them by name.

Offers: `registry.make_sampler`, `registry.SAMPLERS`, `auto.choose`.

May import: `errors`, `core`, `samplers.common`, `samplers.wrappers`, `registry`.
"""
