"""`hptune doctor`: checks whether hptune works here, and says how to fix what does not.

Each check runs in a process of its own with a time limit.

Offers: `examination.examine`, `slurm_jobs.examine_jobs`, `report.DoctorReport`, `findings.Finding`.

May import: `errors`, `text`, `core`, `files`, `user_code`, `storage`, `training`,
`worker`, `executors`, `clusters`.
"""
