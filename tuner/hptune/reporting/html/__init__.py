"""The report: one HTML file with everything that a study found, which needs no network.

The page has the study's data as JSON, and draws its figures and the table of trials itself: one
choice of the reader acts on all of them. `charts.js` draws any figure, `trial_sets.js` says which
trials are shown and how they look, `figures.js` has the figures of a study, `trial_table.js` the
table, `page.js` the choices and the page of one trial, and `live.js` what the live page adds.

Figures can be walked by the keyboard, and the table has the same for people who cannot see them.

Offers: `report`: the page, `live`: the page of a study that runs, `folder`: the page of all studies
of a folder, `live_server`: sends both, `reports`: the methods of `Study` that plot and report it,
`card`: a study in a notebook, `markdown`: the report in short, `panel`: a figure with its words and
tables.

May import: `errors`, `text`, `core`, `reporting.results`, `storage`.
"""
