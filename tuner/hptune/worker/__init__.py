"""The code of a worker: it runs attempts and measures them.

Each attempt is a process forked from the fork server, which has imported the framework already.

Offers: `orders` (what a worker receives), `runner.AttemptRunner` (whose decisions are
`runner_state`), `devices.capacity`, `gpus`, `device_locks`, `device_queue`, `joblib_worker.serve`.

May import: `errors`, `text`, `core`, `files`, `user_code`, `storage`, `worker.forkserver`,
`worker.monitoring`, `worker.gpus`.
"""
