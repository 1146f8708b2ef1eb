"""Plain TensorFlow: MultiWorkerMirroredStrategy and a loop of its own."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from scaling import case


def train() -> None:
    """Train all epochs, and record each."""
    tf.config.threading.set_intra_op_parallelism_threads(1)
    strategy = (
        tf.distribute.MultiWorkerMirroredStrategy()
        if case.world_size() > 1
        else tf.distribute.get_strategy()
    )
    images, labels = case.data()
    first, second = case.FILTERS
    shapes = ((3, 3, 1, first), (3, 3, first, second), (second * 25, 10))
    draw = tf.random.Generator.from_seed(0)
    with strategy.scope():
        weights, velocity = [], []
        for shape in shapes:
            scale = tf.cast(tf.reduce_prod(shape[:-1]), "float32") ** -0.5
            weights.append(tf.Variable(draw.normal(shape) * scale, **_aggregated(strategy)))
            velocity.append(tf.Variable(tf.zeros(shape), **_aggregated(strategy)))

    def step(x: Any, y: Any) -> Any:
        with tf.GradientTape() as tape:
            for kernel in weights[:2]:
                x = tf.nn.relu(tf.nn.conv2d(x, kernel, 1, "VALID"))
                x = tf.nn.max_pool2d(x, 2, 2, "VALID")
            scores = tf.reshape(x, (-1, second * 25)) @ weights[2]
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(y, scores)
            loss = tf.reduce_sum(losses) / case.BATCH_SIZE
        gradients = tape.gradient(loss, weights)
        gradients = tf.distribute.get_replica_context().all_reduce("SUM", gradients)
        for weight, speed, gradient in zip(weights, velocity, gradients, strict=True):
            speed.assign(case.MOMENTUM * speed - case.LEARNING_RATE * gradient)
            weight.assign_add(speed)
        return loss

    @tf.function  # type: ignore[untyped-decorator]
    def run(x: Any, y: Any) -> Any:
        return strategy.run(step, (x, y))

    for epoch in range(case.EPOCHS):
        loss = 0.0
        for rows in case.parts(epoch, len(images)):
            loss = run(tf.constant(images[rows]), tf.constant(labels[rows]))
        case.record("epoch", epoch, loss=float(loss))


def _aggregated(strategy: Any) -> dict[str, Any]:
    if strategy.num_replicas_in_sync == 1:
        return {}
    return {"aggregation": tf.VariableAggregation.ONLY_FIRST_REPLICA}


if __name__ == "__main__":
    train()
