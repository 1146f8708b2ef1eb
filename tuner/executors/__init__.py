"""Executors run attempts: on Dask workers, on joblib workers, or in a simulation.

An executor starts and stops attempts and delivers their events. It decides nothing.

Offers: `base.Executor` (the contract), `dask.DaskExecutor`, `joblib.JoblibExecutor`,
`parallel.ParallelExecutor` (several processes per attempt, on any of them),
`simulated.SimulatedExecutor`.

May import: `errors`, `core`, `security`, `config`, `worker`.
"""
