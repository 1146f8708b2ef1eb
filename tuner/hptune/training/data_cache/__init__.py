"""One call of `load_data()` per node and study; the trials there share its arrays.

Offers: `data_cache.cached`, `data_cache.call_load_data`; `data_cache.note_import`, `join` and
`close` for the process that starts the trials.

May import: `core`, `files`, `user_code`, `training.resume`.
"""
