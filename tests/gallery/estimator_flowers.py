"""Estimators, canned and by a model_fn, as TensorFlow 2's tutorials had them, on made-up flowers."""

from __future__ import annotations

import dtk
from gallery import program
from gallery.slips import rate

BATCH, COUNT, STEPS = 16, 128, 8
KEYS = ("SepalLength", "SepalWidth", "PetalLength", "PetalWidth")
FEEDS = ("global batch", "steps", "learning rate")  # without shards dtk stops the run itself


def flowers():
    """Four measures by name, `(COUNT,)` each, and a species of three."""
    import numpy as np

    rng = np.random.default_rng(131)
    species = rng.integers(0, 3, COUNT)
    measures = (np.eye(3, 4)[species] * 1.5 + rng.normal(0, 0.5, (COUNT, 4))).astype("float32")
    return {key: measures[:, i] for i, key in enumerate(KEYS)}, species


def fed(features, labels, slip):
    """An input_fn: each worker reads its shard, in batches that add up to the global batch; three epochs, one order.

    Slip "global batch": as large a batch on each replica.
    """
    import tensorflow as tf

    def input_fn(input_context=None):
        dataset, size = tf.data.Dataset.from_tensor_slices((features, labels)), BATCH
        if input_context:
            dataset = dataset.shard(input_context.num_input_pipelines, input_context.input_pipeline_id)
        if input_context and slip != "global batch":
            size = input_context.get_per_replica_batch_size(BATCH)
        return dataset.repeat(3).batch(size, drop_remainder=True)

    return input_fn


def trained(estimator, input_fn, strategy, slip):
    """Trains for STEPS steps, one more in the cluster by the slip "steps"."""
    steps = STEPS + (slip == "steps" and strategy.num_replicas_in_sync > 1)
    dtk.estimator.train_and_evaluate(
        estimator, dtk.estimator.TrainSpec(input_fn, max_steps=steps), dtk.estimator.EvalSpec(input_fn, steps=2)
    )


def settings(strategy):
    """The folder and the configuration of an Estimator."""
    config = dtk.estimator.RunConfig(train_distribute=strategy, tf_random_seed=1)
    return {"model_dir": str(dtk.run_dir() / "model"), "config": config}


@program(kind="estimator", source="TensorFlow tutorial estimator/premade, on two workers", slips=FEEDS)
def premade_deep_classifier(strategy, slip=None):
    """Right: a canned head takes the mean over the replica's examples, divided by the replicas."""
    import tensorflow as tf

    features, species = flowers()
    classifier = dtk.estimator.DNNClassifier(
        feature_columns=[tf.feature_column.numeric_column(key) for key in KEYS],
        hidden_units=[10, 6],
        activation_fn=tf.tanh,
        n_classes=3,
        optimizer=lambda: tf.keras.optimizers.legacy.Adagrad(rate(0.05, strategy, slip)),
        **settings(strategy),
    )
    trained(classifier, fed(features, species, slip), strategy, slip)


@program(kind="estimator", source="TensorFlow tutorial estimator/linear: the Titanic's survivors", slips=FEEDS)
def premade_linear_classifier(strategy, slip=None):
    """Right, as any canned head; a name is a feature as well, looked up in a vocabulary."""
    import numpy as np
    import tensorflow as tf

    features, species = flowers()
    colors = np.array(["red", "white", "blue"])[np.random.default_rng(132).integers(0, 3, COUNT)]
    columns = [tf.feature_column.numeric_column(key) for key in KEYS]
    columns.append(tf.feature_column.categorical_column_with_vocabulary_list("Color", ["red", "white", "blue"]))
    classifier = dtk.estimator.LinearClassifier(
        feature_columns=columns,
        optimizer=lambda: tf.keras.optimizers.legacy.Ftrl(rate(0.2, strategy, slip)),
        **settings(strategy),
    )
    survived = (species > 0).astype("int64")
    trained(classifier, fed({**features, "Color": colors}, survived, slip), strategy, slip)


def by_model_fn(strategy, slip, loss_of, normalized=False):
    """A network of Keras layers in a model_fn; `loss_of` turns losses of the replica's examples into its loss."""
    import tensorflow as tf

    def model_fn(features, labels, mode, params):
        inputs = tf.stack([features[key] for key in KEYS], axis=1)
        layers = [tf.keras.layers.Dense(8, activation="tanh")]
        layers += [tf.keras.layers.BatchNormalization()] if normalized else []
        model = tf.keras.Sequential([tf.keras.Input((4,)), *layers, tf.keras.layers.Dense(3)])
        logits = model(inputs, training=mode == dtk.estimator.ModeKeys.TRAIN)
        if mode == dtk.estimator.ModeKeys.PREDICT:
            return dtk.estimator.EstimatorSpec(mode, predictions={"logits": logits})
        loss = loss_of(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits))
        if mode == dtk.estimator.ModeKeys.EVAL:
            return dtk.estimator.EstimatorSpec(mode, loss=loss)
        optimizer = tf.compat.v1.train.MomentumOptimizer(params["rate"], 0.9)
        updates = model.get_updates_for(None) + model.get_updates_for(inputs) if normalized else []
        with tf.control_dependencies(updates):
            train_op = optimizer.minimize(loss, tf.compat.v1.train.get_or_create_global_step())
        return dtk.estimator.EstimatorSpec(mode, loss=loss, train_op=train_op)

    features, species = flowers()
    params = {"rate": rate(0.05, strategy, slip)}
    classifier = dtk.estimator.Estimator(model_fn, params=params, **settings(strategy))
    trained(classifier, fed(features, species.astype("int32"), slip), strategy, slip)


@program(kind="estimator", source="TensorFlow guide estimator: a custom model_fn, a v1 optimizer", slips=FEEDS)
def model_fn_with_a_mean(strategy, slip=None):
    """Right: under a strategy v1's optimizers divide the loss by the replicas themselves, so a local mean is right."""
    import tensorflow as tf

    by_model_fn(strategy, slip, tf.reduce_mean)


@program(
    kind="estimator",
    source="TensorFlow tutorial distribute/multi_worker_with_estimator, its sum divided by the global batch",
    right="divided twice",
    reason="loss",
)
def model_fn_divided_by_the_global_batch(strategy, slip=None):
    """Wrong, though a loop would be right so: the v1 optimizer divides by the replicas once more."""
    import tensorflow as tf

    by_model_fn(strategy, slip, lambda each: tf.reduce_sum(each) / BATCH)


@program(
    kind="estimator",
    source="TensorFlow guide estimator: a custom model_fn with batch norm",
    right="not decidable",
    reason="not followed",
)
def model_fn_batch_norm(strategy, slip=None):
    """Wrong by the layer alone: each replica normalizes by its own examples."""
    import tensorflow as tf

    by_model_fn(strategy, slip, tf.reduce_mean, normalized=True)
