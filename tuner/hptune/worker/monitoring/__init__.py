"""Measurements of attempts: what they use, whether they hang, and whether their master lives.

Offers: `usage.Meter`, `energy`, `memory.free_bytes`, `cgroups`, `watchdog.Watchdog`,
`master_liveness.MasterLiveness`, `trial_log.limit_log`.

May import: `core`, `storage`, `worker`, `worker.gpus`.
"""
