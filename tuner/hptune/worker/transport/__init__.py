"""Files of a study on workers that do not see the study's directory.

Such a worker has a local copy of the few files that its trials need, in a private folder. A trial's
files are brought to it before the trial starts there, and what changes goes back to the study's
directory while the trial runs and at its end. So code that reads and writes a trial's files knows
one directory, and does not know which one it is.

The master does all the work, by calls over Dask's connections: it reads and writes files of the
worker, piece by piece. The worker only says what it wants and what has changed. So no port is
opened, one piece of a file is in memory at a time, and a slow master slows the workers down.

Offers: `files` (one file in pieces), `local_study.LocalStudy` (the worker's copy),
`remote_study.RemoteStudy` (keeps it equal to the study's directory), `file_requests` (fetches files
from there), `notices` (what the worker says). The master's half is `executors.file_exchange`.

May import: `errors`, `core`.
"""
