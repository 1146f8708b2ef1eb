"""The ledger: every event of a study, and the tables that people query, in one SQLite file."""

from .reader import LedgerReader, ReportRow
from .writer import Ledger

__all__ = ["Ledger", "LedgerReader", "ReportRow"]
