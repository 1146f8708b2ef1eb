"""A multilayer perceptron in PyTorch on scikit-learn's handwritten digits.

    pip install torch --index-url https://download.pytorch.org/whl/cpu
    hptune run examples/torch_mlp.py --pruner asha --trials 30

Any framework works this way: `objective` trains as it likes, reports after each epoch, and asks
whether to stop.
"""

from pathlib import Path
from typing import Any

from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

try:
    import torch
except ModuleNotFoundError as err:
    raise ImportError(
        "examples/torch_mlp.py needs PyTorch, which is not installed. Install it with\n"
        "  pip install torch\n"
        "or, without a GPU, the much smaller\n"
        "  pip install torch --index-url https://download.pytorch.org/whl/cpu"
    ) from err

OBJECTIVE = "val_accuracy"
EPOCHS = 20


def objective(hp: Any, trial: Any) -> dict[str, float]:
    x_train, y_train, x_val, y_val = load_tensors()
    torch.manual_seed(0)
    network = build_network(hp)
    optimizer = torch.optim.AdamW(
        network.parameters(),
        lr=hp.Float("learning_rate", 1e-4, 1e-1, sampling="log"),
        weight_decay=hp.Float("weight_decay", 1e-6, 1e-1, sampling="log"),
    )
    batch_size = hp.Choice("batch_size", [16, 32, 64, 128])

    # A trial that was interrupted finds here what its earlier attempt left behind.
    checkpoint = Path(trial.checkpoint_dir) / "state.pt"
    epochs_done, metrics = 0, {}
    if checkpoint.exists():
        state = torch.load(checkpoint)
        network.load_state_dict(state["network"])
        optimizer.load_state_dict(state["optimizer"])
        epochs_done, metrics = state["epochs_done"], state["metrics"]

    for epoch in range(epochs_done + 1, EPOCHS + 1):
        # Seeded by the epoch, shuffling and dropout are the same after an interruption.
        torch.manual_seed(epoch)
        network.train()
        for batch in torch.randperm(len(x_train)).split(batch_size):
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(network(x_train[batch]), y_train[batch])
            loss.backward()
            optimizer.step()

        network.eval()
        with torch.no_grad():
            logits = network(x_val)
            metrics = {
                "val_loss": torch.nn.functional.cross_entropy(logits, y_val).item(),
                "val_accuracy": (logits.argmax(1) == y_val).float().mean().item(),
            }

        state = {
            "network": network.state_dict(),
            "optimizer": optimizer.state_dict(),
            "epochs_done": epoch,
            "metrics": metrics,
        }
        torch.save(state, checkpoint.with_suffix(".new"))
        # In one step, so that an interruption leaves the old or the new checkpoint, never a half.
        checkpoint.with_suffix(".new").replace(checkpoint)
        trial.report(epoch, **metrics)
        if trial.should_stop():
            break
    return metrics


def build_network(hp: Any) -> Any:
    network = torch.nn.Sequential()
    inputs, units = 64, hp.Choice("units", [16, 32, 64, 128])
    dropout = hp.Float("dropout", 0.0, 0.5, step=0.1)
    for _ in range(hp.Int("hidden_layers", 1, 3)):
        network.extend([torch.nn.Linear(inputs, units), torch.nn.ReLU(), torch.nn.Dropout(dropout)])
        inputs = units
    return network.append(torch.nn.Linear(inputs, 10))


def load_tensors() -> tuple[Any, Any, Any, Any]:
    """Return images and labels: 1437 to train on, then 360 to validate, the same in every trial."""
    digits = load_digits()
    x = digits.data.astype("float32") / 16
    x_train, x_val, y_train, y_val = map(
        torch.from_numpy,
        train_test_split(x, digits.target, test_size=360, stratify=digits.target, random_state=0),
    )
    return x_train, y_train, x_val, y_val
