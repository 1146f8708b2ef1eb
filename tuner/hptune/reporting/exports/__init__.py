"""Exports of a study to the tools of others: Optuna, TensorBoard, MLflow, W&B, Parquet.

Each export may be repeated into the same place: it replaces what it wrote there before, and leaves
everything else. The packages of the tools are extras, imported inside functions.

Offers: `exports`: the methods of `Study` that export it, `source`: what is exported, `optuna`,
`tensorboard`, `mlflow`, `wandb`: one tool each.

May import: `errors`, `text`, `core`, `samplers`, `reporting`, `reporting.results`, `storage`,
`files`, `registry`.
"""
