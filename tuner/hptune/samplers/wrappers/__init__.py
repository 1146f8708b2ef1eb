"""Samplers that wrap another one: start points, warm start, guidance decay.

Offers: `start_points.StartPoints`, `warm_start.WarmStart`, `guidance_decay.GuidanceDecay`.

May import: `errors`, `core`, `samplers.common`.
"""
