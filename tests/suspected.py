"""Training functions whose mistake leaves the traces of another one: only a further run tells. Run in workers."""

from __future__ import annotations

from typing import Any

from training import digits

import dtk

BATCH, STEPS = 32, 6


def batches(strategy, augmented=False, unseeded=False):
    import tensorflow as tf

    def part(context):
        """Each worker reads its own part, and changes it by what it draws."""
        mine = data.shard(context.num_input_pipelines, context.input_pipeline_id)
        mine = mine.map(lambda x, y: (x + tf.random.uniform(x.shape, maxval=0.1), y))
        return mine.batch(context.get_per_replica_batch_size(BATCH))

    data = tf.data.Dataset.from_tensor_slices(digits(BATCH * STEPS))
    if augmented:
        return strategy.distribute_datasets_from_function(part)
    if unseeded:  # a generator that nothing seeds
        noise = tf.random.Generator.from_non_deterministic_state().uniform((), maxval=0.1)
        data = data.map(lambda x, y: (x + noise, y))
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
    return data.batch(BATCH).with_options(options)


def network(dropout=False, norm=False, activation="tanh"):
    from tensorflow import keras

    layers = [keras.layers.Input((64,)), keras.layers.Dense(16, activation=activation)]
    layers += [keras.layers.BatchNormalization()] if norm else []
    layers += [keras.layers.Dropout(0.3)] if dropout else []
    return keras.Sequential([*layers, keras.layers.Dense(10)])


def mean_over_the_batch(y, outputs):
    """A single number, which Keras does not divide by the replicas."""
    import tensorflow as tf
    from tensorflow import keras

    return tf.reduce_mean(keras.losses.sparse_categorical_crossentropy(y, outputs, from_logits=True))


def by_fit(strategy, clip=None, layers=None, data=None, by_replicas=False, scalar=False):
    from tensorflow import keras

    with strategy.scope():
        model = network(**layers or {})
        rate = 0.05 * strategy.num_replicas_in_sync if by_replicas else 0.05
        optimizer = keras.optimizers.SGD(rate, **({"global_clipnorm": clip} if clip else {}))
        loss = mean_over_the_batch if scalar else keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(optimizer, loss)
    model.fit(batches(strategy, **data or {}), verbose=0, callbacks=[dtk.Recorder()])


def by_loop(strategy, loss="right", clip=None, unshown=0.0, **layers):
    """loss: what a replica's share is. clip: of its own gradient. unshown: a penalty that is not recorded."""
    import tensorflow as tf
    from tensorflow import keras

    with strategy.scope():
        model, optimizer = network(**layers), keras.optimizers.SGD(0.1)
        optimizer.build(model.trainable_variables)

    def share(y, outputs):
        each = keras.losses.sparse_categorical_crossentropy(y, outputs, from_logits=True)
        mean = tf.nn.compute_average_loss(each, global_batch_size=BATCH)
        if loss == "in-batch negatives":
            normed = tf.math.l2_normalize(outputs, axis=1)
            scores = tf.matmul(normed, normed, transpose_b=True)
            others = keras.losses.sparse_categorical_crossentropy(tf.range(tf.shape(y)[0]), scores, from_logits=True)
            return mean + tf.nn.compute_average_loss(others, global_batch_size=BATCH)
        if loss == "masked mean":
            mask = tf.cast(y < 4, tf.float32)
            return tf.reduce_sum(each * mask) / tf.reduce_sum(mask) / strategy.num_replicas_in_sync
        if loss == "added whole":  # on the examples' outputs, such as a divergence
            return mean + 0.1 * tf.reduce_mean(outputs**2)
        if loss == "tiny penalty":
            return mean + 1e-5 * tf.add_n([tf.reduce_sum(w**2) for w in model.trainable_variables if len(w.shape) > 1])
        return mean

    def step(inputs):
        x, y = inputs
        with tf.GradientTape() as tape:
            value = share(y, model(x, training=True))
            hidden = unshown * tf.add_n([tf.reduce_sum(w**2) for w in model.trainable_variables])
            total = value + hidden
        gradients = tape.gradient(total, model.trainable_variables)
        if clip:
            gradients, _ = tf.clip_by_global_norm(gradients, clip)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return value

    @tf.function
    def train(batch):
        dtk.record_step(strategy.run(step, (batch,)), batch=batch, model=model)

    for inputs in strategy.experimental_distribute_dataset(batches(strategy)):
        train(inputs)


def _case(mistake: str, fn: Any, kwargs: dict[str, Any], **tolerances: float) -> Any:
    return mistake, {"fn": fn, "kwargs": kwargs}, tolerances


# (what further runs must name, arguments of dtk.run and dtk.baseline, tolerances)
TRIED = {
    "dropout": _case("random", by_fit, {"layers": {"dropout": True}}),
    "in-batch negatives": _case("whole batch", by_loop, {"loss": "in-batch negatives"}),
    "masked mean": _case("whole batch", by_loop, {"loss": "masked mean"}),
    "added whole": _case("regularisation", by_loop, {"loss": "added whole"}),
    "batch norm": _case("batch norm", by_fit, {"layers": {"norm": True}}),
    "clipping by Keras": _case("clipping", by_fit, {"clip": 0.1}),
    "clipping in a loop": _case("clipping", by_loop, {"clip": 0.1}),
    "learning rate": _case("learning rate", by_fit, {"by_replicas": True}),
    "augmentation": _case("augmentation", by_fit, {"data": {"augmented": True}}),
    "unseeded": _case("not reproducible", by_fit, {"data": {"unseeded": True}}),
    "tiny penalty": _case("regularisation", by_loop, {"loss": "tiny penalty"}, rtol=1e-6),
    "a number for the batch": _case("local mean", by_fit, {"scalar": True}),
    "penalty not shown": _case("unknown", by_loop, {"unshown": 0.01}),
}
