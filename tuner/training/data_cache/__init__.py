"""`load_data()` called once per node; all trials there map the same arrays.

Offers: `data_cache.data_cache`, `data_cache.call_load_data`.

May import: `storage`, `config`.
"""
