"""CLIP from scratch: images and captions in one space, both encoders trained from nothing.

    hptune run examples/clip/clip.py --search tpe --pruner asha --trials 20
    CLIP_DATA=flickr8k hptune run examples/clip/clip.py --search tpe --pruner asha --trials 60

The environment variable `CLIP_DATA` is a folder of images with a captions file, or that file
(captioned_images.py lists the layouts). Without it, the pictures of shapes.py are drawn.

Metrics of the validation images: `val_recall_1` and `val_recall_5`, how often the right text is
among the 1 or 5 nearest of an image and the right image among those of a text (their mean; `_text`
and `_image` are the two), and `val_zero_shot`, how often the nearest label is right.
"""

from __future__ import annotations

import functools
import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import keras
import numpy as np
import shapes
from bpe import BYTES, Tokenizer
from captioned_images import CaptionedImage, read_captions, read_images
from clip_network import MAX_TOKENS, Clip

OBJECTIVE = "val_recall_1"
EPOCHS = int(os.environ.get("CLIP_EPOCHS", "20"))

MAX_CAPTIONS = 5
"""Captions of an image to train with."""
SHAPES_TO_TRAIN, SHAPES_TO_VALIDATE = 4096, 512


@dataclass(frozen=True, slots=True)
class Source:
    """What the data offer to the search.

    Attributes:
        images: Images to train on.
        captions: The captions to train on.
        image_sizes: Sizes to choose from, in pixels.
        vocabularies: Numbers of tokens to choose from.
    """

    images: int
    captions: list[str]
    image_sizes: list[int]
    vocabularies: list[int]

    @property
    def batch_sizes(self) -> list[int]:
        """Batch sizes to choose from: a batch larger than the data would repeat images."""
        return [size for size in (64, 128, 256, 512) if size <= self.images] or [self.images]


@functools.cache
def source() -> Source:
    """Return what the chosen data offer; images are not opened."""
    place = chosen_data()
    if place is None:
        pictures = shapes.draw_pictures(SHAPES_TO_TRAIN, validation=False)[1]
        captions = [text for picture in pictures for text in picture.captions()]
        return Source(SHAPES_TO_TRAIN, captions, [shapes.SIZE], [300, 340, 380])
    train, _ = read_captions(place)
    captions = [text for image in train for text in image.captions[:MAX_CAPTIONS]]
    given = os.environ.get("CLIP_VOCABULARY", "512,1024")
    try:
        vocabularies = sorted({int(number) for number in given.split(",")})
    except ValueError:
        raise ValueError(
            f"CLIP_VOCABULARY is {given!r}; needed are numbers such as 512,1024"
        ) from None
    if vocabularies[0] < BYTES:
        raise ValueError(f"CLIP_VOCABULARY has {vocabularies[0]}; the least is {BYTES}")
    return Source(len(train), captions, [32, 64], vocabularies)


def chosen_data() -> Path | None:
    """Return `CLIP_DATA` of the environment; None for the shapes."""
    given = os.environ.get("CLIP_DATA", "shapes")
    return None if given in ("", "shapes") else Path(given).expanduser().absolute()


@functools.cache
def largest_tokenizer() -> Tokenizer:
    """Return the tokenizer with the largest vocabulary; its first merges are those of the others.

    Raises:
        ValueError: The captions are too few for this vocabulary.
    """
    try:
        return Tokenizer.train(source().captions, max(source().vocabularies))
    except ValueError as err:
        raise ValueError(f"CLIP_VOCABULARY: {err}") from None


def build_model(hp: Any) -> keras.Model:
    # Recorded with the study, so that `hptune resume` refuses other data.
    hp.Fixed("data", str(chosen_data() or "shapes"))
    model = Clip(
        image_size=hp.Choice("image_size", source().image_sizes),
        vocabulary=hp.Choice("vocabulary", source().vocabularies),
        image_encoder=hp.Choice("image_encoder", ["resnet", "vit"]),
        width=hp.Choice("width", [8, 16, 32], default=16),
        text_width=hp.Choice("text_width", [32, 64, 128], default=64),
        text_layers=hp.Int("text_layers", 1, 4, default=2),
        dimensions=hp.Choice("dimensions", [32, 64, 128, 256], default=64),
        loss=hp.Choice("loss", ["softmax", "sigmoid"]),
        dropout=hp.Float("dropout", 0.0, 0.3, step=0.1, default=0.0),
        augmentation=hp.Float("augmentation", 0.0, 0.3, step=0.1, default=0.1),
    )
    batch_size = hp.Choice("batch_size", source().batch_sizes)
    peak = hp.Float("learning_rate", 3e-4, 1e-2, sampling="log", default=4e-3)
    steps = EPOCHS * math.ceil(source().images / batch_size)
    warm_up = int(steps * hp.Float("warm_up_share", 0.0, 0.3, step=0.1, default=0.1))
    schedule = keras.optimizers.schedules.CosineDecay(
        peak / max(1, warm_up), steps - warm_up, warmup_target=peak, warmup_steps=warm_up
    )
    decay = hp.Float("weight_decay", 1e-4, 1.0, sampling="log", default=0.1)
    optimizer = keras.optimizers.AdamW(
        schedule, weight_decay=decay, beta_2=0.98, epsilon=1e-6, clipnorm=1.0
    )
    # Biases, normalizations and the scale have one dimension or none.
    optimizer.exclude_from_weight_decay([v for v in model.trainable_variables if v.ndim <= 1])
    model.compile(optimizer)
    return model


def load_data(hp: Any) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Return images and tokens to train on, and those to validate.

    Returns:
        `image` of shape (n, size, size, 3) and `text` of shape (n, captions, tokens) to train on.
        To validate, `image`; `text` of shape (m, tokens) and `owner` of shape (m,), the image of
        each text; `label` of shape (n,) and `prompt`, the tokens of each label, of shape
        (labels, tokens), which is empty without labels.

    Raises:
        FileNotFoundError: Images or the captions file are missing.
        ValueError: The captions or the images cannot be used; the message says which and why.
    """
    size = hp.Choice("image_size", source().image_sizes)
    vocabulary = hp.Choice("vocabulary", source().vocabularies)
    tokenizer = largest_tokenizer().with_vocabulary(vocabulary)
    (x, train), (x_val, validation) = (read_part(size, validation=part) for part in (False, True))
    number = min(MAX_CAPTIONS, max(len(image.captions) for image in train))
    texts = [image.captions[i % len(image.captions)] for image in train for i in range(number)]
    tokens = _cut(tokenizer.encode_all(texts, MAX_TOKENS))
    owned = [(text, owner) for owner, image in enumerate(validation) for text in image.captions]
    labels = sorted({image.label for image in [*train, *validation]} - {""})
    numbers = {label: number for number, label in enumerate(labels)}
    return (
        {"image": x, "text": tokens.reshape(len(x), number, -1)},
        {
            "image": x_val,
            "text": _cut(tokenizer.encode_all([text for text, _ in owned], MAX_TOKENS)),
            "owner": np.array([owner for _, owner in owned]),
            "label": np.array([numbers.get(image.label, -1) for image in validation]),
            "prompt": _cut(tokenizer.encode_all(labels, MAX_TOKENS)),
        },
    )


def read_part(size: int, *, validation: bool) -> tuple[np.ndarray, list[CaptionedImage]]:
    """Return the images of one part of the data, and what is said about each."""
    place = chosen_data()
    if place is not None:
        return read_images(read_captions(place)[validation], size)
    number = SHAPES_TO_VALIDATE if validation else SHAPES_TO_TRAIN
    images, pictures = shapes.draw_pictures(number, validation=validation)
    return images, [
        # The whole description is compared; in training, also parts of it.
        CaptionedImage(Path(), tuple(each.captions()[: 1 if validation else None]), each.label)
        for each in pictures
    ]


def _cut(tokens: np.ndarray) -> np.ndarray:
    """Leave out the columns that are padding in each row."""
    used = int((tokens != 0).any(axis=0).sum())
    return tokens[:, : max(1, used)]


def fit(hp: Any, model: Any, data: Any, callbacks: list[Any], epochs: int) -> Any:
    train, validation = data
    batch_size = hp.get("batch_size")
    return model.fit(
        filled(train, batch_size),
        batch_size=batch_size,
        epochs=epochs,
        callbacks=[Validation(validation), *callbacks],
        verbose=2,
    )


def filled(train: dict[str, np.ndarray], batch_size: int) -> dict[str, np.ndarray]:
    """Return the data with some images twice, so that the last batch is as large as the others.

    A smaller batch has fewer negatives, and could not be divided equally among devices.
    """
    number = len(train["image"])
    more = np.random.default_rng(0).permutation(number)[: -number % batch_size]
    return {name: np.concatenate([array, array[more]]) for name, array in train.items()}


class Validation(keras.callbacks.Callback):
    """Adds the metrics of the validation images to those of each epoch."""

    def __init__(self, validation: dict[str, np.ndarray]) -> None:
        super().__init__()
        self.validation = validation

    def on_epoch_end(self, epoch: int, logs: dict[str, float] | None = None) -> None:
        del epoch
        if logs is not None:
            logs.update({f"val_{k}": v for k, v in evaluate(self.model, self.validation).items()})


def evaluate(model: Clip, validation: dict[str, np.ndarray]) -> dict[str, float]:
    """Return recall at 1 and 5 in both directions, and zero-shot accuracy if there are labels."""
    images = model.encode_images(validation["image"])
    found = recalls(images, model.encode_texts(validation["text"]), validation["owner"])
    labelled = validation["label"] >= 0
    if labelled.any():
        products = images[labelled] @ model.encode_texts(validation["prompt"]).T
        found["zero_shot"] = float((products.argmax(1) == validation["label"][labelled]).mean())
    return found


def recalls(images: np.ndarray, texts: np.ndarray, owner: np.ndarray) -> dict[str, float]:
    """Return the recalls of images (n, d) and texts (m, d), of which text i is of image owner[i].

    >>> recalls(np.eye(3), np.eye(3)[[0, 0, 1, 1]], np.array([0, 1, 1, 2]))["recall_1_text"]
    0.6666666666666666
    """
    products = images @ texts.T
    # The rank of a thing: how many others are at least as near; a tie does not count as found.
    own = products[owner, np.arange(len(owner))]
    of_image = (products >= own).sum(axis=0) - 1
    best = np.full(len(images), -np.inf)
    np.maximum.at(best, owner, own)
    is_own = owner == np.arange(len(images))[:, None]
    of_text = ((products >= best[:, None]) & ~is_own).sum(axis=1)
    found = {}
    for number in (1, 5):
        text, image = float((of_text < number).mean()), float((of_image < number).mean())
        found[f"recall_{number}"] = (text + image) / 2
        found[f"recall_{number}_text"], found[f"recall_{number}_image"] = text, image
    return found
