"""The progress of a run: a live display on a terminal, lines in a pipe or log.

Offers: `display.make_progress`, `progress.Progress` (the contract), `notifications.Notifications`,
`background_writer.BackgroundWriter`, `watch.watch`.

May import: `errors`, `text`, `core`, `reporting.results`.
"""
