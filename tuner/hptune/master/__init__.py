"""The process that runs one study.

Settles the plan, starts workers, and drives the engine from events until the study ends. Imports
no machine learning framework.

Offers: `run.start`, `run.resume`, `replay.replay`, `detached`.

May import: `errors`, `text`, `core`, `samplers`, `storage`, `config`, `worker`, `executors`,
`clusters`, `reporting`, `master.earlier`, `scaling`, `registry`, `files`, `user_code`.
"""
