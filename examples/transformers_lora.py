"""LoRA with transformers' `Trainer` and peft: a small random model learns to judge short reviews.

    pip install torch transformers peft
    hptune run examples/transformers_lora.py --pruner asha --trials 20

Nothing is downloaded: the model is random, the reviews are made here, and the tokenizer is a list
of words. For a real model, replace `base_model` by
`AutoModelForSequenceClassification.from_pretrained(…)`, and `reviews` by your data set; on nodes
without a network, set `HF_HOME` to a folder that has them and `HF_HUB_OFFLINE=1`.

Each evaluation is reported, the trial stops at a rung if it is poor, and an interrupted trial
continues from the trainer's own checkpoint. Of the model, only the adapter is kept.
"""

import random
from pathlib import Path
from typing import Any

import hptune

try:
    import torch
    from peft import LoraConfig, TaskType, get_peft_model
    from transformers import (
        DistilBertConfig,
        DistilBertForSequenceClassification,
        Trainer,
        TrainingArguments,
    )
except ModuleNotFoundError as err:
    raise ImportError(
        "examples/transformers_lora.py needs PyTorch, transformers and peft. Install them with\n"
        "  pip install torch transformers peft"
    ) from err

OBJECTIVE = "eval_accuracy"
EPOCHS = 9

GOOD = ("clear", "fast", "fair", "kind", "warm", "bright")
POOR = ("dull", "slow", "rude", "cold", "dark", "vague")
OTHER = ("the", "film", "was", "and", "room", "staff", "a", "bit", "plot", "very")
WORDS = ("[PAD]", *GOOD, *POOR, *OTHER)
TARGETS = {"attention": ["q_lin", "v_lin"], "all": ["q_lin", "k_lin", "v_lin", "out_lin", "lin1"]}


def objective(hp: Any, trial: Any) -> dict[str, float]:
    rank = hp.Choice("lora_rank", [2, 4, 8, 16])
    adapter = LoraConfig(
        TaskType.SEQ_CLS,
        r=rank,
        lora_alpha=rank * hp.Choice("lora_scale", [1, 2, 4]),
        lora_dropout=hp.Float("lora_dropout", 0.0, 0.2, step=0.05),
        target_modules=TARGETS[hp.Choice("lora_targets", list(TARGETS))],
    )
    arguments = TrainingArguments(
        output_dir=trial.checkpoint_dir,
        learning_rate=hp.Float("learning_rate", 1e-4, 1e-1, sampling="log"),
        lr_scheduler_type=hp.Choice("schedule", ["constant", "linear", "cosine"]),
        warmup_steps=0.1,  # of all steps
        num_train_epochs=trial.epochs,
        per_device_train_batch_size=hp.Choice("batch_size", [16, 32, 64]),
        eval_strategy="epoch",
        save_strategy="epoch",
        save_total_limit=1,
        seed=trial.seed % 2**32,
        disable_tqdm=True,
        report_to="none",
    )
    trainer = Trainer(
        get_peft_model(base_model(), adapter),
        arguments,
        train_dataset=reviews(600, seed=0),
        eval_dataset=reviews(200, seed=1),
        compute_metrics=accuracy,
        callbacks=[hptune.transformers_callback(trial)],
    )
    trainer.train(resume_from_checkpoint=last_checkpoint(trial.checkpoint_dir))
    trainer.save_model(str(Path(trial.checkpoint_dir) / "adapter"))  # in best/ of the study
    return {"eval_accuracy": trainer.state.log_history[-2]["eval_accuracy"]}


def last_checkpoint(folder: Path) -> str | None:
    """Return the trainer's last whole checkpoint: it writes the state last."""
    whole = [each.parent for each in folder.glob("checkpoint-*/trainer_state.json")]
    return str(max(whole, key=lambda each: int(each.name[11:]))) if whole else None


def accuracy(predicted: Any) -> dict[str, float]:
    logits, labels = predicted
    return {"accuracy": float((logits.argmax(-1) == labels).mean())}


def base_model() -> Any:
    torch.manual_seed(0)  # stands for a model that was trained before: the same in all trials
    return DistilBertForSequenceClassification(
        DistilBertConfig(
            vocab_size=len(WORDS), dim=64, n_layers=2, n_heads=4, hidden_dim=128, num_labels=2
        )
    )


def reviews(count: int, *, seed: int) -> list[dict[str, Any]]:
    """Return reviews of eight words, and whether more of them are good than poor."""
    rng = random.Random(seed)
    found: list[dict[str, Any]] = []
    while len(found) < count:
        words = rng.choices(WORDS[1:], k=8)
        balance = sum((word in GOOD) - (word in POOR) for word in words)
        if balance:
            tokens = [WORDS.index(word) for word in words]
            found.append({"input_ids": tokens, "labels": int(balance > 0)})
    return found
