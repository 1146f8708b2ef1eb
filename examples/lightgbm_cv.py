"""LightGBM with cross-validation: each fold is a step, and its report is the mean so far.

    pip install lightgbm scikit-learn
    hptune run examples/lightgbm_cv.py --search tpe --pruner asha --trials 40

All trials train on the same folds in the same order, so that a trial is compared with others on
the same data: a poor one is stopped after one or three of five folds. An interrupted trial
continues with its next fold.
"""

import json
from pathlib import Path
from typing import Any

from sklearn.datasets import load_breast_cancer
from sklearn.metrics import log_loss
from sklearn.model_selection import StratifiedKFold

try:
    import lightgbm
except ModuleNotFoundError as err:
    raise ImportError(
        "examples/lightgbm_cv.py needs LightGBM. Install it with\n  pip install lightgbm"
    ) from err

OBJECTIVE = "loss:min"
EPOCHS = 5  # the number of folds


def objective(hp: Any, trial: Any) -> dict[str, float]:
    settings = {
        "n_estimators": hp.Int("trees", 20, 400, sampling="log"),
        "learning_rate": hp.Float("learning_rate", 0.01, 0.5, sampling="log"),
        "num_leaves": hp.Int("leaves", 4, 64, sampling="log"),
        "min_child_samples": hp.Int("min_child_samples", 2, 50, sampling="log"),
        "colsample_bytree": hp.Float("features", 0.2, 1.0),
        "reg_lambda": hp.Float("reg_lambda", 1e-3, 10.0, sampling="log"),
    }
    x, y = load_breast_cancer(return_X_y=True)
    folds = list(StratifiedKFold(EPOCHS, shuffle=True, random_state=0).split(x, y))

    # A trial that was interrupted finds here the folds that its earlier attempt trained.
    saved = Path(trial.checkpoint_dir) / "losses.json"
    losses = json.loads(saved.read_text()) if saved.exists() else []
    for train, test in folds[len(losses) :]:
        model = lightgbm.LGBMClassifier(**settings, random_state=0, n_jobs=-1, verbosity=-1)
        model.fit(x[train], y[train])
        losses.append(float(log_loss(y[test], model.predict_proba(x[test]))))
        saved.with_suffix(".new").write_text(json.dumps(losses))
        saved.with_suffix(".new").replace(saved)
        trial.report(len(losses), loss=mean(losses))
        if trial.should_stop():
            break
    return {"loss": mean(losses)}


def mean(losses: list[float]) -> float:
    return sum(losses) / len(losses)
