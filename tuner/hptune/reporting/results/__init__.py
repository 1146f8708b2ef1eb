"""A study read from its ledger: status, best trials, costs, exports.

In all of them `now` is the time in seconds since the epoch, and `width` the number of characters in
a line, None for no limit.

Offers: `view`, `rows`, `summary`, `best`, `trials`, `export`, `costs`.

May import: `text`, `core`, `reporting`.
"""
