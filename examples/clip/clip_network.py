"""Two encoders into one space, and the losses that pull pairs together.

An image and a text are vectors of length 1; the more alike, the larger their product. Radford et
al. 2021, "Learning transferable visual models from natural language supervision"
(arXiv 2103.00020), trains them with a softmax over the batch; Zhai et al. 2023, "Sigmoid loss for
language image pre-training" (arXiv 2303.15343), with a sigmoid for each pair.
"""

from __future__ import annotations

import math
from typing import Any

import keras
import numpy as np
from keras import layers, ops

MAX_TOKENS = 64
MAX_LOG_SCALE = math.log(100.0)
SCALE_AND_BIAS = {"softmax": (math.log(1 / 0.07), 0.0), "sigmoid": (math.log(10.0), -10.0)}
"""Where the logarithm of the scale (1 / temperature) and the bias begin, as in the papers."""


@keras.saving.register_keras_serializable(package="clip")
class Clip(keras.Model):
    """An image encoder, a text encoder and a learned temperature.

    Its inputs are a dict: `image`, bytes of shape (n, size, size, 3), and `text`, tokens of shape
    (n, captions, tokens). In training, each image is compared with one of its captions, which is
    drawn in each step. The negatives are those of the whole batch, on all devices.

    Args:
        image_size: Height and width of the images.
        vocabulary: Number of tokens.
        image_encoder: "resnet" or "vit".
        width: Channels of the first stage of the ResNet; the ViT is 4 times as wide.
        text_width: Width of the text transformer.
        text_layers: Its blocks.
        dimensions: Dimensions of the common space.
        loss: "softmax" or "sigmoid".
        dropout: Dropout of both encoders.
        augmentation: Strength of the random shifts and colours, 0 for none.
        options: Further arguments of `keras.Model`.
    """

    def __init__(
        self,
        *,
        image_size: int,
        vocabulary: int,
        image_encoder: str = "resnet",
        width: int = 16,
        text_width: int = 64,
        text_layers: int = 2,
        dimensions: int = 64,
        loss: str = "softmax",
        dropout: float = 0.0,
        augmentation: float = 0.0,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self.settings = {
            "image_size": image_size,
            "vocabulary": vocabulary,
            "image_encoder": image_encoder,
            "width": width,
            "text_width": text_width,
            "text_layers": text_layers,
            "dimensions": dimensions,
            "loss": loss,
            "dropout": dropout,
            "augmentation": augmentation,
        }
        self.kind = loss
        self.augment = Augment(augmentation)
        make = {"resnet": resnet, "vit": vit}[image_encoder]
        self.image_encoder = make(image_size, width, dimensions, dropout)
        self.text_encoder = text_transformer(
            vocabulary, text_width, text_layers, dimensions, dropout
        )
        scale, bias = SCALE_AND_BIAS[loss]
        constant = keras.initializers.Constant
        self.log_scale = self.add_weight(shape=(), initializer=constant(scale), name="log_scale")
        self.bias = self.add_weight(
            shape=(), initializer=constant(bias), name="bias", trainable=loss == "sigmoid"
        )
        self.seeds = keras.random.SeedGenerator()
        self.built = True

    def call(self, inputs: Any, training: Any = None) -> dict[str, Any]:
        """Return the vectors of the images and of one caption each."""
        images, texts = inputs["image"], inputs["text"]
        captions = ops.shape(texts)[1]
        if training and captions > 1:
            shape = (ops.shape(texts)[0], 1, 1)
            chosen = keras.random.randint(shape, 0, captions, seed=self.seeds)
            texts = ops.take_along_axis(texts, ops.cast(chosen, "int32"), axis=1)
        images = self.augment(images, training=training)
        return {
            "image": unit(self.image_encoder(images, training=training)),
            "text": unit(self.text_encoder(texts[:, 0], training=training)),
        }

    def compute_loss(
        self,
        x: Any = None,
        y: Any = None,
        y_pred: Any = None,
        sample_weight: Any = None,
        training: Any = None,
    ) -> Any:
        """Return the contrastive loss of a batch."""
        del x, y, sample_weight, training
        images, texts = (of_all_devices(y_pred[name]) for name in ("image", "text"))
        scale = ops.exp(ops.minimum(self.log_scale, MAX_LOG_SCALE))
        logits = scale * ops.matmul(images, ops.transpose(texts)) + self.bias
        return CONTRASTIVE[self.kind](logits) / devices_that_add_up()

    def encode_images(self, images: np.ndarray) -> np.ndarray:
        """Return the vectors of images, one in a row."""
        return _vectors(self.image_encoder, images.astype("float32"))

    def encode_texts(self, tokens: np.ndarray) -> np.ndarray:
        """Return the vectors of texts, one in a row."""
        return _vectors(self.text_encoder, tokens)

    def get_config(self) -> dict[str, Any]:
        """Return the arguments of the constructor."""
        return {**super().get_config(), **self.settings}


def softmax_loss(logits: Any) -> Any:
    """Return the mean of the cross entropies over rows and over columns."""
    own = ops.diagonal(logits)
    rows, columns = (ops.logsumexp(logits, axis=axis) for axis in (1, 0))
    return ops.mean((rows + columns) / 2 - own)


def sigmoid_loss(logits: Any) -> Any:
    """Return minus the logarithm of the sigmoids of all pairs, for each image."""
    number = ops.shape(logits)[0]
    signs = 2 * ops.eye(number, dtype=logits.dtype) - 1
    return -ops.sum(ops.log_sigmoid(signs * logits)) / ops.cast(number, logits.dtype)


CONTRASTIVE = {"softmax": softmax_loss, "sigmoid": sigmoid_loss}


def unit(vectors: Any) -> Any:
    """Return vectors of length 1."""
    return vectors / (ops.norm(vectors, axis=-1, keepdims=True) + 1e-6)


def of_all_devices(vectors: Any) -> Any:
    """Return the vectors of the global batch, of which each device may hold a share.

    With JAX, the arrays of a batch are global, and nothing is to be done. With PyTorch and
    TensorFlow, each process or replica computes the loss of the global batch; the derivatives add
    up over them, and averaged they are those of one device.
    """
    backend = keras.backend.backend()
    if backend == "torch":
        import torch.distributed

        if torch.distributed.is_available() and torch.distributed.is_initialized():
            from torch.distributed.nn.functional import all_gather

            return torch.cat(all_gather(vectors))
    if backend == "tensorflow" and devices_that_add_up() > 1:
        import tensorflow as tf

        return tf.distribute.get_replica_context().all_gather(vectors, axis=0)
    return vectors


def devices_that_add_up() -> int:
    """Return over how many devices the framework adds the gradients instead of averaging them."""
    if keras.backend.backend() != "tensorflow":
        return 1
    import tensorflow as tf

    context = tf.distribute.get_replica_context()
    return int(context.num_replicas_in_sync) if context else 1


def _vectors(encoder: keras.Model, inputs: np.ndarray) -> np.ndarray:
    found = encoder.predict(inputs, batch_size=256, verbose=0)
    return np.asarray(found / (np.linalg.norm(found, axis=-1, keepdims=True) + 1e-6))


@keras.saving.register_keras_serializable(package="clip")
class Augment(layers.Layer):
    """Shifts each image by some pixels, and changes its brightness and contrast, in training.

    Args:
        strength: The largest shift as a share of the image, and the largest change of brightness
            and contrast; 0 for none.
        options: Further arguments of `keras.layers.Layer`.
    """

    def __init__(self, strength: float, **options: Any) -> None:
        super().__init__(**options)
        self.strength = strength
        self.seeds = keras.random.SeedGenerator()

    def call(self, images: Any, training: Any = None) -> Any:
        """Return images from 0 to 255 in floating point."""
        images = ops.cast(images, "float32")
        if not training or not self.strength:
            return images
        number, size = ops.shape(images)[0], images.shape[1]
        pixels = max(1, round(self.strength * size / 2))
        places = ops.arange(size, dtype="int32")
        for axis, shape in ((1, (1, size, 1, 1)), (2, (1, 1, size, 1))):
            shift = keras.random.randint((number, 1, 1, 1), -pixels, pixels + 1, seed=self.seeds)
            index = ops.reshape(places, shape) + ops.cast(shift, "int32")
            images = ops.take_along_axis(images, ops.clip(index, 0, size - 1), axis=axis)
        low, high = 1 - self.strength, 1 + self.strength
        contrast = keras.random.uniform((number, 1, 1, 1), low, high, seed=self.seeds)
        tint = keras.random.uniform((number, 1, 1, 3), low, high, seed=self.seeds)
        return ops.clip((images - 127.5) * contrast + 127.5 * tint, 0.0, 255.0)

    def get_config(self) -> dict[str, Any]:
        """Return the arguments of the constructor."""
        return {**super().get_config(), "strength": self.strength}


def _images(size: int) -> tuple[Any, Any]:
    pixels = keras.Input((size, size, 3))
    return pixels, layers.Rescaling(1 / 127.5, offset=-1.0)(pixels)


def resnet(size: int, width: int, dimensions: int, dropout: float) -> keras.Model:
    """Return a ResNet of three stages, with group instead of batch normalization.

    Group normalization looks at one image at a time, so several devices compute what one would.
    """

    def normalized(x: Any) -> Any:
        return layers.GroupNormalization(groups=min(8, x.shape[-1] // 4))(x)

    def convolved(x: Any, channels: int, stride: int = 1, kernel: int = 3) -> Any:
        convolution = layers.Conv2D(channels, kernel, stride, padding="same", use_bias=False)
        return normalized(convolution(x))

    pixels, x = _images(size)
    x = layers.ReLU()(convolved(x, width, stride=2))
    for stage in range(3):
        channels, stride = width * 2**stage, 1 if stage == 0 else 2
        y = layers.ReLU()(convolved(x, channels, stride))
        y = convolved(y, channels)
        if stage:
            x = convolved(x, channels, stride, kernel=1)
        x = layers.ReLU()(layers.Add()([x, y]))
    # Where things are is part of a caption, so the last stage is not averaged at once.
    x = layers.AveragePooling2D(max(1, size // 16))(x) if size >= 32 else x
    x = layers.Dropout(dropout)(layers.Flatten()(x))
    return keras.Model(pixels, layers.Dense(dimensions, use_bias=False)(x), name="image_encoder")


def vit(size: int, width: int, dimensions: int, dropout: float) -> keras.Model:
    """Return a vision transformer of 8 patches in each direction."""
    pixels, x = _images(size)
    x = layers.Conv2D(4 * width, size // 8, size // 8)(x)
    x = layers.Reshape((64, 4 * width))(x)
    x = Positions(64)(x)
    for _ in range(3):
        x = transformer_block(x, heads=4, dropout=dropout)
    x = layers.GlobalAveragePooling1D()(layers.LayerNormalization()(x))
    return keras.Model(pixels, layers.Dense(dimensions, use_bias=False)(x), name="image_encoder")


def text_transformer(
    vocabulary: int, width: int, blocks: int, dimensions: int, dropout: float
) -> keras.Model:
    """Return a transformer whose output is the mean over the tokens; token 0 is padding."""
    tokens = keras.Input((None,), dtype="int32")
    is_text = IsText()(tokens)
    x = Positions(MAX_TOKENS)(layers.Embedding(vocabulary, width)(tokens))
    for _ in range(blocks):
        x = transformer_block(x, heads=4, dropout=dropout, is_text=is_text)
    x = MaskedMean()([layers.LayerNormalization()(x), is_text])
    return keras.Model(tokens, layers.Dense(dimensions, use_bias=False)(x), name="text_encoder")


@keras.saving.register_keras_serializable(package="clip")
class IsText(layers.Layer):
    """1 for each token that is no padding, else 0."""

    def call(self, tokens: Any) -> Any:
        """Return an array with one column for each token."""
        return ops.cast(ops.expand_dims(tokens != 0, -1), "float32")

    def compute_output_shape(self, shape: Any) -> Any:
        """Return the shape of the result."""
        return (*shape, 1)


def transformer_block(x: Any, *, heads: int, dropout: float, is_text: Any = None) -> Any:
    """Return the output of attention and a perceptron, each normalized before and added."""
    width = x.shape[-1]
    y = layers.LayerNormalization()(x)
    mask = None if is_text is None else layers.Permute((2, 1))(is_text)
    y = layers.MultiHeadAttention(heads, width // heads, dropout=dropout)(y, y, attention_mask=mask)
    x = layers.Add()([x, layers.Dropout(dropout)(y)])
    y = layers.Dense(4 * width, activation="gelu")(layers.LayerNormalization()(x))
    y = layers.Dropout(dropout)(layers.Dense(width)(y))
    return layers.Add()([x, y])


@keras.saving.register_keras_serializable(package="clip")
class Positions(layers.Layer):
    """Adds a learned vector for each position, up to `longest`."""

    def __init__(self, longest: int, **options: Any) -> None:
        super().__init__(**options)
        self.longest = longest

    def build(self, shape: Any) -> None:
        """Make the vectors."""
        self.vectors = self.add_weight(
            shape=(self.longest, shape[-1]),
            initializer=keras.initializers.RandomNormal(stddev=0.02),
            name="vectors",
        )

    def call(self, x: Any) -> Any:
        """Return the sum."""
        return x + self.vectors[: ops.shape(x)[1]]

    def compute_output_shape(self, shape: Any) -> Any:
        """Return the shape of the input."""
        return shape

    def get_config(self) -> dict[str, Any]:
        """Return the arguments of the constructor."""
        return {**super().get_config(), "longest": self.longest}


@keras.saving.register_keras_serializable(package="clip")
class MaskedMean(layers.Layer):
    """The mean over the tokens that are text."""

    def call(self, inputs: Any) -> Any:
        """Return a vector for each text."""
        x, is_text = inputs
        return ops.sum(x * is_text, axis=1) / ops.maximum(ops.sum(is_text, axis=1), 1.0)

    def compute_output_shape(self, shapes: Any) -> Any:
        """Return the shape without the tokens."""
        return (shapes[0][0], shapes[0][-1])
