"""Search algorithms: which configuration to try next.

The contract is `core.sampler.Sampler`. Samplers are pure: random numbers come from the study's
seed and the trial's number. They never import each other; `registry` makes them by name.

Offers: `registry.make_sampler`, `registry.SEARCH_NAMES`, `auto.choose`.

May import: `errors`, `core`, `samplers.adapters`, `samplers.common`, `samplers.gp`,
`samplers.tpe`, `samplers.wrappers`.
"""
