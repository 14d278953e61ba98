"""Custom loops: recorded in several ways or not at all, with small mistakes, and with losses divided wrongly."""

from __future__ import annotations

from training import dealt

import dtk
from proof_programs import REPLICAS, add, add_wrong
from proof_programs.fits import too_large
from proof_programs.parts import (
    BATCH,
    arrays,
    batches,
    built,
    crossentropy,
    network,
    on_cluster,
    on_worker,
    optimizer_of,
    seeded,
)
from proof_programs.reduced import LOSSES, share


def made(strategy, model, optimizer, mistake, size, clip, facts):
    """A network, what its optimizer trains, and the optimizer. Mistake "copy": that of a copy."""
    import keras

    with strategy.scope():
        seeded(mistake)
        net = network(model, **facts)
        update = optimizer_of(optimizer, mistake, size, **({"global_clipnorm": clip} if clip else {}))
        trained = keras.models.clone_model(net) if mistake == "copy" else net
        update.build(trained.trainable_variables)
    return net, trained, update


def step_of(strategy, net, trained, update, batch, mistake=None, change=None):
    """A step of all replicas; change: what a mistake makes of the gradients."""
    import tensorflow as tf

    n = strategy.num_replicas_in_sync

    def replica_step(inputs):
        x, y = inputs
        with tf.GradientTape() as tape:
            each = crossentropy(y, net(x, training=True))
            right = tf.nn.compute_average_loss(each, global_batch_size=batch)
            loss = share(each, net, n, mistake) if mistake in LOSSES else right
        gradients = change(tape.gradient(loss, net.trainable_variables), update.iterations)
        if mistake == "decay":
            gradients = [g + 0.01 * w for g, w in zip(gradients, net.trainable_variables, strict=True)]
        for _ in range(n if mistake == "applied twice" else 1):
            update.apply_gradients(zip(gradients, trained.trainable_variables, strict=True))
        return loss

    return lambda inputs: strategy.run(replica_step, (inputs,))


def by_loop(
    strategy,
    steps=300,
    model="cnn",
    optimizer="sgd",
    mistake=None,
    at=200,
    size=None,
    record="inside",
    epoch_steps=None,
    batch=BATCH,
    by_replicas=False,
    clip=None,
    **facts,
):
    """record: `dtk.record_step` "inside" of the function, "outside", or None. epoch_steps: so many in one function.

    Mistakes: LOSSES; those of `batches`, `optimizer_of`, `seeded` and `too_large`; "later rate"; "worker's rate";
    "copy" (the optimizer has the variables of a copy); "decay" (each replica adds it whole); "applied twice" (by two).
    """
    import tensorflow as tf

    batch = batch * strategy.num_replicas_in_sync if by_replicas else batch
    net, trained, update = made(strategy, model, optimizer, mistake, size, clip, facts)
    run = step_of(strategy, net, trained, update, batch, mistake, too_large(mistake, at, size))

    def step(inputs):
        losses = run(inputs)
        if record == "inside":
            dtk.record_step(losses, batch=inputs[0] if mistake == "worker's labels" else inputs, model=net)
        return losses

    one = tf.function(step)

    @tf.function
    def several(iterator):
        for _ in tf.range(epoch_steps):
            step(next(iterator))

    x, y = arrays(model)
    data = batches((x, y.astype("float32")), steps, batch, mistake, at)  # labels as many files have them
    dataset = strategy.experimental_distribute_dataset(data)
    if mistake == "worker's rate" and on_worker(1):
        update.learning_rate.assign(0.9 * update.learning_rate)
    if epoch_steps:
        iterator = iter(dataset)
        for _ in range(steps // epoch_steps):
            several(iterator)
    for number, inputs in enumerate(() if epoch_steps else dataset, 1):
        if number == at and mistake == "later rate" and on_cluster():
            update.learning_rate.assign(0.5 * update.learning_rate)
        losses = one(inputs)
        if record == "outside":
            dtk.record_step(losses, batch=inputs, model=net, step=number)


def uneven(strategy, steps=300, mistake=None, optimizer="adam", count=BATCH * 5 + 21, **facts):
    """Epochs whose last batch is short. Mistake "own mean": each replica's mean, divided by the replicas."""
    import tensorflow as tf

    n = strategy.num_replicas_in_sync
    net, update = built(strategy, optimizer, network, "mlp", **facts)

    def replica_step(inputs):
        x, y = inputs
        context = tf.distribute.get_replica_context()
        everywhere = context.all_reduce("SUM", tf.cast(tf.shape(y)[0], tf.float32))
        with tf.GradientTape() as tape:
            each = crossentropy(y, net(x, training=True))
            loss = tf.reduce_mean(each) / n if mistake == "own mean" else tf.reduce_sum(each) / everywhere
        gradients = tape.gradient(loss, net.trainable_variables)
        update.apply_gradients(zip(gradients, net.trainable_variables, strict=True))
        return loss

    @tf.function
    def step(inputs, epoch):
        losses = strategy.run(replica_step, (inputs,))
        dtk.record_step(losses, batch=inputs, model=net, epoch=epoch)

    dataset = strategy.experimental_distribute_dataset(dealt(arrays("mlp", count), BATCH, seed=3))
    done, epoch = 0, 0
    while done < steps:
        epoch += 1
        for inputs in dataset:
            step(inputs, tf.constant(epoch))
            done += 1


add("loop relu sgd", by_loop, behind=True)
add("loop relu adam", by_loop, optimizer="adam", behind=True)
add("loop recorded outside", by_loop, optimizer="momentum", record="outside")
add("loop not recorded", by_loop, optimizer="adam", record=None)
add("loop, 10 steps in one function", by_loop, model="mlp", epoch_steps=10)
add("loop, an epoch in one function", by_loop, model="mlp", epoch_steps=4, record=None, optimizer="adam")
add("loop embedding adagrad", by_loop, model="embedding", optimizer="adagrad")
add("loop embedding adamw", by_loop, model="embedding", optimizer="adamw")
add("loop attention adam", by_loop, model="attention", optimizer="adam")
add("loop lstm rmsprop", by_loop, model="lstm", optimizer="rmsprop")
add("loop shared layer", by_loop, model="shared", optimizer="adam")
add("loop dropout", by_loop, REPLICAS, dropout=0.4, optimizer="adam")
add("loop batch norm", by_loop, REPLICAS, batch_norm=True, optimizer="adam")
add("loop batch norm synchronized", by_loop, batch_norm="synchronized", optimizer="adam")
add("loop noise", by_loop, REPLICAS, noise=0.2)
add("loop augmentation layers", by_loop, REPLICAS, augmented=True)
add("loop batch by replicas", by_loop, REPLICAS, batch=32, by_replicas=True, optimizer="adam")
add("uneven last batch", uneven, behind=True)

for key, truth in LOSSES.items():
    for name in ("sgd", "adam"):
        add_wrong(f"{key}, {name}", by_loop, truth, mistake=key, optimizer=name)
SMALL = {
    "learning rate": ("sgd", 1, "settings: the learning rate is 1 % larger on the cluster"),
    "gradient": ("adam", 1, "one variable's update is 2 % too large on the cluster"),
    "weight decay": ("adamw", 1, "settings: weight_decay is 0 on the cluster"),
    "epsilon": ("adam", 1, "settings: epsilon is 1e-5 on the cluster, 1e-7 by default"),
    "seed": ("sgd", 1, "the start: other initial weights on the cluster"),
    "duplicated example": ("adam", 200, "data: one example twice in this step, another not at all"),
    "later rate": ("adam", 200, "settings: the learning rate is halved from this step on"),
    "short batch": ("sgd", 150, "data: 60 examples in this step, divided by 64"),
    "gradient later": ("sgd", 100, "one variable's update is 2 % too large from this step on"),
    "worker's rate": ("sgd", 1, "worker 1 has another learning rate: the replicas part"),
    "worker's labels": ("sgd", 1, "worker 1 has other labels: of it alone the loss is another one"),
}
for key, (name, at, truth) in SMALL.items():
    facts = {"replicas": False, "variables": ("logits/kernel",) * ("gradient" in key)}
    more = {} if at == 1 else {"at": at}
    add_wrong(f"loop {key}", by_loop, truth, facts, mistake=key, optimizer=name, **more)
add_wrong("loop decay", by_loop, "each replica adds the decay to its gradient whole: n times it", mistake="decay")
add_wrong("loop applied twice", by_loop, "steps: n updates in each, with n replicas", mistake="applied twice")
COPY = "the optimizer has the variables of a copy: the trained network never changes, and no update of it was recorded"
add_wrong("optimizer on a copy", by_loop, COPY, {}, mistake="copy", optimizer="adam")
UNEVEN = "in the last, short batch of an epoch, each replica's mean counts the same, whatever its examples"
add_wrong("uneven last batch, own mean", uneven, UNEVEN, {"begins": 6}, mistake="own mean")
BEFORE = "every replica clips its own gradient before the sum, as Keras 3 does with any clipnorm"
add_wrong("loop clipnorm by keras", by_loop, BEFORE, {"expected": None}, clip=0.1, optimizer="sgd")
