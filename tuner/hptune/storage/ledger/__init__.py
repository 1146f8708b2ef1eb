"""The ledger: all events of a study, and tables for people to query, in one SQLite file.

Offers: `Ledger` (the only writer), `LedgerReader`, `FollowedReports`, `StudyFacts`,
`damage_errors`.

May import: `errors`, `core`, `files`, `storage`.
"""

from .errors import damage_errors
from .facts import StudyFacts
from .reader import FollowedReports, LedgerReader
from .writer import Ledger

__all__ = ["FollowedReports", "Ledger", "LedgerReader", "StudyFacts", "damage_errors"]
