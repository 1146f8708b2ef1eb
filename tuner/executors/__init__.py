"""Who carries attempts to workers: Dask, joblib, or a simulation of either."""
