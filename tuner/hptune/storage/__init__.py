"""A study's directory on disk: its layout, its lock, its models and the journals of attempts.

Offers: `directory.StudyDirectory`, `lock.MasterLock`, `lease`, `requests.RequestFile`,
`asking.ask`, `notes.write_note`, `replacing.replacing`, `artifacts.StudyFiles`,
`attempt_journal.AttemptJournal`, `filesystem.mount_of`, `files`, `file_errors`.

May import: `errors`, `text`, `core`, `security`, `storage.ledger`.
"""
