"""Dask workers, on this machine or others.

Offers: `plugin.StudyPlugin`, `announcement.Announcement`, `calls` (of the master to a worker),
`offer.offered` and `worker.join` (`hptune worker`), `study_access.StudyAccess`,
`encryption.security`, `connection_limit.limit_connections`, `versions`,
`worker_server.WorkerServer`; `plugin_state` decides, `study_attempts` has the threads.

May import: `errors`, `text`, `core`, `files`, `user_code`, `security`, `worker`,
`worker.forkserver`, `worker.gpus`, `worker.monitoring`, `worker.transport`.
"""
