"""The state machine of a study: events in, commands out.

`engine.Engine` owns the order of decisions; each other module holds one part of the state and the
rules for it.

Offers: `engine.Engine`.

May import: `errors`, `core`, `core.packing`, `core.scheduling`.
"""
