"""Loops with chance, with whole episodes, with what is left over: VAE, policy gradients, a short last batch."""

from __future__ import annotations

from training import dealt

from gallery import program
from gallery.made_up import dense
from gallery.slips import LOOPS, average, distributed, looped, rate, scope

BATCH = 16


def stripes(count=128):
    """Soft stripes of random width, `(count, 16)` numbers in 0 to 1, and two normal numbers for each."""
    import numpy as np

    rng = np.random.default_rng(81)
    waves = np.sin(np.arange(16) * rng.uniform(0.3, 1.2, (count, 1)) + rng.uniform(0, 6, (count, 1)))
    return (0.5 + 0.45 * waves).astype("float32"), rng.normal(size=(count, 2)).astype("float32")


def variational(strategy, slip, drawn):
    """The tutorial's evidence lower bound; drawn: the latent noise is drawn in the step, not in the data."""
    import keras
    import tensorflow as tf

    with scope(strategy, slip):
        encoder, decoder = dense(16, 12, 4, activation="softplus"), dense(2, 12, 16, activation="softplus")
        optimizer = keras.optimizers.Adam(rate(3e-3, strategy, slip))
    variables = encoder.trainable_variables + decoder.trainable_variables

    def log_normal(sample, mean, logvar):
        squares = tf.square(sample - mean) * tf.exp(-logvar)
        return tf.reduce_sum(-0.5 * (squares + logvar + tf.math.log(2 * 3.14159265)), axis=1)

    def train_step(inputs):
        x, noise = inputs
        with tf.GradientTape() as tape:
            mean, logvar = tf.split(encoder(x), 2, axis=1)
            eps = tf.random.normal(tf.shape(mean)) if drawn else noise
            z = eps * tf.exp(0.5 * logvar) + mean
            pixels = tf.nn.sigmoid_cross_entropy_with_logits(labels=x, logits=decoder(z))
            elbo = log_normal(z, 0.0, tf.zeros_like(z)) - log_normal(z, mean, logvar) - tf.reduce_sum(pixels, axis=1)
            loss = average(-elbo, BATCH, strategy, slip)
        optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
        return loss

    looped(
        train_step, {"encoder": encoder, "decoder": decoder}, distributed(stripes(), BATCH, strategy, slip), strategy
    )


@program(kind="loop", source="TensorFlow tutorial generative/cvae, dense")
def autoencoder_that_draws(strategy, slip=None):
    """Right as N replicas: eps is drawn in the step, by each replica for its own examples."""
    variational(strategy, slip, drawn=True)


@program(kind="loop", source="TensorFlow tutorial generative/cvae, dense, its noise in the data", slips=LOOPS)
def autoencoder_with_given_noise(strategy, slip=None):
    """Right: each example's noise comes with it."""
    variational(strategy, slip, drawn=False)


def episodes(count=64, length=5):
    """What a policy saw, did and got, five steps long: states `(count, 5, 4)`, actions and rewards `(count, 5)`."""
    import numpy as np

    rng = np.random.default_rng(91)
    states = rng.normal(size=(count, length, 4)).astype("float32")
    actions = rng.integers(0, 2, (count, length))
    rewards = (actions == (states[..., 0] > 0)).astype("float32") + rng.normal(0, 0.2, (count, length))
    return states, actions, rewards.astype("float32")


def actor_critic(strategy, slip, axes):
    """The tutorial's losses on recorded episodes; returns are standardized over `axes` of `(episodes, steps)`."""
    import keras
    import tensorflow as tf

    with scope(strategy, slip):
        state = keras.Input((4,))
        common = keras.layers.Dense(12, activation="tanh")(state)
        model = keras.Model(state, [keras.layers.Dense(2)(common), keras.layers.Dense(1)(common)])
        optimizer = keras.optimizers.Adam(rate(1e-2, strategy, slip))

    def expected_return(rewards, gamma=0.9):
        returns = [rewards[:, -1]]
        for t in range(rewards.shape[1] - 2, -1, -1):
            returns.insert(0, rewards[:, t] + gamma * returns[0])
        returns = tf.stack(returns, axis=1)
        mean, deviation = (f(returns, axis=axes, keepdims=True) for f in (tf.reduce_mean, tf.math.reduce_std))
        return (returns - mean) / (deviation + 1e-6)

    def train_step(inputs):
        states, actions, rewards = inputs
        returns = expected_return(rewards)
        with tf.GradientTape() as tape:
            logits, values = model(tf.reshape(states, (-1, 4)), training=True)
            values = tf.reshape(values, tf.shape(returns))
            taken = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=tf.reshape(actions, (-1,)), logits=logits)
            actor = tf.reshape(taken, tf.shape(returns)) * tf.stop_gradient(returns - values)
            critic = keras.losses.huber(returns[..., None], values[..., None])
            loss = average(tf.reduce_sum(actor + critic, axis=1), BATCH, strategy, slip)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return loss

    looped(train_step, model, distributed(episodes(), BATCH, strategy, slip), strategy, epochs=2)


@program(
    kind="loop",
    source="TensorFlow tutorial reinforcement_learning/actor_critic, on a batch of recorded episodes",
    right="own mean",
    reason="loss",
)
def returns_standardized_over_the_batch(strategy, slip=None):
    """Wrong: returns are standardized by the mean and deviation of the batch, of which a replica has half."""
    actor_critic(strategy, slip, axes=None)


@program(
    kind="loop", source="TensorFlow tutorial reinforcement_learning/actor_critic, on recorded episodes", slips=LOOPS
)
def returns_standardized_by_episode(strategy, slip=None):
    """Right: an episode's returns are standardized by that episode alone, as the tutorial has it."""
    actor_critic(strategy, slip, axes=1)


def with_a_short_batch(strategy, slip, share):
    """Iris-like flowers, 105 in batches of 16: the last batch has 9, five on one replica and four on the other."""
    import keras
    import numpy as np
    import tensorflow as tf

    rng = np.random.default_rng(101)
    kinds = rng.integers(0, 3, 105)
    flowers = (np.eye(3, 4)[kinds] * 1.5 + rng.normal(0, 0.5, (105, 4))).astype("float32")
    with scope(strategy, slip):
        model = dense(4, 10, 3)
        optimizer = keras.optimizers.SGD(rate(0.1, strategy, slip))
        optimizer.build(model.trainable_variables)

    def train_step(inputs):
        x, y = inputs
        with tf.GradientTape() as tape:
            each = keras.losses.sparse_categorical_crossentropy(y, model(x, training=True), from_logits=True)
            loss = share(each)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return loss

    dataset = strategy.experimental_distribute_dataset(dealt((flowers, kinds), BATCH))
    looped(train_step, model, dataset, strategy, epochs=2)


@program(
    kind="loop",
    source="TensorFlow tutorial customization/custom_training_walkthrough, its mean divided by the replicas",
    right="uneven batch",
    reason="uneven batch",
)
def flowers_left_over(strategy, slip=None):
    """Wrong at the last batch of each epoch alone: the mean of the means of five and four examples."""
    import tensorflow as tf

    with_a_short_batch(strategy, slip, lambda each: tf.reduce_mean(each) / strategy.num_replicas_in_sync)


@program(
    kind="loop",
    source="TensorFlow tutorial customization/custom_training_walkthrough, the step's examples counted",
    slips=("learning rate",),
)
def flowers_counted_together(strategy, slip=None):
    """Right: the sum of the losses is divided by the number of examples that all replicas have in this step."""
    import tensorflow as tf

    def share(each):
        count = tf.distribute.get_replica_context().all_reduce("SUM", tf.cast(tf.size(each), each.dtype))
        return tf.reduce_sum(each) / count

    with_a_short_batch(strategy, slip, share)
