"""The report: one HTML file with everything that a study found, which needs no network.

Every figure (a canvas, drawn by Bokeh) has a sentence and a table next to it, for people who
cannot see it.

Offers: `report`: the page, `live`: the page of a study that runs, `folder`: the page of all studies
of a folder, `live_server`: sends both, `reports`: the methods of `Study` that plot and report it,
`card`: a study in a notebook, `markdown`: the report in short, `panel`: a figure with its words and
tables.

May import: `errors`, `text`, `core`, `reporting.results`, `storage`.
"""
