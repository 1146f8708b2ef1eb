"""Who may connect to the processes of a study.

A study, or a scheduler of the user's, has certificates of its own authority. Processes that have
one of them accept each other's connections, and no others.

Offers: `certificates` (made, read, checked), `handshake.why_refused`.

May import: `errors`, `files`.
"""
