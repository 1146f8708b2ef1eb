"""A process that has imported the framework and the user's file, and forks attempts.

Offers: `client.ForkServer`. `server` and `child` run in processes of their own.

May import: `errors`, `text`, `core`, `files`, `user_code`, `training`, `worker`,
`worker.monitoring`, `worker.gpus`.
"""
