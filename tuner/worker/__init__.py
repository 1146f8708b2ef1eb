"""What runs on a worker's machine: it carries out attempts and measures them.

Each attempt is a process forked from the fork server, which has imported the framework already.

Offers: `orders` (what a worker is given), `runner.AttemptRunner`, `devices.capacity`,
`joblib_worker.serve`.

May import: `errors`, `core`, `storage`, `config`, `worker.forkserver`, `worker.monitoring`.
"""
