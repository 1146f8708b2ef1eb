"""The report: one HTML file with everything that a study found, which needs no network.

Every figure (a canvas, drawn by Bokeh) has a sentence and a table next to it, for people who
cannot see it.

Offers: `report`: the page, `panel`: a figure with its words and tables.

May import: `core`, `reporting`, `reporting.results`.
"""
