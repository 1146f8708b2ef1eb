"""Samplers that wrap another one: start points, earlier studies, decaying guidance.

Offers: `start_points.StartPoints`, `warm_start.WarmStart`, `guidance_decay.GuidanceDecay`.

May import: `core`, `samplers.common`.
"""
