"""Dask workers, on this machine or others.

Offers: `plugin.StudyPlugin`, `worker.join` (`hptune worker`), `study_access.StudyAccess`,
`encryption.security`, `versions`.

May import: `errors`, `core`, `security`, `config`, `worker`, `worker.monitoring`,
`worker.transport`.
"""
