"""What several samplers share: encoding, observed results, initial designs, duplicates.

Offers: `encoding.Encoding`, `observations.History`, `initial_design.InitialDesign`,
`untried.Untried`.

May import: `core`.
"""
