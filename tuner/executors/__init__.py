"""Where attempts run: Dask workers, joblib workers, or a simulation of either.

An executor starts and stops attempts and delivers their events. It decides nothing.

Offers: `base.Executor` (the contract), `dask.DaskExecutor`, `joblib.JoblibExecutor`,
`simulated.SimulatedExecutor`.

May import: `errors`, `core`, `config`, `worker`.
"""
