"""Dask workers as Slurm jobs, sized by what a trial needs.

The jobs' workers join a Dask scheduler. The package submits, replaces and cancels jobs, reads
`slurm.toml`, and knows nothing of `hptune`.

Offers: `config.read_config`, `cluster`, `allocation`, `master` (the job of a detached master),
`template` (a first `slurm.toml`), `script`, `sizing`, `job_reports` (also the file with the jobs,
for other processes).

May import: nothing of `hptune`.
"""
