"""Measurements of attempts: what they use, whether they hang, and whether their master lives.

Offers: `usage.Meter`, `gpu.GpuUsage`, `memory.free_bytes`, `cgroups`, `watchdog.Watchdog`,
`master_liveness.MasterLiveness`.

May import: `core`, `storage`.
"""
