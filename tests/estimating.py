"""Estimator functions that several test files train: the fixed lesson model on the embedded digits, in small."""

from __future__ import annotations

import dtk


def input_fn_of(mode, global_batch, input_context=None, shard=True):
    """The digits in global batches that are the same for every number of workers, step by step."""
    import tensorflow as tf

    images, labels = dtk.datasets.digits()
    images = images.astype("float32") / 255
    chosen = slice(300, 300 + 1280) if mode == "train" else slice(0, 300)
    data = tf.data.Dataset.from_tensor_slices((images[chosen], labels[chosen]))
    if mode != "train":
        return data.batch(global_batch)
    data, batch = data.shuffle(1280, seed=7).repeat(), global_batch
    if input_context:
        # Estimator gives each replica a batch of its own, also where several of them are in one process.
        batch = input_context.get_per_replica_batch_size(global_batch)
    if input_context and shard:
        data = data.shard(input_context.num_input_pipelines, input_context.input_pipeline_id)
    return data.batch(batch)


def model_fn_of(features, labels, mode, params):
    import tensorflow as tf

    model = tf.keras.Sequential(
        [
            tf.keras.layers.Flatten(input_shape=(28, 28, 1)),
            tf.keras.layers.Dense(32, activation="tanh"),
            tf.keras.layers.Dense(10),
        ]
    )
    logits = model(features, training=mode == "train")
    if mode == "infer":
        return dtk.estimator.EstimatorSpec(mode, predictions={"logits": logits})
    loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits))
    accuracy = tf.compat.v1.metrics.accuracy(labels, tf.argmax(logits, axis=1))
    optimizer = tf.compat.v1.train.GradientDescentOptimizer(params["rate"])
    step = tf.compat.v1.train.get_or_create_global_step()
    return dtk.estimator.EstimatorSpec(
        mode,
        loss=loss,
        train_op=optimizer.minimize(loss, step) if mode == "train" else None,
        eval_metric_ops={"accuracy": accuracy},
    )


def estimator(model_fn=model_fn_of, rate=0.1, model_dir=None, strategy=None, **config):
    import tensorflow as tf

    strategy = strategy or tf.distribute.MultiWorkerMirroredStrategy()
    folder = str(dtk.run_dir() / "model") if model_dir is None else str(model_dir)
    settings = dtk.estimator.RunConfig(train_distribute=strategy, tf_random_seed=1, **config)
    return dtk.estimator.Estimator(model_fn, model_dir=folder, config=settings, params={"rate": rate})


def train(steps=20, global_batch=128, shard=True, hooks=(), **more):
    def input_fn(mode, input_context=None):
        return input_fn_of(mode, global_batch, input_context, shard)

    train_spec = dtk.estimator.TrainSpec(input_fn, max_steps=steps, hooks=[make() for make in hooks])
    eval_spec = dtk.estimator.EvalSpec(input_fn, steps=None)
    dtk.estimator.train_and_evaluate(estimator(**more), train_spec, eval_spec)
