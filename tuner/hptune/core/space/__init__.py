"""The search space: parameters, conditions, and configurations in it.

Sampling, the unit cube, JSON in KerasTuner's format, defaults, priors and grids.

Offers: `space.SearchSpace`, `completion.completed`, `enumeration.Configurations`,
`user_priors.with_priors`, `earlier_study.EarlierStudy`.

May import: `errors`, `core`, `core.space.parameters`.
"""
