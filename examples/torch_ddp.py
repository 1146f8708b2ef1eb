"""PyTorch's DistributedDataParallel on scikit-learn's handwritten digits, in one or more processes.

    pip install torch --index-url https://download.pytorch.org/whl/cpu
    hptune run examples/torch_ddp.py --processes-per-trial 2 --trials 20
    hptune run examples/torch_ddp.py --processes-per-trial 4 --nodes-per-trial 2 --gpus-per-trial 4

Every process (rank) runs `objective`. hptune sets the environment that `init_process_group` reads.
`batch_size` is the batch of all ranks together, so a configuration means the same whatever their
number.
"""

from pathlib import Path
from typing import Any

from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

try:
    import torch
except ModuleNotFoundError as err:
    raise ImportError(
        "examples/torch_ddp.py needs PyTorch, which is not installed. Install it with\n"
        "  pip install torch\n"
        "or, without a GPU, the much smaller\n"
        "  pip install torch --index-url https://download.pytorch.org/whl/cpu"
    ) from err

OBJECTIVE = "val_accuracy"
EPOCHS = 10


def objective(hp: Any, trial: Any) -> dict[str, float]:
    # A rank sees its own GPUs only.
    device = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")
    if trial.world_size > 1:
        torch.distributed.init_process_group("nccl" if device.type == "cuda" else "gloo")

    x_train, y_train, x_val, y_val = load_tensors(device)
    torch.manual_seed(trial.seed)
    width = hp.Choice("width", [16, 32, 64, 128])
    network: Any = torch.nn.Sequential(
        torch.nn.Linear(64, width), torch.nn.ReLU(), torch.nn.Linear(width, 10)
    ).to(device)
    optimizer = torch.optim.AdamW(
        network.parameters(), lr=hp.Float("learning_rate", 1e-4, 1e-1, sampling="log")
    )
    batch_size = hp.Choice("batch_size", [32, 64, 128])

    # Every rank continues from the checkpoint that rank 0 has written.
    checkpoint = Path(trial.checkpoint_dir) / "state.pt"
    epochs_done, metrics = 0, {}
    if checkpoint.exists():
        state = torch.load(checkpoint, map_location=device)
        network.load_state_dict(state["network"])
        optimizer.load_state_dict(state["optimizer"])
        epochs_done, metrics = state["epochs_done"], state["metrics"]
    trained = network
    if trial.world_size > 1:
        trained = torch.nn.parallel.DistributedDataParallel(network)

    for epoch in range(epochs_done + 1, EPOCHS + 1):
        # All ranks draw the same order, and each takes its share of every batch.
        order = torch.randperm(len(x_train), generator=torch.Generator().manual_seed(epoch))
        for batch in order[: len(order) // batch_size * batch_size].split(batch_size):
            share = batch[trial.rank :: trial.world_size]
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(trained(x_train[share]), y_train[share])
            loss.backward()
            optimizer.step()

        with torch.no_grad():
            logits = network(x_val)
            metrics = {
                "val_loss": torch.nn.functional.cross_entropy(logits, y_val).item(),
                "val_accuracy": (logits.argmax(1) == y_val).float().mean().item(),
            }
        if trial.rank == 0:
            state = {
                "network": network.state_dict(),
                "optimizer": optimizer.state_dict(),
                "epochs_done": epoch,
                "metrics": metrics,
            }
            torch.save(state, checkpoint.with_suffix(".new"))
            # In one step, so that an interruption leaves the old or the new checkpoint.
            checkpoint.with_suffix(".new").replace(checkpoint)
        trial.report(epoch, **metrics)  # rank 0's reports count
        if trial.should_stop():  # the same answer on every rank
            break
    if trial.world_size > 1:
        torch.distributed.destroy_process_group()
    return metrics


def load_tensors(device: Any) -> tuple[Any, Any, Any, Any]:
    pixels, labels = load_digits(return_X_y=True)
    parts = train_test_split(
        pixels.astype("float32") / 16, labels, test_size=0.25, random_state=0, stratify=labels
    )
    x_train, x_val, y_train, y_val = (torch.as_tensor(part, device=device) for part in parts)
    return x_train, y_train, x_val, y_val
