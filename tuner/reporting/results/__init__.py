"""A study read from its ledger: status, best trials, costs, exports.

Offers: `view`, `summary`, `best`, `export`, `costs`.

May import: `core`, `reporting`.
"""
