"""Dask workers, on this machine or others.

Offers: `plugin.StudyPlugin`, `worker.join` (`hptune worker`), `study_access.StudyAccess`,
`versions`.

May import: `errors`, `core`, `config`, `worker`, `worker.monitoring`.
"""
