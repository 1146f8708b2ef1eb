"""A study's directory on disk: layout, lock, models, and what attempts wrote without a master.

Offers: `directory.StudyDirectory`, `lock.MasterLock`, `artifacts.StudyFiles`,
`attempt_journal.AttemptJournal`.

May import: `errors`, `core`, `storage.ledger`.
"""
