"""How a model scales over devices: what is measured, and what follows from it.

Offers: `points.points` (what is measured), `curve.ScalingCurve` (what was), `rows.rows` (speed-up,
efficiency and communication, with their noise), `efficient_batch.efficient_batch` (the
batch from which on more devices are efficient), `sizes.TrialSizes` (what a trial holds),
`split.choose_split` (devices for each trial of a study).

May import: `errors`, `core`.
"""
