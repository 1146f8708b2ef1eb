"""Clusters: the sources of a run's workers, and of the executor that uses them.

Each cluster implements one contract: processes on this machine, workers that joined a Dask
scheduler of the user's, Slurm jobs, the nodes of the Slurm job that the run is in, or jobs of
another batch system.

Offers: `base.Cluster` (the contract), `choice.choose_cluster`, `local.LocalWorkers`,
`existing.ExistingScheduler`, `existing.ClientWorkers`, `slurm_jobs.SlurmWorkers`,
`slurm_allocation.AllocationWorkers`, `batch_jobs.BatchWorkers`, `slurm_master` (a master that is
a job itself), `shown_jobs` (the jobs in `hptune status`), `layout` (how a machine's cores are
divided), `scheduler.serve` (`hptune scheduler`), `running_studies.study_at`.

May import: `errors`, `text`, `registry`, `core`, `files`, `security`, `storage`, `config`,
`worker`, `executors`.
"""
