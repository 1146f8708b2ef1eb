"""Parts shared by samplers: encoding, observations, initial design, untried configurations.

Offers: `encoding.Encoding`, `observations.History`, `untried.Untried`,
`learning.LearningSampler`, `one_thread.one_thread`.

May import: `core`.
"""
