"""Dask workers as Slurm jobs, sized by what a trial needs; they join the scheduler they are told.

Knows nothing of tuner: the two meet at the address of a Dask scheduler.
"""
