"""A study's directory on disk: its layout, its lock, its models and the journals of attempts.

Offers: `directory.StudyDirectory`, `lock.MasterLock`, `lease`, `requests.RequestFile`,
`turn.acquired`, `asking.ask`, `notes.write_note`, `replacing.replacing`, `artifacts.StudyFiles`,
`attempt_journal.AttemptJournal`.

May import: `errors`, `text`, `core`, `files`, `storage.ledger`.
"""
