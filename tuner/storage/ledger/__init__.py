"""The ledger: every event of a study, and the tables that people query, in one SQLite file.

Offers: `Ledger` (the one writer), `LedgerReader`, `ReportRow`.

May import: `errors`, `core`, `storage`.
"""

from .reader import LedgerReader, ReportRow
from .writer import Ledger

__all__ = ["Ledger", "LedgerReader", "ReportRow"]
