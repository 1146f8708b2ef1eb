"""The loop that joins engine, ledger, sampler and executor; it makes no decisions."""


class Study:
    """A study."""
