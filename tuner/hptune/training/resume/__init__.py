"""Checkpoints of a training, and how another process continues from them.

Offers: `checkpoint.Checkpoints`, `resumption.Resumption`, `randomness.seed_everything`.

May import: `errors`, `core`, `files`, `training`, `user_code`.
"""
