"""Who may connect to the processes of a study, and which files they may load.

A study, or a scheduler of the user's, has certificates of its own authority. Processes that have
one of them accept each other's connections, and no others.

Offers: `certificates` (made, read, checked), `handshake.why_refused`, `ownership`.

May import: `errors`.
"""
