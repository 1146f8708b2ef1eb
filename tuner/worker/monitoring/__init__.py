"""What attempts use, whether they hang, and whether their master is alive.

Offers: `usage.Meter`, `gpu.GpuUsage`, `memory.free_bytes`, `cgroups`, `watchdog.Watch`,
`master_liveness.MasterWatch`.

May import: `core`, `storage`.
"""
