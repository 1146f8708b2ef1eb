"""Values and decisions: no file, network, clock, thread or framework.

The modules here are the vocabulary of the whole package. The folders hold the search space, the
engine and what the engine decides by.

Offers: `trial`, `attempt`, `messages`, `resources`, `goals`, `ranking`, and the contracts
`sampler.Sampler` and `pruner.Pruner`.

May import: `errors`.
"""
