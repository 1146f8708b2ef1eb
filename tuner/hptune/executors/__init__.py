"""Executors run attempts: on Dask workers or on joblib workers.

An executor starts and stops attempts and delivers their events. It decides nothing.

Offers: `base.Executor` (the contract), `dask.DaskExecutor`, `dask_client.connect`,
`joblib.JoblibExecutor`, `parallel.ParallelExecutor` (several processes per attempt, on any of
them), `file_exchange.FileExchange` (files of workers that do not see the study's directory).

May import: `errors`, `core`, `user_code`, `security`, `worker`.
"""
