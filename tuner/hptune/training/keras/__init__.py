"""Build, train and keep a Keras model.

Offers: `objective.train`, `recorder.Recorder`, `compiled_model`, `kept_model`, `first_batch` (for
`hptune doctor`).

May import: `errors`, `core`, `user_code`, `training`, `training.data_cache`, `training.resume`,
`training.strategies`.
"""
