"""A training program that knows nothing of hptune: a linear classifier of digits.

    hptune run --command "python train.py --alpha {alpha} --loss {loss}" \\
        --space space.toml --objective val_accuracy --pruner asha --epochs 20
"""

import argparse
import json
import os

from sklearn.datasets import load_digits
from sklearn.linear_model import SGDClassifier
from sklearn.model_selection import train_test_split

parser = argparse.ArgumentParser()
parser.add_argument("--alpha", type=float, required=True)
parser.add_argument("--loss", required=True)
parser.add_argument("--epochs", type=int, default=int(os.environ.get("HPTUNE_EPOCHS") or 20))
given = parser.parse_args()

x, y = load_digits(return_X_y=True)
x, x_val, y, y_val = train_test_split(x / 16, y, random_state=0)
model = SGDClassifier(loss=given.loss, alpha=given.alpha, random_state=0)
for epoch in range(1, given.epochs + 1):
    model.partial_fit(x, y, classes=range(10))
    print(json.dumps({"epoch": epoch, "val_accuracy": model.score(x_val, y_val)}), flush=True)
