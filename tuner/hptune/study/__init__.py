"""What there is of a study once it has begun, for programs, commands and pages.

Offers: `study.Study` (its results, figures and exports, in Python), `study.find_directories` (the
studies in a folder), `view_reading.ViewReading` (what texts and pages show, read from the ledger in
one transaction), `dashboard` (the live pages of a study and of a folder, joined with the ledger and
with the requests to a master).

May import: `errors`, `text`, `registry`, `core`, `config`, `files`, `reporting`, `scaling`,
`storage`, `training`, `user_code`, `worker`.
"""
