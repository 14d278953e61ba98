"""How examples reach the workers: by files, by a function for each worker, with noise drawn outside of TensorFlow."""

from __future__ import annotations

import tempfile
from pathlib import Path

from training import sharded

import dtk
from proof_programs import REPLICAS, add, add_wrong
from proof_programs.parts import BATCH, arrays, batches, built, looped, network, on_cluster, order
from proof_programs.special_fits import compiled
from proof_programs.special_loops import trained

DRAWN = ("same draws", "from_generator", "own draws")


def files(parts):
    """Files of records `(number,)`, written by each process for itself: the same in all."""
    import tensorflow as tf

    folder = Path(tempfile.mkdtemp(prefix="proof-programs-"))
    paths = [str(folder / f"part-{index}.tfrecord") for index in range(len(parts))]
    for path, numbers in zip(paths, parts, strict=True):
        with tf.io.TFRecordWriter(path) as writer:
            for number in numbers:
                writer.write(str(number).encode())
    return paths


def read(steps, model, mistake):
    """Examples by their numbers in two files of unequal contents, sharded by data. Mistakes: by "files", by "auto"."""
    import tensorflow as tf

    x, y = arrays(model)
    numbers = sorted(range(len(y)), key=lambda number: int(y[number]))  # by label: a file has some labels only
    paths = files([numbers[: len(y) // 3], numbers[len(y) // 3 :]])
    dataset = tf.data.TFRecordDataset(paths).repeat().shuffle(256, seed=5)
    dataset = dataset.map(lambda record: tf.strings.to_number(record, tf.int64)).batch(BATCH, drop_remainder=True)
    xs, ys = tf.constant(x), tf.constant(y)
    dataset = dataset.take(steps).map(lambda some: (tf.gather(xs, some), tf.gather(ys, some)))
    return sharded(dataset, {"files": "FILE", "auto": "AUTO"}.get(mistake, "DATA"))


def by_worker(context, steps, n, model, mistake):
    """A worker's own part, in batches of its own size: every so many-th example, with noise for each.

    Mistakes: "same draws" (NumPy's, seeded alike in all processes), "from_generator" (the same in a generator), "own
    draws" (each worker has a seed of its own); right: the noise depends on the example's number alone.
    """
    import numpy as np
    import tensorflow as tf

    x, y = arrays(model)
    numbers = order(steps * BATCH, len(y))[context.input_pipeline_id :: context.num_input_pipelines]
    if mistake == "own draws":
        np.random.seed(100 + (dtk.environment.here().worker if on_cluster() else 0))
    shape = x.shape[1:]

    def noise(number):
        rng = np.random if mistake in DRAWN else np.random.RandomState(number)
        return (0.3 * rng.normal(size=shape)).astype("float32")

    def each():
        for number in numbers:
            yield x[number] + noise(number), y[number]

    if mistake == "from_generator":
        kinds = (tf.TensorSpec(shape, tf.float32), tf.TensorSpec((), y.dtype))
        return tf.data.Dataset.from_generator(each, output_signature=kinds).batch(BATCH // n)

    def changed(number):
        drawn = tf.ensure_shape(tf.numpy_function(noise, [number], tf.float32), shape)
        return tf.gather(tf.constant(x), number) + drawn, tf.gather(tf.constant(y), number)

    return tf.data.Dataset.from_tensor_slices(numbers).map(changed).batch(BATCH // n)


def apart(context, steps, n, model, mistake):
    """Mistakes: "same order" (every worker takes the same examples), "own order" (each shuffles them by itself)."""
    import tensorflow as tf

    x, y = arrays(model)
    if mistake == "none":  # each shuffles its own part
        count = min(len(y), steps * BATCH)
        part = tf.data.Dataset.from_tensor_slices((x[:count], y[:count]))
        part = part.shard(context.num_input_pipelines, context.input_pipeline_id).shuffle(count)
        return part.repeat(-(-steps * BATCH // count)).batch(BATCH // n)
    seed = 7 + (dtk.environment.here().worker if mistake == "own order" else 0)
    size = BATCH // (2 if mistake == "own order" else n)
    numbers = order(steps * BATCH, len(y), seed)
    pipeline, pipelines = context.input_pipeline_id, context.num_input_pipelines
    numbers = numbers[: steps * BATCH // pipelines] if mistake else numbers.reshape(-1, pipelines, BATCH // pipelines)
    numbers = numbers if mistake else numbers[:, pipeline].reshape(-1)
    xs, ys = tf.constant(x), tf.constant(y)
    dataset = tf.data.Dataset.from_tensor_slices(numbers).batch(size)
    return dataset.map(lambda some: (tf.gather(xs, some), tf.gather(ys, some)))


def distributed(strategy, steps, model, way, mistake):
    """way: "data", "files", "by worker" or "apart". Mistake "policy off": every worker reads all batches, rebatched."""
    n = strategy.num_replicas_in_sync
    if way in ("by worker", "apart"):
        make = by_worker if way == "by worker" else apart
        return strategy.distribute_datasets_from_function(lambda context: make(context, steps, n, model, mistake))
    if way == "files":
        return strategy.experimental_distribute_dataset(read(steps, model, mistake))
    policy = "OFF" if mistake == "policy off" else "DATA"
    return strategy.experimental_distribute_dataset(batches(arrays(model), steps, policy=policy))


def by_loop(strategy, steps=300, way="data", mistake=None, optimizer="adam", model="cnn", recorded=True, **facts):
    net, update = built(strategy, optimizer, network, model, **facts)
    dataset = distributed(strategy, steps, model, way, mistake)
    looped(strategy, lambda inputs: trained(net, update, *inputs), dataset, net, recorded)


def by_fit(strategy, steps=300, way="data", mistake=None, optimizer="adam", model="cnn", **facts):
    net = compiled(strategy, model, optimizer, **facts)
    dataset = distributed(strategy, steps, model, way, mistake)
    net.fit(dataset, steps_per_epoch=steps, verbose=0, callbacks=[dtk.Recorder()])


def turned(strategy, steps=300, threads=None):
    """A map draws for each example, by the state of layers that are made outside of the scope; without a recorder.

    threads: several draw by turns, which no seed makes the same twice.
    """
    import keras

    turn = keras.Sequential([keras.layers.RandomFlip(), keras.layers.RandomRotation(0.1)])
    net = compiled(strategy)
    dataset = batches(arrays("cnn"), steps).unbatch()
    dataset = dataset.map(lambda x, y: (turn(x, training=True), y), num_parallel_calls=threads)
    net.fit(dataset.batch(BATCH).prefetch(2), verbose=0)


add("fit, turned in the data", turned)
for kind, train in (("loop", by_loop), ("fit", by_fit)):
    add(f"{kind}, files sharded by data", train, way="files", behind=True)
    add(f"{kind}, a dataset for each worker", train, way="apart", behind=True)
    add(f"{kind}, noise by the example", train, way="by worker")
    add(f"{kind}, a shuffled part for each worker", train, way="apart", mistake="none", behind=True)
add("loop, a shuffled part for each worker, dropout", by_loop, REPLICAS, way="apart", mistake="none", dropout=0.4)
add("loop, a dataset for each worker, dropout", by_loop, REPLICAS, way="apart", dropout=0.4)

ORDER = "data: other examples than one device's, by the same rule for each worker: "
TRUTHS = {
    "files": ("files", ORDER + "each reads one of two files, of unequal contents"),
    "auto": ("files", ORDER + "policy AUTO shards two files, of unequal contents, by file"),
    "policy off": (
        "data",
        "data: every worker reads all examples: its own batch is the first part of the same batches",
    ),
    "same order": ("apart", "data: every worker reads the same examples"),
    "own order": ("apart", "data: each worker shuffles all examples by a seed of its own"),
    "same draws": (
        "by worker",
        "noise by NumPy's global generator, seeded alike: each worker draws the same for others",
    ),
    "from_generator": ("by worker", "noise by NumPy inside of a generator, seeded alike in each worker"),
    "own draws": ("by worker", "no mistake: noise by NumPy, a seed for each worker; other noise than one device's"),
}
for key, (way, truth) in TRUTHS.items():
    facts = {"replicas": False, "expected": REPLICAS if key == "own draws" else "one device"}
    for kind, train in (("loop", by_loop), ("fit", by_fit)):
        add_wrong(f"{kind}, {key}", train, truth, facts, way=way, mistake=key)
