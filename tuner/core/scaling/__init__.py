"""How far a model scales over devices: what is measured, and what follows from it.

Offers: `points.points` (what is measured), `curve.ScalingCurve` (what was), `rows.rows` (speed-up,
efficiency and communication, with their noise), `turn.turn` (the batch below which more devices are
a waste), `split.choose_split` (devices for each trial of a study).

May import: `errors`.
"""
