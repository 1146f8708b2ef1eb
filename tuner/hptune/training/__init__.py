"""Code that runs inside a trial's process: build, train, report, checkpoint.

The only folder that imports Keras or a framework, and only inside functions.

Offers: `context`, `probe.find_space`, `function_objective.function_objective`.

May import: `errors`, `text`, `core`, `user_code`, `training.keras`, `training.parallel`.
"""
