"""Loops with more state than weights and slots: accumulated gradients, averages of weights, targets, late layers."""

from __future__ import annotations

from training import sharded

import dtk
from proof_programs import REPLICAS, add, add_wrong
from proof_programs.parts import BATCH, arrays, batches, built, crossentropy, looped, network, on_worker, optimizer_of

MICRO = 4  # calls of the step for one update


def accumulated(strategy, steps=300, mistake=None, optimizer="adam", recorded=True, fold="SUM", apart=False, **facts):
    """A micro-batch a call; every fourth call applies what was gathered. Examples with label 0 count as padding.

    The data bring how many examples count in their whole group. fold: how TensorFlow is to add up what was gathered.
    apart: a function of its own applies it. Mistakes: GATHERED.
    """
    import tensorflow as tf

    n, fold = strategy.num_replicas_in_sync, getattr(tf.VariableAggregation, fold)
    with strategy.scope():
        net, update = built(strategy, optimizer, network, **facts)
        local = {"trainable": False, "synchronization": tf.VariableSynchronization.ON_READ, "aggregation": fold}
        gathered = [tf.Variable(tf.zeros(w.shape), **local) for w in net.trainable_variables]

    def replica_step(inputs, apply):
        x, y, whole = inputs
        counted = tf.cast(y > 0, tf.float32)
        mine = tf.reduce_sum(counted)
        everyone = tf.distribute.get_replica_context().all_reduce("SUM", mine)
        by = {"mean of means": everyone * MICRO, "mean of local means": mine * MICRO * n}
        by["micro twice"] = whole[0] * MICRO
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(crossentropy(y, net(x, training=True)) * counted) / by.get(mistake, whole[0])
        gradients = tape.gradient(loss, net.trainable_variables)
        gradients = tf.clip_by_global_norm(gradients, 0.1)[0] if mistake == "clipped" else gradients
        for held, gradient in zip(gathered, gradients, strict=True):
            held.assign_add(gradient)
        if apply:
            apply_all()
        return loss

    def apply_all():
        update.apply_gradients(zip([tf.identity(each) for each in gathered], net.trainable_variables, strict=True))
        for held in gathered if mistake != "not reset" else []:
            held.assign(tf.zeros_like(held))

    alone = tf.function(lambda: strategy.run(apply_all))

    @tf.function
    def step(inputs, apply):
        losses = strategy.run(replica_step, (inputs, apply))
        if recorded:
            dtk.record_step(losses, batch=inputs, model=net)

    for number, inputs in enumerate(strategy.experimental_distribute_dataset(_in_groups(steps)), 1):
        due = number % MICRO == 0
        step(inputs, due and not apart)
        if due and apart:
            alone()


def _in_groups(steps):
    """Batches of inputs, labels, and how many examples count in the MICRO batches together."""
    import numpy as np
    import tensorflow as tf

    x, y = arrays("cnn")
    y = np.where(np.arange(len(y)) % 512 < 200, y, y * (y > 4))  # counts that differ from place to place
    data = batches((x, y), steps).unbatch().batch(BATCH * MICRO)
    data = data.map(lambda x, y: (x, y, tf.fill(tf.shape(y), tf.reduce_sum(tf.cast(y > 0, tf.float32)))))
    return sharded(data.unbatch().batch(BATCH))


def averaged(strategy, steps=300, way="between", optimizer="adam", recorded=True, **facts):
    """A second network is an average of the first one's past, and the first is also pulled towards its outputs.

    way: it is updated "between" the steps, "inside" of the step's function, in a function of its own ("function"), or
    copied as a whole every 10 steps ("copied").
    """
    import keras
    import tensorflow as tf

    with strategy.scope():
        net, update = built(strategy, optimizer, network, "mlp", **facts)
        target = keras.models.clone_model(net)
        target.set_weights(net.get_weights())
        target.trainable = False

    def follow():
        for mine, its in zip(target.weights, net.weights, strict=True):
            mine.assign(0.95 * mine + 0.05 * its)

    def replica_step(inputs):
        x, y = inputs
        with tf.GradientTape() as tape:
            outputs = net(x, training=True)
            each = crossentropy(y, outputs) + tf.reduce_sum((outputs - target(x, training=False)) ** 2, axis=-1) / 50
            loss = tf.nn.compute_average_loss(each, global_batch_size=BATCH)
        update.apply_gradients(zip(tape.gradient(loss, net.trainable_variables), net.trainable_variables, strict=True))
        return loss

    @tf.function
    def step(inputs):
        losses = strategy.run(replica_step, (inputs,))
        if way == "inside":
            follow()
        if recorded:
            dtk.record_step(losses, batch=inputs, model=[net, target] if way == "inside" else net)

    after = tf.function(follow) if way == "function" else follow
    for number, inputs in enumerate(strategy.experimental_distribute_dataset(batches(arrays("mlp"), steps)), 1):
        step(inputs)
        if way == "copied" and number % 10 == 0:
            target.set_weights(net.get_weights())
        elif way in ("between", "function"):
            after()


def trained(net, update, x, y):
    """A replica's step: its share of the mean, and its update."""
    import tensorflow as tf

    with tf.GradientTape() as tape:
        loss = tf.nn.compute_average_loss(crossentropy(y, net(x, training=True)), global_batch_size=BATCH)
    update.apply_gradients(zip(tape.gradient(loss, net.trainable_variables), net.trainable_variables, strict=True))
    return loss


def made_late(strategy, steps=300, optimizer="adam", **facts):
    """The network and the optimizer make their variables in the first step; a rate is set by hand after each tenth."""
    import keras
    import tensorflow as tf

    with strategy.scope():
        middle = [keras.layers.Dropout(facts["dropout"])] if facts.get("dropout") else []
        middle += [keras.layers.BatchNormalization()] if facts.get("batch_norm") else []
        net = keras.Sequential([keras.layers.Dense(32, activation="relu"), *middle, keras.layers.Dense(10)])
        update = optimizer_of(optimizer)

    @tf.function
    def step(inputs):
        return strategy.run(lambda x, y: trained(net, update, x, y), inputs)

    for number, inputs in enumerate(strategy.experimental_distribute_dataset(batches(arrays("mlp"), steps)), 1):
        dtk.record_step(step(inputs), batch=inputs, model=net)
        if number % 10 == 0:
            update.learning_rate.assign(0.95 * update.learning_rate)


def drawn(strategy, steps=300, by="generator", mistake=None, **facts):
    """Inputs are changed by noise that the step draws by a tf.random.Generator or by tf.random.normal ("operation").

    By that, in layers that are built in the first step. "call": in a call before it. mistake: worker 1 draws none.
    """
    import keras
    import tensorflow as tf

    with strategy.scope():
        net, update = network("mlp", **facts), optimizer_of("adam")
        if by == "operation":
            net = keras.Sequential([keras.layers.Dense(16, activation="relu"), keras.layers.Dense(10)])
        else:
            update.build(net.trainable_variables)
        generator = tf.random.Generator.from_seed(3)

    def noisy(x, y):
        if not (mistake and on_worker(1)):
            x += 0.1 * (generator.normal if by == "generator" else tf.random.normal)(tf.shape(x))
        return x, y

    def replica_step(inputs):
        return trained(net, update, *(inputs if by == "call" else noisy(*inputs)))

    dataset = strategy.experimental_distribute_dataset(batches(arrays("mlp"), steps))
    dataset = map(tf.function(lambda inputs: strategy.run(noisy, inputs)), dataset) if by == "call" else dataset
    looped(strategy, replica_step, dataset, net if by == "generator" else None, recorded=by != "call")


def counted(strategy, steps=300, mistake=None):
    """Each step adds its examples to a variable that is not trained. Mistake "averaged": the mean over the replicas."""
    import tensorflow as tf

    fold = tf.VariableAggregation.MEAN if mistake == "averaged" else tf.VariableAggregation.SUM
    with strategy.scope():
        net, update = built(strategy, "adam", network, "mlp")
        seen = tf.Variable(0.0, trainable=False, aggregation=fold)
        n, own = strategy.num_replicas_in_sync, tf.VariableSynchronization.ON_READ
        last = tf.Variable(tf.zeros(BATCH // n), trainable=False, synchronization=own)  # of a replica's examples

    def replica_step(inputs):
        seen.assign_add(tf.cast(tf.shape(inputs[1])[0], tf.float32))
        last.assign(0.5 * last + tf.cast(inputs[1], tf.float32))
        return trained(net, update, *inputs)

    looped(strategy, replica_step, strategy.experimental_distribute_dataset(batches(arrays("mlp"), steps)), net)


add("accumulated by hand", accumulated, behind=True)
add("accumulated by hand, not recorded", accumulated, recorded=False)
add("accumulated by hand, sgd", accumulated, optimizer="sgd")
add("accumulated by hand, without a fold", accumulated, REPLICAS, fold="ONLY_FIRST_REPLICA", apart=True, dropout=0.2)
for way in ("between", "inside", "function", "copied"):
    add(f"target network {way}", averaged, way=way, behind=way != "inside")
add("target network between, not recorded", averaged, recorded=False)
add("variables made in step 1", made_late, behind=True)
add("examples counted", counted)
add("loop drawn by generator", drawn, REPLICAS)
add("loop drawn by operation", drawn, REPLICAS, by="operation")
add("loop drawn by a call of its own", drawn, REPLICAS, by="call")

GATHERED = {  # what is wrong, and whether one device does that, too
    "mean of means": ("every micro-batch counts the same, whatever its examples that count", True),
    "mean of local means": ("every replica's part of a micro-batch counts the same, whatever its examples", False),
    "micro twice": ("the sum over the micro-batches is divided by their number once too often", True),
    "clipped": ("every replica clips its part of a micro-batch's gradients before it is gathered", False),
    "not reset": ("what was gathered is not reset after an update", True),
}
for key, (truth, shared) in GATHERED.items():
    add_wrong(f"accumulated, {key}", accumulated, truth, {"shared": shared}, mistake=key)
add_wrong("noise but on worker 1", drawn, "worker 1 alone adds no noise", {"replicas": False}, mistake=True)
add_wrong("examples counted, averaged", counted, "the replicas' counts' mean", {"behind": False}, mistake="averaged")
