"""Lightning on scikit-learn's handwritten digits: reports, early stopping and its own checkpoints.

    pip install torch lightning
    hptune run examples/lightning_digits.py --pruner asha --trials 30

A trial that was interrupted continues from the checkpoint that Lightning has written.
"""

from pathlib import Path
from typing import Any

from sklearn.datasets import load_digits

import hptune

try:
    import lightning
    import torch
except ModuleNotFoundError as err:
    raise ImportError(
        "examples/lightning_digits.py needs PyTorch and Lightning. Install them with\n"
        "  pip install torch lightning"
    ) from err

OBJECTIVE = "val_loss"
EPOCHS = 20


class Digits(lightning.LightningModule):
    def __init__(self, units: int, dropout: float, learning_rate: float) -> None:
        super().__init__()
        self.learning_rate = learning_rate
        self.network = torch.nn.Sequential(
            torch.nn.Linear(64, units),
            torch.nn.ReLU(),
            torch.nn.Dropout(dropout),
            torch.nn.Linear(units, 10),
        )

    def training_step(self, batch: Any, _index: int) -> Any:
        x, y = batch
        return torch.nn.functional.cross_entropy(self.network(x), y)

    def validation_step(self, batch: Any, _index: int) -> None:
        x, y = batch
        logits = self.network(x)
        self.log("val_loss", torch.nn.functional.cross_entropy(logits, y))
        self.log("val_accuracy", (logits.argmax(1) == y).float().mean())

    def configure_optimizers(self) -> Any:
        return torch.optim.AdamW(self.parameters(), lr=self.learning_rate)


def objective(hp: Any, trial: Any) -> dict[str, float]:
    lightning.seed_everything(trial.seed % 2**32, verbose=False)
    network = Digits(
        hp.Int("units", 16, 256, sampling="log"),
        hp.Float("dropout", 0.0, 0.5, step=0.1),
        hp.Float("learning_rate", 1e-4, 1e-1, sampling="log"),
    )
    checkpoints = Path(trial.checkpoint_dir)
    trainer = lightning.Trainer(
        max_epochs=trial.epochs,
        callbacks=[
            hptune.lightning_callback(trial),
            lightning.pytorch.callbacks.ModelCheckpoint(checkpoints, save_last=True),
        ],
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    batch_size = hp.Choice("batch_size", [16, 32, 64, 128])
    last = checkpoints / "last.ckpt"
    trainer.fit(network, *loaders(batch_size), ckpt_path=last if last.exists() else None)
    return {name: float(value) for name, value in trainer.callback_metrics.items()}


def loaders(batch_size: int) -> tuple[Any, Any]:
    pixels, labels = load_digits(return_X_y=True)
    x, y = torch.as_tensor(pixels, dtype=torch.float32) / 16, torch.as_tensor(labels)
    parts = (
        torch.utils.data.TensorDataset(x[part], y[part])
        for part in (slice(1400), slice(1400, None))
    )
    train, validation = parts
    return (
        torch.utils.data.DataLoader(train, batch_size, shuffle=True),
        torch.utils.data.DataLoader(validation, 397),
    )
