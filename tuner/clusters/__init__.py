"""Where workers come from if not from this machine.

Each cluster has a Dask scheduler that workers join: one that the user started, Slurm jobs, or the
nodes of the Slurm job that the run is in.

Offers: `base.Cluster` (the contract), `base.ExistingScheduler`, `slurm_jobs.SlurmWorkers`,
`slurm_allocation.AllocationWorkers`, `scheduler.serve` (`hptune scheduler`).

May import: `errors`, `core`, `config`, `worker`.
"""
