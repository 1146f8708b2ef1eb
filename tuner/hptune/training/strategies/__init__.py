"""Data-parallel training of a Keras model on several devices, processes, or both.

The user's `build_model`, `load_data`, callbacks and `fit` are unchanged: a strategy acts around
`build_model` and in place of `fit`, `evaluate` and `predict`. A trial of one process with one
device uses nothing of this folder.

Offers: `base.Strategy` (the contract), `choose.choose`, `fit_calls.whole_training`, `batches`.

May import: `errors`, `text`, `core`, `training.parallel`, `training.resume`, `training`.
"""
